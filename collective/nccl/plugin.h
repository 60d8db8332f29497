// The boundary to libelasticdl_nccl.so, the only code that calls NCCL and the
// CUDA runtime. Plain C and a version, because the library is loaded at run
// time.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#define ELASTICDL_NCCL_VERSION 1
#define ELASTICDL_NCCL_ID_BYTES 128

// What every call returns.
enum ElasticdlNcclResult {
  kElasticdlNcclDone = 0,
  // Ask `state` until it is something else; no other call meanwhile.
  kElasticdlNcclInProgress = 1,
  // NCCL failed; the world can only be aborted.
  kElasticdlNcclFailed = 2,
  // The device or its driver failed: this process cannot use it any more.
  kElasticdlNcclDeviceFailed = 3,
};

enum ElasticdlNcclType {
  kElasticdlNcclFloat32 = 0,
  kElasticdlNcclBFloat16 = 1,
  kElasticdlNcclFloat16 = 2,
  kElasticdlNcclInt64 = 3,
};

// About this process and its device.
struct ElasticdlNcclFacts {
  // Of the library that is loaded; members of a world have the same.
  int32_t nccl_version;
  // That this process can see.
  int32_t num_devices;
  // Names the GPU on its host.
  char gpu[32];
};

// No call waits for another member except `abort`, which may wait for all of
// them, or forever. A world is used by one thread at a time, `abort` included;
// events may be asked for by any thread. After a result that is an error,
// `describe` tells the calling thread what it was.
struct ElasticdlNcclTable {
  int32_t version;
  int (*open)(int device, struct ElasticdlNcclFacts* facts);
  int (*make_id)(char* id);
  // Begins to connect a world. `*world` is null if that failed at once.
  int (*init)(const char* id, int rank, int size, int device, void** world);
  int (*state)(void* world);
  // Begins to enqueue a sum on the world's stream, after `event`.
  int (*all_reduce)(void* world, void* data, size_t count, int type,
                    void* event);
  // Records `event` on the world's stream.
  int (*record)(void* world, void* event);
  // Done, or in progress.
  int (*query)(int device, void* event);
  // Ends what is enqueued, and frees the world.
  int (*abort)(void* world);
  void (*describe)(char* text, size_t bytes);
};

// Exported as "elasticdl_nccl_table".
typedef const struct ElasticdlNcclTable* (*ElasticdlNcclTableFunction)(void);

}  // extern "C"
