#include "nccl/runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "nccl/world.h"

namespace elasticdl::collective {
namespace {

absl::StatusOr<const ElasticdlNcclTable*> Load(const std::string& path) {
  // Never closed: NCCL and CUDA have threads of their own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--collective=nccl: cannot load ", path, ": ", dlerror(),
        " (it is built where NCCL and the CUDA runtime are installed, and "
        "needs both at run time; --collective=auto works without)"));
  }
  const auto function = reinterpret_cast<ElasticdlNcclTableFunction>(
      dlsym(library, "elasticdl_nccl_table"));
  const ElasticdlNcclTable* const table =
      function == nullptr ? nullptr : function();
  if (table == nullptr || table->version != ELASTICDL_NCCL_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--collective=nccl: ", path, " is of another version of ElasticDL"));
  }
  return table;
}

std::string LastError(const ElasticdlNcclTable& table) {
  char text[512] = "";
  table.describe(text, sizeof(text));
  return text;
}

}  // namespace

NcclRuntime::NcclRuntime(const ElasticdlNcclTable* table,
                         const ElasticdlNcclFacts& facts,
                         const NcclOptions& options)
    : table_(*table), facts_(facts), options_(options) {}

NcclRuntime::~NcclRuntime() = default;

absl::StatusOr<std::string> NcclRuntime::MakeId() const {
  std::string id(ELASTICDL_NCCL_ID_BYTES, '\0');
  ELASTICDL_RETURN_IF_ERROR(ToStatus(table_.make_id(id.data())));
  return id;
}

absl::Status NcclRuntime::ToStatus(int result) const {
  switch (result) {
    case kElasticdlNcclDone:
      return absl::OkStatus();
    case kElasticdlNcclFailed:
      // Most often the first sign of a death.
      return absl::AbortedError(absl::StrCat("NCCL: ", LastError(table_)));
    default:
      return absl::InternalError(
          absl::StrCat("CUDA error: ", LastError(table_)));
  }
}

void NcclRuntime::Keep(std::shared_ptr<NcclWorld> world) {
  std::vector<std::shared_ptr<NcclWorld>> ended;
  MutexLock lock(mu_);
  for (auto& left : left_) {
    if (left->has_ended()) ended.push_back(std::move(left));
  }
  left_.erase(std::remove(left_.begin(), left_.end(), nullptr), left_.end());
  left_.push_back(std::move(world));
}

absl::StatusOr<std::shared_ptr<NcclRuntime>> OpenNccl(
    const NcclOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const ElasticdlNcclTable* const table,
                             Load(options.plugin));
  ElasticdlNcclFacts facts = {};
  if (table->open(options.device, &facts) != kElasticdlNcclDone) {
    return absl::FailedPreconditionError(
        absl::StrCat("--collective=nccl: GPU ", options.device,
                     " cannot be used: ", LastError(*table)));
  }
  return std::make_shared<NcclRuntime>(table, facts, options);
}

std::string Describe(const NcclRuntime& runtime) {
  const ElasticdlNcclFacts& facts = runtime.facts();
  return absl::StrCat(
      "NCCL ", facts.nccl_version / 10000, ".", facts.nccl_version / 100 % 100,
      ".", facts.nccl_version % 100, ", GPU ", runtime.options().device, " of ",
      facts.num_devices, " (", facts.gpu, ")");
}

int64_t NumNcclWorlds(const NcclRuntime& runtime) {
  return runtime.num_worlds();
}

}  // namespace elasticdl::collective
