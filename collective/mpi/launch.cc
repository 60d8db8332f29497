#include "mpi/launch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace elasticdl::collective {
namespace {

std::string Get(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

bool Has(const Variables& variables, const std::string& name) {
  return variables.count(name) > 0;
}

bool IsOn(const Variables& variables, const std::string& name) {
  const std::string value = Get(variables, name);
  return !value.empty() && value != "0" && value != "false" && value != "no";
}

template <typename... Args>
absl::Status Refuse(const Args&... args) {
  return absl::FailedPreconditionError(
      absl::StrCat("--collective=mpi: ", args...));
}

// May UCX use CMA? UCX_TLS is a list of transports and groups of them; with ^
// at its front, of those that are not used.
bool MayUseCma(const std::string& tls) {
  absl::string_view list = tls;
  const bool excluded = absl::ConsumePrefix(&list, "^");
  const std::vector<std::string> names = absl::StrSplit(list, ',');
  const bool named =
      std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return name == "cma" || name == "sm" || name == "shm";
      });
  if (excluded) return !named;
  return named || tls.empty() ||
         std::count(names.begin(), names.end(), "all") > 0;
}

absl::Status CheckUcx(const Variables& variables) {
  if (!MayUseCma(Get(variables, "UCX_TLS"))) return absl::OkStatus();
  return Refuse(
      "UCX may use CMA (cross-memory attach), and when a rank dies during such "
      "a copy, UCX ends the others; start with mpirun -x UCX_TLS=^cma");
}

// Open MPI 5 does not tell its ranks whether they survive a death; the command
// of mpirun, the parent of the ranks of its host, does. Any other parent is
// believed.
bool EndsAllRanks(const std::vector<std::string>& parent) {
  if (!IsMpirun(parent)) return false;
  for (size_t i = 1; i < parent.size(); ++i) {
    absl::string_view option = parent[i];
    if (!absl::ConsumePrefix(&option, "-")) continue;
    absl::ConsumePrefix(&option, "-");
    // Those of files may be in them.
    for (const char* name :
         {"enable-recovery", "continuous", "with-ft", "tune", "am", "app"}) {
      if (option == name) return false;
    }
    if (option != "runtime-options" || i + 1 == parent.size()) continue;
    const std::string value = absl::AsciiStrToLower(parent[i + 1]);
    if (absl::StrContains(value, "recoverable") ||
        absl::StrContains(value, "continuous")) {
      return false;
    }
  }
  return true;
}

constexpr char kInstead[] =
    "use UCX (mpirun --mca pml ucx -x UCX_TLS=^cma), or --collective=auto, "
    "which uses ElasticDL's own sockets";

absl::Status RefuseTcp() {
  return Refuse(
      "Open MPI would move data over its tcp BTL, which can hang for ever "
      "when a rank dies; ",
      kInstead);
}

absl::Status RefuseUnknown() {
  return Refuse(
      "this MPI's transport is not known to survive the death of a rank; ",
      kInstead);
}

// May ob1 use shared memory? The user's list of BTLs, with ^ at its front of
// those that are not used.
bool MayShareMemory(const std::string& btl) {
  const bool named =
      absl::StrContains(btl, "sm") || absl::StrContains(btl, "vader");
  return btl.empty() || named != absl::StartsWith(btl, "^");
}

// Where modules are part of the library.
absl::Status CheckBuiltIn(const MpiTransport& transport,
                          const Variables& variables) {
  const std::string pml =
      transport.pml.empty() ? Get(variables, "OMPI_MCA_pml") : transport.pml;
  if (pml == "ucx") return CheckUcx(variables);
  if (!pml.empty() && pml != "ob1") return RefuseUnknown();
  if (transport.one_host && MayShareMemory(Get(variables, "OMPI_MCA_btl"))) {
    return absl::OkStatus();
  }
  if (pml == "ob1") return RefuseTcp();
  return Refuse(
      "cannot tell how this MPI moves data; start with "
      "mpirun --mca pml ucx -x UCX_TLS=^cma");
}

}  // namespace

bool IsMpirun(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  const std::string program = command[0].substr(command[0].rfind('/') + 1);
  return program == "prterun" || program == "mpirun" || program == "mpiexec";
}

absl::StatusOr<bool> IsStartedByMpirun(const Variables& variables,
                                       const std::vector<std::string>& parent) {
  if (Has(variables, "OMPI_COMM_WORLD_RANK")) {
    const bool is_4 = Has(variables, "OMPI_MCA_orte_hnp_uri");
    if (is_4 ? !IsOn(variables, "OMPI_MCA_orte_enable_recovery")
             : EndsAllRanks(parent)) {
      return Refuse(
          "this mpirun ends all ranks when one dies; start with "
          "mpirun --enable-recovery");
    }
    return true;
  }
  const bool slurm = Has(variables, "SLURM_STEP_ID");
  if (Has(variables, "PMIX_RANK") && slurm) {
    return Refuse(
        "srun --mpi=pmix ends all tasks when one dies; use mpirun "
        "--enable-recovery within the allocation, or srun --mpi=none with "
        "--collective=auto");
  }
  if (Has(variables, "PMI_RANK") && slurm) {
    return Refuse(
        "Open MPI does not start under srun --mpi=pmi2; use mpirun "
        "--enable-recovery within the allocation, or srun --mpi=none with "
        "--collective=auto");
  }
  if (Has(variables, "PMI_RANK")) {
    return Refuse(
        "this is MPICH's mpirun (hydra), which ends all ranks when one dies; "
        "use Open MPI's mpirun --enable-recovery");
  }
  return false;
}

std::set<std::string> FindMpiModules(const std::string& maps) {
  std::set<std::string> modules;
  for (absl::string_view line : absl::StrSplit(maps, '\n')) {
    const size_t begin = line.rfind('/');
    if (begin == absl::string_view::npos) continue;
    line.remove_prefix(begin + 1);
    if (!absl::StartsWith(line, "mca_")) continue;
    line = line.substr(0, line.find('.'));
    modules.emplace(line);
  }
  return modules;
}

absl::Status CheckTransport(const MpiTransport& transport,
                            const Variables& variables) {
  const auto loaded = [&](const char* module) {
    return transport.modules.count(module) > 0;
  };
  if (loaded("mca_pml_ucx")) return CheckUcx(variables);
  const bool any_pml =
      std::any_of(transport.modules.begin(), transport.modules.end(),
                  [](const std::string& module) {
                    return absl::StartsWith(module, "mca_pml_");
                  });
  if (!any_pml) return CheckBuiltIn(transport, variables);
  const bool shared = loaded("mca_btl_vader") || loaded("mca_btl_sm");
  if (loaded("mca_pml_ob1") && shared && transport.one_host) {
    return absl::OkStatus();
  }
  if (loaded("mca_pml_ob1") && loaded("mca_btl_tcp")) return RefuseTcp();
  return RefuseUnknown();
}

}  // namespace elasticdl::collective
