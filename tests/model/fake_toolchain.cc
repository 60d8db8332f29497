// A toolchain whose elasticdl/model/plugin.h is a stub.
#include "model/fake_toolchain.h"

#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"

namespace elasticdl::model::test {

Toolchain MakeFakeToolchain(const std::string& dir) {
  const std::string folder = JoinPath(dir, "include/elasticdl/model");
  ELASTICDL_CHECK(MakeDirectories(folder).ok());
  ELASTICDL_CHECK(WriteFileAtomic(JoinPath(folder, "plugin.h"), R"(
#pragma once
#include <type_traits>
#include <utility>
namespace elasticdl::plugin {
struct Missing {};
struct Table {};
template <typename F> Table MakeTable(const char*) { return {}; }
template <typename T> int Construct() { return 0; }
}
)")
                      .ok());
  Toolchain toolchain;
  toolchain.flags = {"-std=c++17", "-fPIC"};
  toolchain.include_dirs = {JoinPath(dir, "include")};
  return toolchain;
}

}  // namespace elasticdl::model::test
