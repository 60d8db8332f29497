// A toolchain whose elasticdl/model/plugin.h is a stub: model files compile in
// milliseconds, and the parts around the compiler can be tested.
#pragma once

#include <string>

#include "elasticdl/model/compiler.h"

namespace elasticdl::model::test {

// Writes the stub below `dir`.
Toolchain MakeFakeToolchain(const std::string& dir);

}  // namespace elasticdl::model::test
