// The boundary to libelasticdl_mpi.so, the only code that calls MPI. Plain C
// and a version, because the library is loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#define ELASTICDL_MPI_VERSION 2

// About this process, after MPI was initialised.
struct ElasticdlMpiFacts {
  int32_t rank;
  int32_t size;
  // The largest tag of a message.
  int32_t largest_tag;
  // All ranks are on one host.
  int32_t one_host;
  // Random, the same for all ranks of one launch.
  char universe[16];
  // What MPI says about itself, up to the first line's end.
  char library[128];
  // The module of Open MPI that moves messages: "ob1", "ucx"; "" if it cannot
  // be told.
  char pml[64];
};

// A request that has ended.
struct ElasticdlMpiEnded {
  // In the array of requests.
  int32_t index;
  // 0, or an error for `describe`.
  int32_t error;
  // Of a receive: how much has come.
  int64_t bytes;
};

// All calls are made by one thread. They return 0, or an error for `describe`.
// None waits for another rank except `init`.
struct ElasticdlMpiTable {
  int32_t version;
  // Once in the life of the process.
  int (*init)(struct ElasticdlMpiFacts* facts);
  // The memory must stay until the request has ended. `send` ends when the
  // receiver has begun to take the message.
  int (*send)(const void* data, size_t bytes, int to, int tag,
              uint64_t* request);
  int (*receive)(void* data, size_t bytes, int from, int tag,
                 uint64_t* request);
  // Looks at `count` requests, none of which has ended. `ended` has room for
  // all of them.
  int (*poll)(uint64_t* requests, int count, struct ElasticdlMpiEnded* ended,
              int* num_ended);
  // Lets MPI move what it has queued.
  void (*progress)(void);
  void (*describe)(int error, char* text, size_t bytes);
};

// Exported as "elasticdl_mpi_table".
typedef const struct ElasticdlMpiTable* (*ElasticdlMpiTableFunction)(void);

}  // extern "C"
