#include "elasticdl/worker.h"

#include <malloc.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device.h"
#include "device_choice.h"
#include "elasticdl/collective/mpi.h"
#include "elasticdl/collective/nccl.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/rendezvous/master_link.h"
#include "job_runner.h"

namespace elasticdl::worker {
namespace {

// How long a worker waits for its last messages to leave.
constexpr absl::Duration kCloseTimeout = absl::Seconds(10);
// The kernel frees 100 GB of memory of a killed process in a few seconds.
constexpr absl::Duration kGpuPatience = absl::Seconds(10);

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

// Do its workers form worlds?
bool Trains(const v1::JobSpec& job) {
  return job.num_ps_pods() == 0 &&
         (job.job_type() == v1::TRAINING_ONLY ||
          job.job_type() == v1::TRAINING_WITH_EVALUATION);
}

class WorkerImpl : public Worker {
 public:
  explicit WorkerImpl(WorkerOptions options)
      : options_(std::move(options)), master_(StreamOptions(options_)) {}

  int Run() override;
  void Leave() override { events_.PushKind(Event::Kind::kLeave); }
  bool used_mpi() const override { return used_mpi_; }

 private:
  static rendezvous::StreamClient::Options StreamOptions(
      const WorkerOptions& options);
  absl::StatusOr<rendezvous::WorldLink::Options> LinkOptions(
      const v1::JobSpec& job);
  // NCCL, if the job can use it and this worker computes on a GPU.
  absl::Status AddNccl(const v1::JobSpec& job, const Execution& execution,
                       collective::BackendOptions& backend);
  // Takes the device.
  absl::StatusOr<Execution> MakeExecution(const v1::JobSpec& job);
  int RunJob(const v1::Welcome& welcome);
  int ReportSetUpFailure(const absl::Status& status);
  // Ends the process: nothing that is on the device can be destroyed.
  int EndWithDevice();
  // The same for the model: only what the master named is the whole job's
  // matter.
  int ReportModelFailure(const absl::Status& status);
  void ReceiveMessages(const v1::Welcome& welcome, JobRunner& runner);

  const WorkerOptions options_;
  ThreadEventQueue events_;
  rendezvous::MasterLink master_;
  bool used_mpi_ = false;
  // Of the device, until the process ends.
  DeviceLease lease_;
};

rendezvous::StreamClient::Options WorkerImpl::StreamOptions(
    const WorkerOptions& options) {
  rendezvous::StreamClient::Options stream;
  stream.address = options.master_addr;
  stream.token = options.token;
  stream.connect_timeout = options.connect_timeout;
  return stream;
}

absl::StatusOr<rendezvous::WorldLink::Options> WorkerImpl::LinkOptions(
    const v1::JobSpec& job) {
  rendezvous::WorldLink::Options link;
  link.secret = options_.token;
  link.backend.address = options_.worker_address;
  link.backend.master_address = options_.master_addr;
  if (job.collective() == "mpi" && Trains(job)) {
    used_mpi_ = true;
    collective::MpiOptions mpi;
    mpi.plugin = options_.mpi_plugin;
    for (const std::string& variable : options_.environment) {
      mpi.variables.insert(absl::StrSplit(variable, absl::MaxSplits('=', 1)));
    }
    ELASTICDL_ASSIGN_OR_RETURN(link.backend.mpi, collective::OpenMpi(mpi));
  }
  return link;
}

absl::StatusOr<Execution> WorkerImpl::MakeExecution(const v1::JobSpec& job) {
  Execution execution;
  if (job.precision() == "bf16") execution.precision = Precision::kBFloat16;
  if (job.precision() == "fp16") execution.precision = Precision::kFloat16;
  DeviceWish wish;
  Override(job.device(), &wish.device);
  Override(options_.device, &wish.device);
  // Parameter servers send values and rows to the memory of the host.
  if (job.num_ps_pods() > 0 && wish.device == "auto") wish.device = "cpu";
  if (job.num_ps_pods() > 0 && wish.device != "cpu") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=", wish.device,
        " does not work with parameter servers yet; use --device=cpu"));
  }
  wish.sharing = job.gpu_sharing();
  wish.lock_dir = options_.gpu_lock_dir;
  for (const std::string& variable : options_.environment) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, "CUDA_VISIBLE_DEVICES=")) {
      wish.visible = std::string(value);
    }
    // Each step has GPUs of its own and may see them under the same names.
    if (absl::StartsWith(value, "SLURM_STEP_GPUS=")) wish.sharing = true;
  }
  wish.patience = kGpuPatience;
  ELASTICDL_ASSIGN_OR_RETURN(lease_, TakeDevice(wish));
  execution.device = lease_.device;
  if (!lease_.why_cpu.empty()) {
    LogInfo("computing on the CPU: ", lease_.why_cpu);
  }
  if (job.precision() == "fp16" && execution.device.is_cpu()) {
    return absl::FailedPreconditionError(
        "--precision=fp16 is for GPUs, and this worker computes on the CPU; "
        "use --precision=bf16, or --device=cuda to see why there is no GPU");
  }
  if (!execution.device.is_cpu()) {
    LogInfo("computing on ", execution.device.str());
    ELASTICDL_RETURN_IF_ERROR(UseDevice(execution.device));
  }
  return execution;
}

absl::Status WorkerImpl::AddNccl(const v1::JobSpec& job,
                                 const Execution& execution,
                                 collective::BackendOptions& backend) {
  const bool wanted = job.collective() == "nccl";
  if (execution.device.is_cpu()) {
    if (!wanted || !Trains(job)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "--collective=nccl: this worker has no GPU; use --collective=auto");
  }
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number, -1 included.
  backend.cuda_device = execution.device.index();
  if (!Trains(job) || (!wanted && job.collective() != "auto")) {
    return absl::OkStatus();
  }
  collective::NcclOptions nccl;
  nccl.plugin = options_.nccl_plugin;
  nccl.device = backend.cuda_device;
  auto opened = collective::OpenNccl(nccl);
  if (opened.ok()) {
    LogInfo(collective::Describe(**opened));
    backend.nccl = *std::move(opened);
    return absl::OkStatus();
  }
  if (wanted) return opened.status();
  LogWarning(opened.status().message(),
             "; gradients go through the memory of the host");
  return absl::OkStatus();
}

int WorkerImpl::Run() {
  const absl::StatusOr<v1::Welcome> welcome =
      master_.Attach(options_.worker_id);
  if (!welcome.ok()) {
    LogError(welcome.status().message());
    if (absl::IsFailedPrecondition(welcome.status())) return 0;
    return absl::IsUnimplemented(welcome.status()) ? kExitFailed
                                                   : kExitMasterLost;
  }
  if (options_.named) options_.named(welcome->worker_id());
  LogInfo("worker ", welcome->worker_id(), " of job ",
          welcome->job().job_name());
  const absl::Status armed =
      InitFailpoints(welcome->job().failpoints(), welcome->worker_id());
  if (!armed.ok()) return ReportSetUpFailure(armed);
  const int threads = options_.num_threads > 0 ? options_.num_threads
                                               : welcome->job().num_threads();
  if (threads > 0) torch::set_num_threads(threads);
  const int code = RunJob(*welcome);
  master_.End(kCloseTimeout);
  return code;
}

int WorkerImpl::RunJob(const v1::Welcome& welcome) {
  SetLogJob(welcome.job().job_name());
  // Before anything that takes long: MPI_Init waits for all ranks.
  auto link = LinkOptions(welcome.job());
  if (!link.ok()) {
    // It is about how this worker was started: others may train.
    LogError(link.status().message());
    return kExitFailed;
  }
  const auto execution = MakeExecution(welcome.job());
  if (!execution.ok()) {
    LogError(execution.status().message());
    return kExitFailed;
  }
  const absl::Status nccl = AddNccl(welcome.job(), *execution, link->backend);
  if (!nccl.ok()) {
    LogError(nccl.message());
    return kExitFailed;
  }
  absl::StatusOr<model::LoadOptions> load =
      MakeLoadOptions(options_, welcome.job().model());
  if (!load.ok()) return ReportSetUpFailure(load.status());
  absl::StatusOr<std::unique_ptr<model::Model>> model = model::Load(*load);
  if (!model.ok()) return ReportModelFailure(model.status());
  const SendFunction send = [this](v1::WorkerMessage message) {
    master_.Send(std::move(message));
  };
  auto runner = JobRunner::Create(
      welcome, JobRunner::Deps{**model, events_, send, *link,
                               Environment::Real(), *execution});
  if (IsDeviceFailure(runner.status()) ||
      IsOutOfDeviceMemory(runner.status())) {
    // Others may have better GPUs.
    LogError(runner.status().message());
    return EndWithDevice();
  }
  if (!runner.ok()) return ReportSetUpFailure(runner.status());
  Thread receiver("receiver", [&] { ReceiveMessages(welcome, **runner); });
  const int code = (*runner)->Run();
  if (code == kExitDevice) return EndWithDevice();
  master_.End(kCloseTimeout);
  receiver.Join();
  return code;
}

int WorkerImpl::ReportSetUpFailure(const absl::Status& status) {
  LogError(status.message());
  v1::WorkerMessage message;
  if (events_.asked_to_leave()) {
    message.mutable_leaving()->set_reason("SIGTERM");
    master_.Send(std::move(message));
    return 0;
  }
  message.mutable_fatal()->set_message(std::string(status.message()));
  master_.Send(std::move(message));
  // Wait for Stop, so that the message is known to have arrived.
  while (auto answer = master_.Receive(kCloseTimeout)) {
    if (answer->has_stop()) break;
  }
  return kExitFailed;
}

int WorkerImpl::EndWithDevice() {
  int code = kExitDevice;
  if (events_.asked_to_leave()) {
    // It goes anyway, perhaps together with its GPU.
    v1::WorkerMessage message;
    message.mutable_leaving()->set_reason("SIGTERM");
    master_.Send(std::move(message));
    master_.End(kCloseTimeout);
    code = 0;
  }
  // What the other members wait for ends with the process.
  options_.end_at_once(code);
  return code;
}

int WorkerImpl::ReportModelFailure(const absl::Status& status) {
  if (options_.model_zoo.empty() && options_.model_def.empty() &&
      options_.model_params.empty()) {
    return ReportSetUpFailure(status);
  }
  // A slip on this worker's command line: the others train on.
  LogError("this worker's own --model_zoo, --model_def or --model_params: ",
           status.message());
  return kExitFailed;
}

void WorkerImpl::ReceiveMessages(const v1::Welcome& welcome,
                                 JobRunner& runner) {
  BeSwift();
  const absl::Duration patience =
      absl::Seconds(welcome.job().master_timeout_seconds());
  while (true) {
    while (auto message = master_.Receive(absl::InfiniteDuration())) {
      runner.Receive(*std::move(message));
    }
    const absl::Status end = master_.status();
    // Only a master that died may come back.
    if (!absl::IsUnavailable(end) || patience <= absl::ZeroDuration()) break;
    LogWarning("lost the master (", end.message(), "); waiting up to ",
               absl::FormatDuration(patience), " for the next");
    const absl::Status back = master_.Reattach(welcome.worker_id(), patience);
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

void AvoidAmx() {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0);
}

absl::StatusOr<std::string> CompileModel(const WorkerOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const model::LoadOptions load,
                             MakeLoadOptions(options, v1::ModelSpec()));
  return model::Compile(load);
}

}  // namespace elasticdl::worker
