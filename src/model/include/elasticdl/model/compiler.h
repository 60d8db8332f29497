// From --model_zoo and --model_def to a shared library: finds the source,
// generates the shim, runs the compiler, caches by content. No libtorch.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::model {

// How model files are compiled. Written by the build (see FindToolchain).
struct Toolchain {
  std::string compiler = "c++";
  // Kind and version of the compiler, e.g. "GNU 12.2.0": part of the cache key.
  std::string compiler_id;
  // The flags with which the precompiled header was built.
  std::vector<std::string> flags;
  // Searched in order; the folder of the precompiled header comes first.
  std::vector<std::string> include_dirs;
  std::vector<std::string> link_flags;
};

// Reads the toolchain file that belongs to the program at `executable`:
// <folder>/../share/elasticdl/model_toolchain.txt, in the build tree and in an
// installation. NOT_FOUND names the file.
absl::StatusOr<Toolchain> FindToolchain(const std::string& executable);
// The same for a given file.
absl::StatusOr<Toolchain> ReadToolchain(const std::string& path);

// The values of the flags with these names (the fields of the message
// ModelSpec).
struct LoadOptions {
  std::string model_zoo;
  // "a.b.fn": function fn in <model_zoo>/a/b.cc. Or a path, relative to
  // model_zoo, of a source file (.cc; .py in old commands means .cc), of a
  // prebuilt .so, or of a TorchScript file (.pt).
  std::string model_def;
  // "k=v;k=v"
  std::string model_params;
  // Functions of the model file; "a.b.fn" is a function in another file of the
  // zoo. For TorchScript, and if the file does not define the function: names
  // of built-in functions, optionally with arguments in parentheses
  // (builtins.h).
  std::string feed = "feed";
  std::string loss = "loss";
  std::string optimizer = "optimizer";
  std::string eval_metrics_fn = "eval_metrics_fn";
  std::string callbacks = "callbacks";
  std::string custom_data_reader = "custom_data_reader";
  std::string prediction_outputs_processor = "PredictionOutputsProcessor";

  // Where compiled models are cached.
  std::string cache_dir;
  Toolchain toolchain;
};

// Compiles the model file unless it is cached, and returns the path of the .so.
// Several processes may call this at the same time: one compiles, the others
// wait for it. A prebuilt .so is used as is if model_def names it or if there
// is no source. Next to its source (b.so and b.cc) it is used if it was built
// from the same content. INVALID_ARGUMENT contains the compiler's output.
absl::StatusOr<std::string> Compile(const LoadOptions& options);

}  // namespace elasticdl::model
