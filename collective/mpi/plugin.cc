// libelasticdl_mpi.so: MPI behind a table of C functions.
#include "mpi/plugin.h"

#include <mpi.h>
#include <sys/random.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

// Of Open MPI, which exports it but does not say so in a header: a component,
// of which only the beginning is known (since version 2). Null with any other
// MPI.
extern "C" __attribute__((weak)) const char mca_pml_base_selected_component[];

namespace {

// Offsets of names in a component: three numbers each before the names of
// project (16 bytes), type (32) and component (64).
constexpr size_t kTypeName = 12 + 16 + 12;
constexpr size_t kComponentName = kTypeName + 32 + 12;
constexpr size_t kNameBytes = 64;

static_assert(sizeof(MPI_Request) <= sizeof(uint64_t),
              "a request must fit into the table's handle");

uint64_t ToHandle(const MPI_Request& request) {
  uint64_t handle = 0;
  std::memcpy(&handle, &request, sizeof(MPI_Request));
  return handle;
}

MPI_Request ToRequest(uint64_t handle) {
  MPI_Request request;
  std::memcpy(&request, &handle, sizeof(MPI_Request));
  return request;
}

void CopyText(const char* from, char* to, size_t bytes) {
  size_t length = std::min(std::strcspn(from, "\r\n"), bytes - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

void FindPml(ElasticdlMpiFacts* facts) {
  const char* const component = mca_pml_base_selected_component;
  // If the layout has changed, this is something else.
  if (component == nullptr || std::strcmp(component + kTypeName, "pml") != 0) {
    return;
  }
  const char* const name = component + kComponentName;
  if (std::memchr(name, '\0', kNameBytes) == nullptr) return;
  CopyText(name, facts->pml, sizeof(facts->pml));
}

int LookAround(ElasticdlMpiFacts* facts) {
  FindPml(facts);
  int error = MPI_Comm_rank(MPI_COMM_WORLD, &facts->rank);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Comm_size(MPI_COMM_WORLD, &facts->size);
  if (error != MPI_SUCCESS) return error;
  int* largest_tag = nullptr;
  int found = 0;
  error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &found);
  if (error != MPI_SUCCESS) return error;
  // The standard promises this much.
  facts->largest_tag = found != 0 ? *largest_tag : 32767;
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(library, &length);
  CopyText(library, facts->library, sizeof(facts->library));
  MPI_Comm host = MPI_COMM_NULL;
  error = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0,
                              MPI_INFO_NULL, &host);
  if (error != MPI_SUCCESS) return error;
  int on_host = 0;
  error = MPI_Comm_size(host, &on_host);
  facts->one_host = on_host == facts->size ? 1 : 0;
  return error;
}

// Waits for all ranks.
int Init(ElasticdlMpiFacts* facts) {
  int provided = 0;
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (error != MPI_SUCCESS) return error;
  if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  error = LookAround(facts);
  if (error != MPI_SUCCESS) return error;
  if (facts->rank == 0 &&
      getrandom(facts->universe, sizeof(facts->universe), 0) !=
          static_cast<ssize_t>(sizeof(facts->universe))) {
    return MPI_ERR_OTHER;
  }
  return MPI_Bcast(facts->universe, sizeof(facts->universe), MPI_BYTE, 0,
                   MPI_COMM_WORLD);
}

int Send(const void* data, size_t bytes, int to, int tag, uint64_t* handle) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Issend(data, static_cast<int>(bytes), MPI_BYTE, to, tag,
                               MPI_COMM_WORLD, &request);
  *handle = ToHandle(request);
  return error;
}

int Receive(void* data, size_t bytes, int from, int tag, uint64_t* handle) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from,
                              tag, MPI_COMM_WORLD, &request);
  *handle = ToHandle(request);
  return error;
}

int Poll(uint64_t* handles, int count, ElasticdlMpiEnded* ended,
         int* num_ended) {
  // Kept between calls: this is called a million times a second.
  thread_local std::vector<MPI_Request> requests;
  thread_local std::vector<int> indices;
  thread_local std::vector<MPI_Status> statuses;
  *num_ended = 0;
  const auto size = static_cast<size_t>(count);
  requests.resize(size);
  indices.resize(size);
  statuses.resize(size);
  for (size_t i = 0; i < size; ++i) requests[i] = ToRequest(handles[i]);
  int num = 0;
  const int error = MPI_Testsome(count, requests.data(), &num, indices.data(),
                                 statuses.data());
  for (size_t i = 0; i < size; ++i) handles[i] = ToHandle(requests[i]);
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return error;
  if (num == MPI_UNDEFINED) return MPI_ERR_REQUEST;
  for (int i = 0; i < num; ++i) {
    const MPI_Status& status = statuses[static_cast<size_t>(i)];
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    // The field is set only together with this error.
    const int own = error == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
    ended[i] = {indices[static_cast<size_t>(i)], own, bytes};
  }
  *num_ended = num;
  return 0;
}

void Progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void Describe(int error, char* text, size_t bytes) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(error, message, &length) != MPI_SUCCESS) {
    std::strncpy(message, "unknown error", sizeof(message) - 1);
  }
  CopyText(message, text, bytes);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ElasticdlMpiTable*
elasticdl_mpi_table() {
  static const ElasticdlMpiTable table = {
      ELASTICDL_MPI_VERSION, Init, Send, Receive, Poll, Progress, Describe};
  return &table;
}
