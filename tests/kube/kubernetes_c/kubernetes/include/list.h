/* What kube/kubernetes_c_transport.cc uses of kubernetes-client/c, declared
   anew so that the file is compiled where the library is not installed
   (kube/README.md). Nothing is linked against it. */
#ifndef ELASTICDL_TESTS_KUBERNETES_C_LIST_H_
#define ELASTICDL_TESTS_KUBERNETES_C_LIST_H_

typedef struct listEntry_t {
  struct listEntry_t* nextListEntry;
  void* data;
} listEntry_t;

typedef struct list_t {
  listEntry_t* firstEntry;
  long count;
} list_t;

list_t* list_createList(void);
void list_freeList(list_t* list);
void list_addElement(list_t* list, void* data);

#endif
