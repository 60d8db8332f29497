#include "elasticdl/worker.h"

#include <malloc.h>
#include <torch/torch.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "job_runner.h"

namespace elasticdl::worker {
namespace {

// How long a worker waits for its last messages to leave.
constexpr absl::Duration kCloseTimeout = absl::Seconds(10);
// One try to reach a master that is away; between two, the wish to end is
// heard.
constexpr absl::Duration kReattachTry = absl::Seconds(1);

void Override(const std::string& mine, std::string* theirs) {
  if (!mine.empty()) *theirs = mine;
}

absl::StatusOr<model::LoadOptions> MakeLoadOptions(const WorkerOptions& options,
                                                   v1::ModelSpec spec) {
  if (!options.model_def.empty() || !options.model_zoo.empty()) {
    spec.set_model_zoo(options.model_zoo);
  }
  Override(options.model_def, spec.mutable_model_def());
  Override(options.model_params, spec.mutable_model_params());
  model::LoadOptions load;
  load.model_zoo = spec.model_zoo();
  load.model_def = spec.model_def();
  load.model_params = spec.model_params();
  // An empty name keeps the default one.
  Override(spec.feed(), &load.feed);
  Override(spec.loss(), &load.loss);
  Override(spec.optimizer(), &load.optimizer);
  Override(spec.eval_metrics_fn(), &load.eval_metrics_fn);
  Override(spec.callbacks(), &load.callbacks);
  Override(spec.custom_data_reader(), &load.custom_data_reader);
  Override(spec.prediction_outputs_processor(),
           &load.prediction_outputs_processor);
  load.cache_dir = options.model_cache_dir;
  ELASTICDL_ASSIGN_OR_RETURN(load.toolchain,
                             model::FindToolchain(options.executable));
  return load;
}

class WorkerImpl : public Worker {
 public:
  explicit WorkerImpl(WorkerOptions options)
      : options_(std::move(options)),
        events_(std::numeric_limits<size_t>::max()) {}

  int Run() override;
  void Leave() override {
    Event event;
    event.kind = Event::Kind::kLeave;
    events_.Push(std::move(event));
  }

 private:
  using StreamPtr = std::shared_ptr<rendezvous::StreamClient>;

  // Opens a stream and says Hello; `resuming` as worker `worker_id`.
  absl::StatusOr<v1::Welcome> Attach(int64_t worker_id, bool resuming,
                                     absl::Duration timeout);
  // After the stream has ended: to a master that was started again.
  absl::Status Reattach(int64_t worker_id, absl::Duration patience);
  int RunJob(const v1::Welcome& welcome);
  int ReportSetUpFailure(const absl::Status& status);
  void ReceiveMessages(const v1::Welcome& welcome, JobRunner& runner);
  StreamPtr stream() const {
    MutexLock lock(mu_);
    return stream_;
  }
  // Nothing more is wanted of the master.
  void EndStream();

  const WorkerOptions options_;
  EventQueue events_;
  mutable Mutex mu_;
  // Shared by whoever sends while a new one takes its place.
  StreamPtr stream_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

absl::StatusOr<v1::Welcome> WorkerImpl::Attach(int64_t worker_id, bool resuming,
                                               absl::Duration timeout) {
  rendezvous::StreamClient::Options options;
  options.address = options_.master_addr;
  options.token = options_.token;
  options.connect_timeout = timeout;
  ELASTICDL_ASSIGN_OR_RETURN(const StreamPtr stream,
                             rendezvous::StreamClient::Connect(options));
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_worker_id(worker_id);
  hello.set_pid(getpid());
  hello.set_resuming(resuming);
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  hello.set_host(host);
  stream->Send(std::move(message));
  std::optional<v1::MasterMessage> answer =
      stream->Receive(options_.connect_timeout);
  if (!answer.has_value()) {
    return stream->ended()
               ? Annotate(stream->status().ok()
                              ? absl::UnavailableError("stream closed")
                              : stream->status(),
                          absl::StrCat("attaching to the master at ",
                                       options_.master_addr))
               : absl::DeadlineExceededError(
                     absl::StrCat("the master at ", options_.master_addr,
                                  " does not answer Hello"));
  }
  if (answer->has_stop()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the master does not want this worker: ", answer->stop().reason()));
  }
  if (!answer->has_welcome()) {
    return absl::InternalError("the master's first message is no Welcome");
  }
  MutexLock lock(mu_);
  stream_ = stream;
  return answer->welcome();
}

absl::Status WorkerImpl::Reattach(int64_t worker_id, absl::Duration patience) {
  const absl::Time deadline = Clock::Real().Now() + patience;
  while (true) {
    {
      MutexLock lock(mu_);
      if (ending_) return absl::CancelledError("the worker ends");
    }
    const absl::Status status =
        Attach(worker_id, /*resuming=*/true, kReattachTry).status();
    // Fenced, or the wrong master: it will not get better.
    if (status.ok() || absl::IsFailedPrecondition(status) ||
        absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
      return status;
    }
    if (Clock::Real().Now() >= deadline) return status;
  }
}

void WorkerImpl::EndStream() {
  StreamPtr stream;
  {
    MutexLock lock(mu_);
    ending_ = true;
    stream = stream_;
  }
  stream->Close(kCloseTimeout);
}

int WorkerImpl::Run() {
  const absl::StatusOr<v1::Welcome> welcome =
      Attach(options_.worker_id, /*resuming=*/false, options_.connect_timeout);
  if (!welcome.ok()) {
    LogError(welcome.status().message());
    return absl::IsFailedPrecondition(welcome.status()) ? 0 : kExitMasterLost;
  }
  LogInfo("worker ", welcome->worker_id(), " of job ",
          welcome->job().job_name());
  const absl::Status armed =
      InitFailpoints(welcome->job().failpoints(), welcome->worker_id());
  if (!armed.ok()) return ReportSetUpFailure(armed);
  const int threads = options_.num_threads > 0 ? options_.num_threads
                                               : welcome->job().num_threads();
  if (threads > 0) torch::set_num_threads(threads);
  const int code = RunJob(*welcome);
  EndStream();
  return code;
}

int WorkerImpl::RunJob(const v1::Welcome& welcome) {
  absl::StatusOr<model::LoadOptions> load =
      MakeLoadOptions(options_, welcome.job().model());
  if (!load.ok()) return ReportSetUpFailure(load.status());
  absl::StatusOr<std::unique_ptr<model::Model>> model = model::Load(*load);
  if (!model.ok()) return ReportSetUpFailure(model.status());
  const SendFunction send = [this](v1::WorkerMessage message) {
    stream()->Send(std::move(message));
  };
  auto runner = JobRunner::Create(
      welcome, JobRunner::Deps{**model, events_, send, options_.token});
  if (!runner.ok()) return ReportSetUpFailure(runner.status());
  Thread receiver("receiver", [&] { ReceiveMessages(welcome, **runner); });
  const int code = (*runner)->Run();
  EndStream();
  receiver.Join();
  return code;
}

int WorkerImpl::ReportSetUpFailure(const absl::Status& status) {
  LogError(status.message());
  v1::WorkerMessage message;
  message.mutable_fatal()->set_message(std::string(status.message()));
  const StreamPtr stream = this->stream();
  stream->Send(std::move(message));
  // Wait for Stop, so that the message is known to have arrived.
  while (auto answer = stream->Receive(kCloseTimeout)) {
    if (answer->has_stop()) break;
  }
  return kExitFailed;
}

void WorkerImpl::ReceiveMessages(const v1::Welcome& welcome,
                                 JobRunner& runner) {
  const absl::Duration patience =
      absl::Seconds(welcome.job().master_timeout_seconds());
  while (true) {
    const StreamPtr stream = this->stream();
    while (auto message = stream->Receive(absl::InfiniteDuration())) {
      runner.Receive(*std::move(message));
    }
    const absl::Status end = stream->status();
    // Only a master that died may come back.
    if (!absl::IsUnavailable(end) || patience <= absl::ZeroDuration()) break;
    LogWarning("the master is gone (", end.message(), "); waiting up to ",
               absl::FormatDuration(patience), " for the next");
    const absl::Status back = Reattach(welcome.worker_id(), patience);
    if (!back.ok()) {
      LogError("no master: ", back.message());
      break;
    }
    LogInfo("the master is back");
    runner.OnMasterBack();
  }
  runner.OnMasterLost();
}

}  // namespace

std::unique_ptr<Worker> Worker::Create(WorkerOptions options) {
  return std::make_unique<WorkerImpl>(std::move(options));
}

void KeepFreedMemory() {
  constexpr int kLargestBuffer = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargestBuffer);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

absl::StatusOr<std::string> CompileModel(const WorkerOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const model::LoadOptions load,
                             MakeLoadOptions(options, v1::ModelSpec()));
  return model::Compile(load);
}

}  // namespace elasticdl::worker
