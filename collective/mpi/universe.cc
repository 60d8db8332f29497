#include "mpi/universe.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "mpi/launch.h"

namespace elasticdl::collective {
namespace {

absl::StatusOr<const ElasticdlMpiTable*> Load(const std::string& path) {
  // Never closed: MPI has threads of its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--collective=mpi: cannot load ", path, ": ", dlerror(),
        " (it is built where libopenmpi-dev is installed, and needs Open MPI "
        "at run time)"));
  }
  const auto function = reinterpret_cast<ElasticdlMpiTableFunction>(
      dlsym(library, "elasticdl_mpi_table"));
  const ElasticdlMpiTable* const table =
      function == nullptr ? nullptr : function();
  if (table == nullptr || table->version != ELASTICDL_MPI_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--collective=mpi: ", path, " is of another version of ElasticDL"));
  }
  return table;
}

// What MPI_Init leaves behind. On the heap, because it may come back after it
// was given up.
struct Start {
  ElasticdlMpiFacts facts = {};
  int error = 0;
};

// Empty if it cannot be read.
std::vector<std::string> CommandOf(pid_t process) {
  const auto text = ReadFile(absl::StrCat("/proc/", process, "/cmdline"));
  if (!text.ok()) return {};
  return absl::StrSplit(*text, '\0', absl::SkipEmpty());
}

std::shared_ptr<MpiUniverse> Without(const std::string& why) {
  LogWarning(why, "; continuing without MPI");
  return std::make_shared<MpiUniverse>();
}

}  // namespace

MpiUniverse::MpiUniverse(const ElasticdlMpiTable* table,
                         const ElasticdlMpiFacts& facts,
                         std::unique_ptr<MpiThread> thread)
    : table_(table), facts_(facts), thread_(std::move(thread)), usable_(true) {}

std::string MpiUniverse::id() const {
  if (!usable_.load() || thread_->given_up()) return "";
  return std::string(facts_.universe, sizeof(facts_.universe));
}

void MpiUniverse::NoteFailure(const absl::Status& why) {
  if (failures_.fetch_add(1) + 1 >= kMostFailures) Lose(why);
}

void MpiUniverse::Lose(const absl::Status& why) {
  if (usable_.exchange(false)) LogWarning(why.message());
}

absl::StatusOr<std::shared_ptr<MpiUniverse>> OpenMpi(
    const MpiOptions& options) {
  const std::vector<std::string> parent = CommandOf(getppid());
  ELASTICDL_ASSIGN_OR_RETURN(const bool started,
                             IsStartedByMpirun(options.variables, parent));
  if (!started) return Without("this worker was not started by mpirun");
  // MPI writes to sockets whose other end may be gone.
  signal(SIGPIPE, SIG_IGN);
  ELASTICDL_ASSIGN_OR_RETURN(const ElasticdlMpiTable* const table,
                             Load(options.plugin));
  auto thread = std::make_unique<MpiThread>(options.patience);
  auto start = std::make_unique<Start>();
  Deadline deadline(options.init_timeout);
  deadline.nanos();
  const absl::Status ran = thread->Run(
      [&mpi = *thread, table, start = start.get()] {
        // When it comes back late, this closure is gone.
        Start* const to = start;
        int error = 0;
        {
          const MpiThread::Call call(mpi);
          error = table->init(&to->facts);
        }
        to->error = error;
      },
      deadline, [] { return false; }, MpiThread::Calls::kMayWait);
  if (!ran.ok()) {
    [[maybe_unused]] Start* const kept = start.release();
    return Without(
        absl::StrCat("MPI_Init did not return within ",
                     absl::FormatDuration(options.init_timeout),
                     " (it waits for all ranks of the mpirun: did one die?)"));
  }
  if (start->error != 0) {
    return Without(
        absl::StrCat("MPI cannot be initialised: error ", start->error));
  }
  const ElasticdlMpiFacts& facts = start->facts;
  ELASTICDL_ASSIGN_OR_RETURN(const std::string maps,
                             ReadFile("/proc/self/maps"));
  const MpiTransport transport = {FindMpiModules(maps), facts.one_host != 0,
                                  facts.pml};
  ELASTICDL_RETURN_IF_ERROR(CheckTransport(transport, options.variables));
  LogInfo("MPI rank ", facts.rank, " of ", facts.size, ": ", facts.library);
  if (absl::StrContains(facts.library, "Open MPI v5") && !IsMpirun(parent)) {
    LogWarning(
        "Open MPI 5 ends all ranks when one dies, unless mpirun was given "
        "--enable-recovery");
  }
  MpiThread* const running = thread.get();
  auto universe =
      std::make_shared<MpiUniverse>(table, facts, std::move(thread));
  Deadline idle(options.init_timeout);
  ELASTICDL_RETURN_IF_ERROR(running->Run(
      [running, table] {
        running->SetIdleWork([running, table] {
          const MpiThread::Call call(*running);
          table->progress();
        });
      },
      idle, [] { return false; }));
  return universe;
}

int64_t NumMpiWorlds(const MpiUniverse& universe) {
  return universe.num_worlds();
}

}  // namespace elasticdl::collective
