/* See list.h. */
#ifndef ELASTICDL_TESTS_KUBERNETES_C_KEY_VALUE_PAIR_H_
#define ELASTICDL_TESTS_KUBERNETES_C_KEY_VALUE_PAIR_H_

typedef struct keyValuePair_t {
  char* key;
  void* value;
} keyValuePair_t;

keyValuePair_t* keyValuePair_create(char* key, void* value);
void keyValuePair_free(keyValuePair_t* pair);

#endif
