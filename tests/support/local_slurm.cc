#include "support/local_slurm.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"
#include "support/follow.h"

namespace elasticdl::test {
namespace {

constexpr absl::Duration kStartPatience = absl::Seconds(30);

// Daemons are in /usr/sbin, which is not in every PATH.
std::string Path(const std::string& program) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/"}) {
    const std::string path = folder + program;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

absl::Status CheckPrograms() {
  for (const auto& [program, package] : {std::pair("munged", "munge"),
                                         {"slurmctld", "slurmctld"},
                                         {"slurmd", "slurmd"},
                                         {"srun", "slurm-client"}}) {
    if (Path(program).empty()) {
      return absl::NotFoundError(
          absl::StrCat("no ", program, ": Debian's package ", package,
                       " is not installed (scripts/install-deps.sh --dev)"));
    }
  }
  return absl::OkStatus();
}

// One that is free now. Slurm's daemons cannot choose it themselves.
int FreePort() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), where, size) != 0) return 0;
  getsockname(fd.get(), where, &size);
  return ntohs(address.sin_port);
}

constexpr char kConfig[] = R"(ClusterName=test
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/munge
AuthInfo=socket=DIR/munge.sock
CredType=cred/munge
SlurmctldPort=CTLDPORT
SlurmdPort=SLURMDPORT
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool/%n
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A job that was requeued may start at once, not after some minutes.
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
KillWait=5
ReturnToService=2
GRES
TASKPROLOG
NodeName=DEFAULT CPUs=CPUS CoresPerSocket=CORES ThreadsPerCore=THREADS RealMemory=8000 NODEGRES
NodeName=HOST NodeAddr=127.0.0.1
OTHERNODES
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=20
PartitionName=high Nodes=ALL PriorityTier=10
)";

// A name, and names that lead to all nodes, for it and its steps only.
constexpr char kBecomeNode[] =
    R"sh(mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@")sh";

// In which namespace of host names a process is; empty: there is none.
std::string HostNames(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/ns/uts"),
                                       error)
      .string();
}

// Names and addresses of their own.
absl::Status CheckNamespaces() {
  process::RunOptions run;
  run.argv = {"unshare", "--uts", "--mount", "true"};
  const auto result = process::Run(run);
  if (result.ok() && result->code == 0) return absl::OkStatus();
  return absl::NotFoundError("several nodes on one machine take root");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalSlurm>> LocalSlurm::Start(
    const Options& options) {
  ELASTICDL_RETURN_IF_ERROR(CheckPrograms());
  if (options.nodes > 1) ELASTICDL_RETURN_IF_ERROR(CheckNamespaces());
  std::unique_ptr<LocalSlurm> slurm(new LocalSlurm);
  ELASTICDL_RETURN_IF_ERROR(slurm->WriteConfig(options));
  ELASTICDL_RETURN_IF_ERROR(slurm->StartDaemons());
  return slurm;
}

LocalSlurm::~LocalSlurm() {
  if (slurmd_ != nullptr) {
    const std::string user = absl::StrCat("--user=", user_);
    Run({"scancel", "--state=PENDING", user}).status().IgnoreError();
    Run({"scancel", "--signal=KILL", "--full", "--state=RUNNING", user})
        .status()
        .IgnoreError();
    // Gets all CPUs when the steps have ended. Without their daemons, those
    // that have not would wait for ever.
    const size_t nodes = others_.size() + 1;
    Run({"srun", "--partition=high", absl::StrCat("--nodes=", nodes),
         "--exclusive", "true"})
        .status()
        .IgnoreError();
  }
  for (const auto& other : other_slurmds_) {
    other->Signal(SIGTERM);
    other->Wait(absl::Seconds(15));
  }
  for (ChildProcess* daemon :
       {slurmd_.get(), slurmctld_.get(), munged_.get()}) {
    if (daemon == nullptr) continue;
    daemon->Signal(SIGTERM);
    daemon->Wait(absl::Seconds(15));
  }
}

absl::Status LocalSlurm::WriteConfig(const Options& options) {
  utsname name = {};
  uname(&name);
  host_ = name.nodename;
  host_ = host_.substr(0, host_.find('.'));
  const struct passwd* user = getpwuid(getuid());
  user_ = user == nullptr ? "root" : user->pw_name;
  std::string other_nodes;
  std::string hosts = absl::StrCat("127.0.0.1 localhost ", host_, "\n");
  for (int node = 2; node <= options.nodes; ++node) {
    const std::string& other = others_.emplace_back(absl::StrCat("node", node));
    const std::string address = absl::StrCat("127.0.0.", node);
    absl::StrAppend(&other_nodes, "NodeName=", other, " NodeAddr=", address,
                    "\n");
    absl::StrAppend(&hosts, address, " ", other, "\n");
  }
  ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(dir_.Path("hosts"), hosts, 0644));
  const std::string config = absl::StrReplaceAll(
      kConfig,
      {{"HOST", host_},
       {"USER", user_},
       {"DIR", dir_.path()},
       {"CTLDPORT", absl::StrCat(FreePort())},
       {"SLURMDPORT", absl::StrCat(FreePort())},
       {"NODEGRES",
        options.gpus > 0 ? absl::StrCat("Gres=gpu:", options.gpus) : ""},
       {"GRES", options.gpus > 0 ? "GresTypes=gpu" : ""},
       {"TASKPROLOG",
        options.task_prolog.empty() ? "" : "TaskProlog=" + dir_.Path("prolog")},
       {"OTHERNODES", other_nodes},
       {"CORES", absl::StrCat(options.cpus / options.threads_per_core)},
       {"THREADS", absl::StrCat(options.threads_per_core)},
       {"CPUS", absl::StrCat(options.cpus)}});
  variable_ = absl::StrCat("SLURM_CONF=", dir_.Path("slurm.conf"));
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(dir_.Path("slurm.conf"), config, 0644));
  if (options.gpus > 0) {
    // Any device will do: nothing is done with it.
    ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(
        dir_.Path("gres.conf"),
        absl::StrCat("Name=gpu File=/dev/tty[0-", options.gpus - 1, "]\n"),
        0644));
  }
  if (!options.task_prolog.empty()) {
    ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(
        dir_.Path("prolog"), "#!/bin/sh\n" + options.task_prolog + "\n", 0755));
  }
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir_.Path("state"), 0755));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir_.Path("spool"), 0755));
  std::string key(128, '\0');
  if (getrandom(key.data(), key.size(), 0) != 128) {
    return ErrnoToStatus(errno, "getrandom");
  }
  return WriteFileAtomic(dir_.Path("key"), key, 0400);
}

std::unique_ptr<ChildProcess> LocalSlurm::Daemon(
    const std::string& name, std::vector<std::string> argv) const {
  ChildProcess::Options options;
  argv.insert(argv.begin(), Path(name));
  options.argv = std::move(argv);
  options.environment = {variable_};
  options.log = dir_.Path(name);
  return std::make_unique<ChildProcess>(options);
}

std::unique_ptr<ChildProcess> LocalSlurm::OtherNode(
    const std::string& name) const {
  ChildProcess::Options options;
  options.argv = {"unshare",
                  "--uts",
                  "--mount",
                  "sh",
                  "-c",
                  kBecomeNode,
                  "sh",
                  dir_.Path("hosts"),
                  name,
                  Path("slurmd"),
                  "-D",
                  "-f",
                  dir_.Path("slurm.conf"),
                  "-N",
                  name};
  options.environment = {variable_};
  options.log = dir_.Path(name);
  return std::make_unique<ChildProcess>(options);
}

absl::Status LocalSlurm::StartDaemons() {
  munged_ = Daemon("munged", {"--foreground", "--force", "--num-threads=2",
                              "--key-file=" + dir_.Path("key"),
                              "--socket=" + dir_.Path("munge.sock"),
                              "--pid-file=" + dir_.Path("munged.pid"),
                              "--log-file=" + dir_.Path("munged.log"),
                              "--seed-file=" + dir_.Path("munged.seed")});
  if (!WaitForFile(dir_.Path("munge.sock"), kStartPatience)) {
    return absl::UnavailableError("munged does not start: " + munged_->err());
  }
  const std::string config = dir_.Path("slurm.conf");
  slurmctld_ = Daemon("slurmctld", {"-c", "-D", "-v", "-f", config});
  slurmd_ = Daemon("slurmd", {"-D", "-f", config, "-N", host_});
  for (const std::string& name : others_) {
    other_slurmds_.push_back(OtherNode(name));
  }
  if (!WaitForLog("Running as primary controller")) {
    return absl::UnavailableError("slurmctld does not start:\n" + Logs());
  }
  // Waits until all nodes have registered. Those that Slurm does not know yet
  // may be refused, so each is waited for by itself.
  ELASTICDL_RETURN_IF_ERROR(Run({"srun", "--ntasks=1", "true"}).status());
  for (const std::string& name : others_) {
    ELASTICDL_RETURN_IF_ERROR(
        Run({"srun", "--nodelist=" + name, "true"}).status());
  }
  return absl::OkStatus();
}

absl::Status LocalSlurm::LoseNode(const std::string& name) {
  const auto found = std::find(others_.begin(), others_.end(), name);
  if (found == others_.end()) return absl::NotFoundError("no node " + name);
  const auto daemon = other_slurmds_.begin() + (found - others_.begin());
  // All its processes are in the namespace of its host name.
  const std::string names = HostNames((*daemon)->pid());
  if (names.empty() || names == HostNames(getpid())) {
    return absl::InternalError(name + " has no host name of its own");
  }
  (*daemon)->Signal(SIGKILL);
  (*daemon)->Wait();
  other_slurmds_.erase(daemon);
  others_.erase(found);
  // Until there are none: one may just have started another.
  bool some = true;
  while (some) {
    some = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      pid_t pid = 0;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
      if (HostNames(pid) != names) continue;
      some = true;
      kill(pid, SIGKILL);
      if (!WaitForEnd(pid)) {
        return absl::DeadlineExceededError("a process does not end");
      }
    }
  }
  return Run({"scontrol", "update", "nodename=" + name, "state=down",
              "reason=lost"})
      .status();
}

bool LocalSlurm::WaitForLog(const std::string& text) const {
  LineFollower log(slurmctld_->err_path());
  while (const auto line = log.Next(kStartPatience)) {
    if (line->find(text) != line->npos) return true;
  }
  return false;
}

absl::StatusOr<std::string> LocalSlurm::Run(
    const std::vector<std::string>& argv) const {
  process::RunOptions options;
  options.argv = argv;
  options.environment.push_back(variable_);
  options.timeout = kPatience;
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result,
                             process::Run(options));
  if (result.code == 0) return result.output;
  return absl::UnavailableError(absl::StrCat(argv[0], ": ", result.HowItEnded(),
                                             ": ", result.error, Logs()));
}

absl::StatusOr<std::string> LocalSlurm::Allocate(int tasks) const {
  ELASTICDL_RETURN_IF_ERROR(
      Run({"salloc", absl::StrCat("--ntasks=", tasks), "--no-shell", "--quiet"})
          .status());
  ELASTICDL_ASSIGN_OR_RETURN(std::string jobs,
                             Run({"squeue", "--noheader", "--states=RUNNING",
                                  "--format=%i", "--sort=-i"}));
  return jobs.substr(0, jobs.find('\n'));
}

std::string LocalSlurm::Logs() const {
  std::string text;
  for (const ChildProcess* daemon :
       {munged_.get(), slurmctld_.get(), slurmd_.get()}) {
    if (daemon != nullptr) absl::StrAppend(&text, daemon->err(), "\n");
  }
  for (const auto& daemon : other_slurmds_) {
    absl::StrAppend(&text, daemon->err(), "\n");
  }
  return text;
}

}  // namespace elasticdl::test
