// ELASTICDL_CHECK: a condition that only a programming error in this process
// can break. Never use it on files, peers, flags or user models.
#pragma once

namespace elasticdl::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);
}  // namespace elasticdl::internal

#define ELASTICDL_CHECK(condition)                                        \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::elasticdl::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                     \
  } while (false)
