// From --model_zoo and --model_def to a shared library: finds the source,
// generates the shim, runs the compiler, caches by content. No libtorch.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::model {

// How model files are compiled. Comes with the build (FindToolchain).
struct Toolchain {
  std::string compiler = "c++";
  // Kind and version of the compiler, e.g. "GNU 12.2.0": part of the cache key.
  std::string compiler_id;
  // Flags that the precompiled header was made with.
  std::vector<std::string> flags;
  // Searched in order; the folder of the precompiled header comes first.
  std::vector<std::string> include_dirs;
  std::vector<std::string> link_flags;
};

// Reads the toolchain file that belongs to the program at `executable`:
// <folder>/../share/elasticdl/model_toolchain.txt, in the build tree and in an
// installation. NOT_FOUND names the file.
absl::StatusOr<Toolchain> FindToolchain(const std::string& executable);
// The same, of a known file.
absl::StatusOr<Toolchain> ReadToolchain(const std::string& path);

// Flags of the same names, as given (the fields of the message ModelSpec).
struct LoadOptions {
  std::string model_zoo;
  // "a.b.fn": function fn of <model_zoo>/a/b.cc. Also a path of a source (.cc,
  // .py of old commands means .cc), of a ready-built .so, or of a TorchScript
  // file (.pt), relative to model_zoo.
  std::string model_def;
  // "k=v;k=v"
  std::string model_params;
  // Functions of the model file; "a.b.fn" is another file of the zoo. For
  // TorchScript, and where the file has no such function: names of built-in
  // ones, with arguments in parentheses if any (builtins.h).
  std::string feed = "feed";
  std::string loss = "loss";
  std::string optimizer = "optimizer";
  std::string eval_metrics_fn = "eval_metrics_fn";
  std::string callbacks = "callbacks";
  std::string custom_data_reader = "custom_data_reader";
  std::string prediction_outputs_processor = "PredictionOutputsProcessor";

  // Where compiled models are kept.
  std::string cache_dir;
  Toolchain toolchain;
};

// Compiles the model file unless the cache has it, and gives the path of the
// .so. Several processes may do so at once: one compiles, the others wait for
// it. A ready-built .so is taken as it is when model_def names it or there is
// no source, and beside its source (b.so and b.cc) when it was built from the
// same content. INVALID_ARGUMENT has the compiler's output.
absl::StatusOr<std::string> Compile(const LoadOptions& options);

}  // namespace elasticdl::model
