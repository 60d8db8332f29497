// A temporary folder in memory where the machine has one: the tests that save
// hundreds of times need no disk's fsync for what they show.
#pragma once

#include <stdlib.h>

#include <string>

#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"

namespace elasticdl::checkpoint::test {

class MemoryDir {
 public:
  MemoryDir() {
    path_ = IsDirectory("/dev/shm") ? "/dev/shm" : "/tmp";
    path_ += "/elasticdl-test-XXXXXX";
    ELASTICDL_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~MemoryDir() { RemoveTree(path_).IgnoreError(); }
  MemoryDir(const MemoryDir&) = delete;
  MemoryDir& operator=(const MemoryDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const {
    return JoinPath(path_, name);
  }

 private:
  std::string path_;
};

}  // namespace elasticdl::checkpoint::test
