// One parameter server of a job as a process: the server itself, and its
// conversation with the master.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
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
  // Logs are in <log_root>/<run of the job>/ps-<server>.
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

// Where the server of this number has its log.
std::string PsLogDir(const std::string& log_root, const std::string& run,
                     int server);

// Thread-safe; Run once.
class PsProcess {
 public:
  explicit PsProcess(PsOptions options);

  // Serves until the master, Stop or an error ends it; the exit code.
  int Run();
  // Run returns 0 soon. What was acknowledged is in the log.
  void Stop();

 private:
  v1::WorkerMessage Hello(const std::string& address, int64_t version) const;
  absl::StatusOr<std::unique_ptr<ps::Server>> StartServer(
      const std::string& run);
  // Until the conversation has ended for good; the exit code.
  int Converse(const v1::Welcome& welcome, ps::Server& server);
  // To the restarted master.
  absl::Status AttachAgain(const v1::Welcome& welcome,
                           const v1::WorkerMessage& hello);
  void Commit(const v1::PsCommit& commit, ps::Server& server);
  bool stopping() const;

  const PsOptions options_;
  rendezvous::MasterLink master_;

  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace elasticdl::programs
