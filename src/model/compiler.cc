// Compiles a model file into the cache.
#include "elasticdl/model/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"
#include "resolve.h"
#include "shim.h"
#include "source_scan.h"

namespace elasticdl::model {
namespace {

// A model file takes half a minute; this is for a compiler that hangs.
constexpr absl::Duration kCompileTimeout = absl::Minutes(30);

// Everything that affects the compiler's output.
struct Job {
  std::string main_file;
  std::string shim;
  std::string key;
};

// Length-prefixed, so that different lists of parts never give the same text.
void Append(std::string& out, absl::string_view part) {
  absl::StrAppend(&out, part.size(), ":", part, ";");
}

std::string Absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// A function's name for the shim, and its file if that is another one. Built-in
// expressions do not refer to the file: any name that no file defines will do.
absl::Status Name(const LoadOptions& options, const std::string& flag,
                  const std::string& value, std::string& symbol,
                  std::vector<std::string>& files) {
  if (value.empty() || IsExpression(value)) {
    symbol = absl::StrCat("elasticdl_none_", flag);
    return absl::OkStatus();
  }
  ELASTICDL_ASSIGN_OR_RETURN(FunctionName name,
                             ResolveFunction(options.model_zoo, flag, value));
  symbol = std::move(name.symbol);
  if (name.path.empty()) return absl::OkStatus();
  name.path = Absolute(name.path);
  if (std::find(files.begin(), files.end(), name.path) == files.end()) {
    files.push_back(std::move(name.path));
  }
  return absl::OkStatus();
}

absl::Status NameAll(const LoadOptions& options, ShimNames& names,
                     std::vector<std::string>& files) {
  const struct {
    const char* flag;
    const std::string& value;
    std::string& symbol;
  } all[] = {
      {"feed", options.feed, names.feed},
      {"loss", options.loss, names.loss},
      {"optimizer", options.optimizer, names.optimizer},
      {"eval_metrics_fn", options.eval_metrics_fn, names.eval_metrics_fn},
      {"callbacks", options.callbacks, names.callbacks},
      {"custom_data_reader", options.custom_data_reader,
       names.custom_data_reader},
      {"prediction_outputs_processor", options.prediction_outputs_processor,
       names.processor},
  };
  for (const auto& one : all) {
    ELASTICDL_RETURN_IF_ERROR(
        Name(options, one.flag, one.value, one.symbol, files));
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> Prepare(const LoadOptions& options,
                            const Definition& definition) {
  Job job;
  job.main_file = Absolute(definition.path);
  ShimNames names;
  names.model = definition.symbol;
  std::vector<std::string> files = {job.main_file};
  ELASTICDL_RETURN_IF_ERROR(NameAll(options, names, files));

  std::string all;
  bool has_processor = false;
  std::vector<std::string> roots = files;
  // Part of the hash even if no model file includes it, because the shim does.
  for (const std::string& dir : options.toolchain.include_dirs) {
    const std::string plugin = JoinPath(dir, "elasticdl/model/plugin.h");
    if (FileExists(plugin)) roots.push_back(plugin);
  }
  for (const std::string& root : roots) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const std::vector<SourceFile> sources,
        ReadWithIncludes(root, {options.model_zoo},
                         options.toolchain.include_dirs));
    for (const SourceFile& source : sources) {
      Append(all, BaseName(source.path));
      Append(all, source.content);
      names.model_is_class |= DefinesClass(source.content, names.model);
      has_processor |= DefinesClass(source.content, names.processor);
    }
  }
  if (!has_processor) names.processor.clear();
  // For the key, the shim contains file names without folders, so that a zoo
  // has the same key wherever it is mounted.
  std::vector<std::string> base_names;
  base_names.reserve(files.size());
  for (const std::string& file : files) base_names.push_back(BaseName(file));
  Append(all, ShimSource(names, base_names, ELASTICDL_VERSION));
  Append(all, options.toolchain.compiler_id);
  Append(all, absl::StrJoin(options.toolchain.flags, "\n"));
  job.key = Sha256Hex(all);
  job.shim = absl::StrCat(
      ShimSource(names, files, ELASTICDL_VERSION),
      "extern \"C\" __attribute__((visibility(\"default\"), used)) const char\n"
      "    elasticdl_model_key[] = \"elasticdl-model-key:",
      job.key, "\";\n");
  return job;
}

// A library next to the source that was built from the same content, or "".
std::string ReadyBuilt(const Job& job) {
  const std::string path =
      absl::StrCat(job.main_file.substr(0, job.main_file.rfind('.')), ".so");
  if (!FileExists(path)) return "";
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (!content.ok()) return "";
  return absl::StrContains(*content,
                           absl::StrCat("elasticdl-model-key:", job.key))
             ? path
             : "";
}

// The compiler's output without the include stack, shortened to a readable
// length.
std::string Trim(const std::string& output) {
  constexpr size_t kMaxLines = 40;
  std::vector<std::string> kept;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if (line.empty() || absl::StartsWith(line, "In file included from") ||
        absl::StartsWith(line, "                 from ")) {
      continue;
    }
    if (kept.size() == kMaxLines) {
      kept.push_back("...");
      break;
    }
    kept.emplace_back(line.substr(0, 400));
  }
  return absl::StrJoin(kept, "\n");
}

std::vector<std::string> Command(const LoadOptions& options,
                                 const std::string& source,
                                 const std::string& out) {
  std::vector<std::string> command = {options.toolchain.compiler};
  const auto& flags = options.toolchain.flags;
  command.insert(command.end(), flags.begin(), flags.end());
  for (const std::string& dir : options.toolchain.include_dirs) {
    command.push_back(absl::StrCat("-I", dir));
  }
  if (!options.model_zoo.empty()) {
    command.push_back("-iquote");
    command.push_back(options.model_zoo);
  }
  command.insert(command.end(), {"-shared", "-o", out, source});
  const auto& link = options.toolchain.link_flags;
  command.insert(command.end(), link.begin(), link.end());
  return command;
}

// Released when destroyed, or when the process dies.
absl::StatusOr<Fd> Lock(const std::string& path) {
  Fd fd(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoToStatus(errno, path);
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoToStatus(errno, path);
  }
  return fd;
}

absl::Status RunCompiler(const LoadOptions& options, const Job& job,
                         const std::string& out) {
  const std::string source =
      JoinPath(options.cache_dir, absl::StrCat(job.key, ".cc"));
  ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(source, job.shim));
  const std::string temporary = absl::StrCat(out, ".", getpid(), ".tmp");
  LogInfo("compiling model file ", job.main_file);
  process::RunOptions run;
  run.argv = Command(options, source, temporary);
  run.timeout = kCompileTimeout;
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result,
                             process::Run(run));
  const std::string said = absl::StrCat(result.output, result.error);
  if (result.code != 0) {
    unlink(temporary.c_str());
    // This is how the compiler driver reports that its child was killed.
    // Nothing is wrong with the model. (Slurm sends SIGTERM to a worker's
    // children too.)
    if (absl::StrContains(said, "Killed signal terminated program") ||
        absl::StrContains(said, "Terminated signal terminated program")) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the compiler was killed while compiling model file ", job.main_file,
          ", probably because memory ran out: it needs about 1.5 GB. On a "
          "cluster, raise memory in --worker_resource_request or _limit, or "
          "compile the model into the image with elasticdl zoo build"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("model file ", job.main_file, " does not compile (",
                     options.toolchain.compiler, " exit code ", result.code,
                     "):\n", Trim(said)));
  }
  if (rename(temporary.c_str(), out.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("renaming to ", out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Compile(const LoadOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const Definition definition,
                             ResolveDefinition(options));
  if (definition.kind == Kind::kLibrary) return definition.path;
  if (definition.kind == Kind::kTorchScript) {
    return absl::InvalidArgumentError(absl::StrCat(
        definition.path, " is TorchScript, which is not compiled"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const Job job, Prepare(options, definition));
  if (std::string ready = ReadyBuilt(job); !ready.empty()) return ready;

  if (options.cache_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model file ", job.main_file, " cannot be compiled: no cache folder"));
  }
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.cache_dir));
  std::string out = JoinPath(options.cache_dir, absl::StrCat(job.key, ".so"));
  if (FileExists(out)) return out;
  ELASTICDL_ASSIGN_OR_RETURN(const Fd lock, Lock(absl::StrCat(out, ".lock")));
  if (FileExists(out)) return out;
  ELASTICDL_RETURN_IF_ERROR(RunCompiler(options, job, out));
  return out;
}

}  // namespace elasticdl::model
