// One parameter server of a job as a process: the server itself, and its
// conversation with the master.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/ps/server.h"
#include "elasticdl/rendezvous/master_link.h"
#include "elasticdl/v1/master.pb.h"

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
  // Logs are in <log_root>/<run of the job>/ps-<server>; of a backup for the
  // part of another server, in ps-<server>-backup.
  std::string log_root;
  // ps::ServerOptions.
  size_t memory_limit = 0;
  // The server adds its number; "" = none.
  std::string audit;
  // How long the master may take to be there at first.
  absl::Duration connect_timeout = absl::Seconds(30);
};

inline constexpr int kPsExitFailed = 1;
inline constexpr int kPsExitMasterLost = 3;

// Where the server of this number has its log; `backup`: where the next one has
// the copy of it.
std::string PsLogDir(const std::string& log_root, const std::string& run,
                     int server, bool backup = false);

// Thread-safe; Run once.
class PsProcess {
 public:
  explicit PsProcess(PsOptions options);

  // Serves until the master, Stop or an error ends it; the exit code.
  int Run();
  // Run returns 0 soon. What was acknowledged is in the log.
  void Stop();

 private:
  // A part of the model, or a copy of one, that this process has.
  struct Hosted {
    int part = 0;
    std::string address;
    std::unique_ptr<ps::Server> server;
  };

  // Without what is hosted: at first nothing is, because where the logs are
  // follows from the answer.
  v1::WorkerMessage Greeting() const;
  void SayHello(const v1::JobSpec& job);
  v1::WorkerMessage Hello(const v1::JobSpec& job) const;
  absl::Status Host(const v1::JobSpec& job);
  absl::StatusOr<Hosted> StartServer(const v1::JobSpec& job, int part);
  // Until the conversation has ended for good; the exit code.
  int Converse(const v1::Welcome& welcome);
  // To the restarted master. What is hosted is not told yet.
  absl::StatusOr<v1::Welcome> AttachAgain(const v1::Welcome& welcome);
  ps::Server* Find(int part) const;
  // With backups: the thread that applies what the master commits. It may have
  // to wait for a backup, and the answer of the master to that must be heard
  // meanwhile.
  void ApplyCommits();
  void Commit(const v1::MasterMessage& message);
  // The thread that tells the master now and then what the server has.
  void TellUsage();
  bool stopping() const;

  const PsOptions options_;
  rendezvous::MasterLink master_;
  // Held by whoever tells the master of a copy.
  Mutex telling_;
  // Constant while there is a conversation.
  std::vector<Hosted> hosted_;
  Queue<v1::MasterMessage> commits_;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The conversation is over.
  bool talked_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace elasticdl::programs
