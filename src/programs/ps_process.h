// One parameter server of a job as a process: the server itself and its stream
// to the master.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/rendezvous/master_link.h"
#include "elasticdl/v1/master.pb.h"
#include "hosted_part.h"

namespace elasticdl::programs {

struct PsOptions {
  // Its number, from 0.
  int server = 0;
  // HOST:PORT.
  std::string master_addr;
  std::string token;
  // The host at which workers reach it, and its port; 0: a free one.
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  // Logs are in <log_root>/<run of the job>/ps-<server>; of a copy of the part
  // of another server, in ps-<part>-on-<server>.
  std::string log_root;
  // ps::ServerOptions.
  size_t memory_limit = 0;
  // The server adds its number; "" = none.
  std::string audit;
  // ps::ServerOptions; 0: its default.
  int64_t snapshot_bytes = 0;
  // How long the master may take to be there at first.
  absl::Duration connect_timeout = absl::Seconds(30);
};

inline constexpr int kPsExitFailed = 1;
inline constexpr int kPsExitMasterLost = 3;

// Where the server has the log of its own part, or of that of another.
std::string PsLogDir(const std::string& log_root, const std::string& run,
                     int server, int part);

// Thread-safe; Run once.
class PsProcess {
 public:
  explicit PsProcess(PsOptions options);

  // Serves until the master, Stop or an error ends it; the exit code.
  int Run();
  // Run returns 0 soon. What was acknowledged is in the log.
  void Stop();

 private:
  using PartPtr = std::shared_ptr<HostedPart>;

  // Without what is hosted: at first nothing is, because where the logs are
  // follows from the answer.
  v1::WorkerMessage Greeting() const;
  // With all that is hosted, or, with backups, these.
  void SayHello(const std::vector<PartPtr>& parts);
  v1::WorkerMessage Hello(const std::vector<PartPtr>& parts) const;
  // The parts that the master wants here.
  std::vector<int> PartsIn(const v1::PsHosting& hosting) const;
  // Gives up what is not among them and starts what is missing; what was
  // started.
  absl::StatusOr<std::vector<PartPtr>> Host(const std::vector<int>& wanted);
  absl::StatusOr<PartPtr> StartPart(int part);
  uint16_t PortFor(int part) const;
  void GiveUp(int part);
  // Of copies that this server was to have once.
  void RemoveOldLogs(const std::vector<int>& wanted) const;
  // Until the conversation has ended for good; the exit code.
  absl::StatusOr<int> Converse();
  absl::Status Handle(v1::MasterMessage message);
  // To the restarted master. What is hosted is not told yet.
  absl::StatusOr<v1::Welcome> AttachAgain();
  // Null: it is not here.
  PartPtr Find(int part) const;
  std::vector<PartPtr> Parts() const;
  // With backups: the thread that applies what the master commits. It may have
  // to wait for a backup, and the master's reply about that backup must be
  // received meanwhile.
  void ApplyCommits();
  void Commit(const v1::MasterMessage& message);
  // The thread that tells the master now and then what the server has.
  void TellUsage();
  bool stopping() const;

  const PsOptions options_;
  rendezvous::MasterLink master_;
  // Held by whoever tells the master of a copy.
  Mutex telling_;
  // Constant after the first Welcome.
  v1::JobSpec job_;
  bool backups_ = false;
  // Where the others are. Used by the thread of Run.
  v1::Servers servers_;
  Queue<v1::MasterMessage> commits_;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The conversation is over.
  bool talked_ ABSL_GUARDED_BY(mu_) = false;
  // By part. Changed by the thread of Run.
  std::map<int, PartPtr> parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::programs
