/* See list.h. */
#ifndef ELASTICDL_TESTS_KUBERNETES_C_API_CLIENT_H_
#define ELASTICDL_TESTS_KUBERNETES_C_API_CLIENT_H_

#include <curl/curl.h>
#include <stddef.h>

#include "list.h"

typedef struct sslConfig_t sslConfig_t;

typedef struct apiClient_t {
  void* dataReceived;
  long dataReceivedLen;
  void (*data_callback_func)(void** data, long* size);
  int (*progress_func)(void* data, curl_off_t, curl_off_t, curl_off_t,
                       curl_off_t);
  void* progress_data;
  void (*curl_pre_invoke_func)(CURL* easy);
  long response_code;
} apiClient_t;

apiClient_t* apiClient_create_with_base_path(const char* base_path,
                                             sslConfig_t* ssl_config,
                                             list_t* api_keys);
void apiClient_free(apiClient_t* client);
void apiClient_invoke(apiClient_t* client, const char* target, list_t* query,
                      list_t* headers, list_t* form, list_t* accept,
                      list_t* content_type, const char* body, size_t body_size,
                      const char* method);

#endif
