// A folder that lives as long as the object.
#pragma once

#include <stdlib.h>

#include <string>

#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"

namespace elasticdl::test {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/elasticdl-test-XXXXXX";
    ELASTICDL_CHECK(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TempDir() { RemoveTree(path_).IgnoreError(); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const {
    return JoinPath(path_, name);
  }

 private:
  std::string path_;
};

}  // namespace elasticdl::test
