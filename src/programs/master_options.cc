#include "master_options.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/slurm.h"

namespace elasticdl::programs {
namespace {

absl::StatusOr<v1::JobType> ParseJobType(const std::string& text) {
  if (text == "training_only") return v1::TRAINING_ONLY;
  if (text == "training_with_evaluation") return v1::TRAINING_WITH_EVALUATION;
  if (text == "evaluation_only") return v1::EVALUATION_ONLY;
  if (text == "prediction_only") return v1::PREDICTION_ONLY;
  return absl::InvalidArgumentError(
      absl::StrCat("--job_type: unknown '", text, "'"));
}

v1::JobSpec MakeJobSpec(const flags::JobFlags& flags, v1::JobType type) {
  v1::JobSpec job;
  job.set_job_name(flags.job_name);
  job.set_job_type(type);
  v1::ModelSpec& model = *job.mutable_model();
  model.set_model_zoo(flags.model_zoo);
  model.set_model_def(flags.model_def);
  model.set_model_params(flags.model_params);
  model.set_feed(flags.feed);
  model.set_loss(flags.loss);
  model.set_optimizer(flags.optimizer);
  model.set_eval_metrics_fn(flags.eval_metrics_fn);
  model.set_callbacks(flags.callbacks);
  model.set_custom_data_reader(flags.custom_data_reader);
  model.set_prediction_outputs_processor(flags.prediction_outputs_processor);
  job.set_distribution_strategy(flags.Strategy());
  job.set_minibatch_size(static_cast<int32_t>(flags.minibatch_size));
  job.set_training_data(flags.training_data);
  job.set_validation_data(flags.validation_data);
  job.set_prediction_data(flags.prediction_data);
  job.set_data_reader_params(flags.data_reader_params);
  job.set_evaluation_steps(flags.evaluation_steps);
  job.set_checkpoint_steps(flags.checkpoint_steps);
  job.set_checkpoint_dir(flags.checkpoint_dir);
  job.set_keep_checkpoint_max(static_cast<int32_t>(flags.keep_checkpoint_max));
  job.set_output(flags.output);
  job.set_log_loss_steps(flags.log_loss_steps);
  job.set_max_step(flags.max_step);
  job.set_seed(static_cast<uint64_t>(flags.seed));
  job.set_log_level(flags.log_level);
  job.set_failpoints(flags.failpoints);
  job.set_prediction_output_dir(flags.prediction_output_dir);
  job.set_collective(flags.collective);
  job.set_grad_compression(flags.grad_compression);
  job.set_global_batch_size(flags.global_batch_size);
  job.set_accumulation_steps(static_cast<int32_t>(flags.accumulation_steps));
  job.set_device(flags.device);
  job.set_gpu_sharing(flags.gpu_sharing);
  job.set_precision(flags.precision);
  job.set_memory_format(flags.memory_format);
  job.set_step_timeout_seconds(flags.step_timeout);
  job.set_load_timeout_seconds(flags.load_timeout);
  constexpr double kMegabyte = 1e6;
  job.set_background_join_bytes(
      static_cast<int64_t>(std::ceil(flags.background_join_mb * kMegabyte)));
  job.set_join_bandwidth(flags.join_bandwidth_mb * kMegabyte);
  job.set_master_timeout_seconds(flags.master_timeout);
  job.set_keep_state(flags.keep_state);
  if (flags.HasServers()) {
    job.set_num_ps_pods(static_cast<int32_t>(flags.num_ps_pods));
    job.set_use_async(flags.use_async);
    job.set_ps_no_overlap(!flags.ps_overlap);
    job.set_grads_to_wait(static_cast<int32_t>(flags.grads_to_wait));
    job.set_sync_version_tolerance(
        static_cast<int32_t>(flags.sync_version_tolerance));
    job.set_get_model_steps(static_cast<int32_t>(flags.get_model_steps));
    job.set_lr_staleness_modulation(flags.lr_staleness_modulation);
    job.set_embedding_max_rows(flags.embedding_max_rows);
    job.set_embedding_eviction(flags.embedding_eviction);
    job.set_embedding_min_count(
        static_cast<int32_t>(flags.embedding_min_count));
    job.set_embedding_dtype(flags.embedding_dtype);
    // Its text was checked with the flags.
    job.set_embedding_layer_limit(
        flags::ParseMemorySize(flags.embedding_layer_limit).value_or(0));
    job.set_ps_backup(flags.ps_backup != 0);
  }
  return job;
}

// Does the model file mention a reader of its own? A file that cannot be read
// here may (in an image, say).
bool MayReadData(const flags::JobFlags& flags) {
  const std::string path = flags.ModelFile();
  if (path.empty()) return false;
  const auto text = ReadFile(path);
  return !text.ok() || absl::StrContains(*text, flags.custom_data_reader);
}

// Whether the name at the end of `text`, before a '=', is that of a secret.
bool IsSecretName(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  const size_t before = text.find_last_of("=?&, \t\"'{");
  const std::string name = absl::AsciiStrToLower(
      before == text.npos ? text : text.substr(before + 1));
  for (const char* word : {"key", "token", "secret", "password"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

// The user and password of addresses.
void HideUser(std::string& text) {
  for (size_t i = text.find("://"); i != text.npos; i = text.find("://", i)) {
    i += 3;
    const size_t end = std::min(text.find_first_of("/, ", i), text.size());
    const size_t at = text.substr(0, end).rfind('@');
    if (at != text.npos && at >= i) text.replace(i, at - i, "***");
  }
}

// "a=1; api_key=x" -> "a=1; api_key=***", "s3://me:x@host" -> "s3://***@host".
std::string HideSecrets(const std::string& value) {
  std::vector<std::string> parts = absl::StrSplit(value, ';');
  for (std::string& part : parts) {
    HideUser(part);
    for (size_t i = part.find('='); i != part.npos; i = part.find('=', i + 1)) {
      if (!IsSecretName(part.substr(0, i))) continue;
      part.replace(i + 1, part.npos, "***");
      break;
    }
  }
  return absl::StrJoin(parts, ";");
}

}  // namespace

std::optional<master::ClusterOptions> MakeClusterOptions(
    const flags::JobFlags& flags) {
  if (flags.pod_backend != "kubernetes") return std::nullopt;
  master::ClusterOptions cluster;
  cluster.namespace_name = flags.name_space;
  cluster.pod_name = flags::GetEnv("POD_NAME");
  cluster.pod_ip = flags::GetEnv("MY_POD_IP");
  cluster.pod_template_dir = flags.pod_template_dir;
  cluster.kubeconfig = flags::GetEnv("KUBECONFIG");
  cluster.home = flags::GetEnv("HOME");
  cluster.service_host = flags::GetEnv("KUBERNETES_SERVICE_HOST");
  cluster.service_port = flags::GetEnv("KUBERNETES_SERVICE_PORT");
  cluster.force_kubeconfig = flags.force_use_kube_config_file;
  return cluster;
}

absl::StatusOr<std::optional<master::SlurmOptions>> MakeSlurmOptions(
    const flags::JobFlags& flags) {
  if (flags.pod_backend != "slurm") return std::nullopt;
  auto allocation = flags::FindSlurmAllocation();
  if (!allocation.has_value()) {
    return absl::FailedPreconditionError(
        "--pod_backend=slurm: SLURM_JOB_ID is not set; start this in an "
        "allocation (salloc, sbatch)");
  }
  flags::AskSlurm(*allocation);
  utsname name = {};
  uname(&name);
  master::SlurmOptions slurm;
  slurm.job_id = allocation->job_id;
  slurm.cpus_per_task = allocation->StepCpus();
  slurm.gpus = allocation->gpus > 0;
  slurm.in_step = allocation->in_step;
  // The only node, and this process is on it (with salloc it need not be).
  const std::string host = name.nodename;
  const bool here = allocation->only_node == host ||
                    allocation->only_node == host.substr(0, host.find('.'));
  slurm.host = here ? "127.0.0.1" : host;
  return slurm;
}

absl::StatusOr<master::MasterOptions> MakeMasterOptions(
    const flags::JobFlags& flags, const std::string& executable,
    std::vector<std::string> environment) {
  master::MasterOptions options;
  ELASTICDL_ASSIGN_OR_RETURN(const v1::JobType type,
                             ParseJobType(flags.JobType()));
  if (flags.RunsJobCommand()) options.job_command = flags.job_command;
  options.job = MakeJobSpec(flags, type);
  const bool training =
      type == v1::TRAINING_ONLY || type == v1::TRAINING_WITH_EVALUATION;
  const bool local = flags.Strategy() == "Local";
  options.num_workers =
      training && local && !flags.RunsJobCommand() ? 1 : flags.num_workers;
  options.min_workers = std::max<int64_t>(1, flags.min_workers);
  options.max_workers = flags.max_workers;
  if (training && !flags.RunsJobCommand() && options.max_workers == 0) {
    options.max_workers = kMaxWorldSize;
  }
  options.worker_timeout = absl::Seconds(flags.worker_timeout);
  options.worker_start_timeout = absl::Seconds(flags.worker_start_timeout);
  const auto cores =
      static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  ELASTICDL_ASSIGN_OR_RETURN(options.slurm, MakeSlurmOptions(flags));
  options.keep_journal = options.slurm.has_value();
  const int64_t share = options.slurm.has_value() ? options.slurm->cpus_per_task
                                                  : cores / options.num_workers;
  options.job.set_num_threads(static_cast<int32_t>(
      flags.num_threads > 0 ? flags.num_threads : std::max<int64_t>(1, share)));
  options.num_minibatches_per_task = flags.num_minibatches_per_task;
  options.num_epochs = static_cast<int32_t>(flags.num_epochs);
  options.shuffle = flags.shuffle;
  options.seed = static_cast<uint64_t>(flags.seed);
  options.model_may_read_data = MayReadData(flags);
  options.final_evaluation = !flags.validation_data.empty();
  options.task_max_failures = static_cast<int>(flags.task_max_failures);
  options.task_timeout = flags.relaunch_timeout_worker
                             ? absl::Seconds(flags.task_timeout_secs)
                             : absl::InfiniteDuration();
  options.evaluation_start_delay =
      absl::Seconds(flags.evaluation_start_delay_secs);
  options.evaluation_throttle = absl::Seconds(flags.evaluation_throttle_secs);
  options.checkpoint_dir_for_init = flags.checkpoint_dir_for_init;
  options.start_pods = flags.pod_backend != "none";
  options.cluster = MakeClusterOptions(flags);
  options.http_port = static_cast<int>(flags.http_port);
  options.relaunch_on_worker_failure = flags.relaunch_on_worker_failure;
  ELASTICDL_ASSIGN_OR_RETURN(const flags::AuxParams aux,
                             flags::ParseAuxParams(flags.aux_params));
  options.relaunch = !aux.disable_relaunch;
  options.worker_pod_priority = flags.worker_pod_priority;
  const std::string bin =
      std::filesystem::path(executable).parent_path().string();
  const std::string log_level = absl::StrCat("--log_level=", flags.log_level);
  const std::string log_format =
      absl::StrCat("--log_format=", flags.log_format);
  options.worker_argv = {JoinPath(bin, "elasticdl-worker"), log_level,
                         log_format};
  options.num_ps_pods = options.job.num_ps_pods();
  options.ps_pod_priority = flags.ps_pod_priority;
  options.ps_argv = {JoinPath(bin, "elasticdl-ps"), log_level, log_format,
                     "--port=0"};
  // Processes of this machine, for workers of this machine.
  if (!options.slurm.has_value()) {
    options.ps_argv.push_back("--worker_address=127.0.0.1");
  }
  if (!flags.ps_memory_limit.empty()) {
    options.ps_argv.push_back("--ps_memory_limit=" + flags.ps_memory_limit);
  }
  if (!flags.ps_audit.empty()) {
    options.ps_argv.push_back("--ps_audit=" + flags.ps_audit);
  }
  if (flags.ps_snapshot_bytes > 0) {
    options.ps_argv.push_back(
        absl::StrCat("--ps_snapshot_bytes=", flags.ps_snapshot_bytes));
  }
  options.environment = std::move(environment);
  options.port = static_cast<int>(flags.port);
  options.display = flags.display;
  // Where log and display are one stream, lines for programs must not be mixed
  // with lines for people.
  if (flags.log_format == "json" &&
      (options.cluster.has_value() || flags.display == "none")) {
    options.display = "log";
  }
  options.event_log = flags.event_log;
  options.ledger_audit = flags.ledger_audit;
  options.tensorboard_log_dir = flags.tensorboard_log_dir;
  options.job.set_tensorboard_histograms(flags.tensorboard_histograms);
  options.model_summary = flags.model_summary;
  options.timeline = flags.timeline;
  options.job.set_timeline(!flags.timeline.empty());
  return options;
}

std::vector<std::string> ShownFlags(const flags::FlagSet& set) {
  std::vector<std::string> shown = set.ToArgs();
  for (std::string& flag : shown) {
    if (absl::StartsWith(flag, "--envs=")) flag = "--envs=(not shown)";
    const size_t value = flag.find('=') + 1;  // 0: it has none
    if (value > 0)
      flag.replace(value, flag.npos, HideSecrets(flag.substr(value)));
  }
  return shown;
}

}  // namespace elasticdl::programs
