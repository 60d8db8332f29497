// All flags of a job: of `elasticdl train|evaluate|predict` and of the programs
// that run it. docs of each flag: `elasticdl train --help`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/grammar.h"

namespace elasticdl::flags {

// Whose flags.
enum class JobCommand { kTrain, kEvaluate, kPredict, kMaster, kWorker, kPs };

// Where an image of `elasticdl zoo` has the model zoo: --model_zoo of a job
// with an image, unless another folder is given.
inline constexpr char kZooInImage[] = "/model_zoo";

// The group of the help with the flags that act on a Kubernetes cluster.
inline constexpr char kClusterGroup[] = "Cluster (with --image)";

// One field per flag, named like it, holding its default. Empty strings and 0
// mean "not given" where the help says so.
struct JobFlags {
  // Model.
  std::string model_zoo;
  std::string model_def;
  std::string model_params;
  std::string feed = "feed";
  std::string loss = "loss";
  std::string optimizer = "optimizer";
  std::string eval_metrics_fn = "eval_metrics_fn";
  std::string callbacks = "callbacks";
  std::string custom_data_reader = "custom_data_reader";
  std::string prediction_outputs_processor = "PredictionOutputsProcessor";

  // Data.
  std::string training_data;
  std::string validation_data;
  std::string prediction_data;
  std::string data_reader_params;
  int64_t minibatch_size = 64;
  int64_t num_minibatches_per_task = 8;
  bool shuffle = true;
  int64_t seed = 0;

  // Training.
  int64_t num_epochs = 1;
  int64_t max_step = 0;
  int64_t log_loss_steps = 100;
  int64_t global_batch_size = 0;
  int64_t accumulation_steps = 1;
  std::string distribution_strategy;
  std::string collective = "auto";
  std::string grad_compression = "none";
  std::string output;
  std::string prediction_output_dir;

  // Parameter server.
  int64_t num_ps_pods = 0;
  bool use_async = false;
  bool ps_overlap = true;
  int64_t grads_to_wait = 1;
  int64_t get_model_steps = 1;
  int64_t sync_version_tolerance = 0;
  bool lr_staleness_modulation = false;
  // "" = in the job's folder.
  std::string ps_log;
  // "" = a share of the pod's on a cluster, else none.
  std::string ps_memory_limit;
  std::string ps_audit;
  // For tests; 0: the default of servers.
  int64_t ps_snapshot_bytes = 0;
  int64_t embedding_max_rows = 0;
  std::string embedding_eviction = "age";
  int64_t embedding_min_count = 1;
  std::string embedding_dtype = "float32";
  std::string embedding_layer_limit = "2Mi";
  int64_t ps_backup = 0;

  // Evaluation.
  int64_t evaluation_steps = 0;
  int64_t evaluation_start_delay_secs = 100;
  int64_t evaluation_throttle_secs = 0;

  // Checkpoints.
  int64_t checkpoint_steps = 0;
  std::string checkpoint_dir;
  int64_t keep_checkpoint_max = 0;
  std::string checkpoint_dir_for_init;

  // Workers and tasks.
  std::string job_name;
  int64_t num_workers = 2;
  int64_t min_workers = 0;
  int64_t max_workers = 0;
  int64_t num_threads = 0;
  std::string device = "auto";
  bool gpu_sharing = false;
  std::string precision = "fp32";
  std::string memory_format = "contiguous";
  double worker_timeout = 30;
  double step_timeout = 300;
  double load_timeout = 120;
  double background_join_mb = 4;
  bool keep_state = true;
  double join_bandwidth_mb = 0;
  double worker_start_timeout = 120;
  double master_timeout = 0;
  int64_t task_max_failures = 3;
  double task_timeout_secs = 0;
  int64_t relaunch_on_worker_failure = 1;
  bool relaunch_timeout_worker = false;
  bool task_fault_tolerance = true;
  bool need_task_manager = true;
  bool need_pod_manager = true;
  bool need_elasticdl_job_service = false;
  bool need_tf_config = false;
  std::string job_command;
  std::string aux_params;

  // What one sees.
  std::string log_level = "INFO";
  std::string log_format = "text";
  std::string log_file_path;
  std::string event_log;
  std::string ledger_audit;
  std::string tensorboard_log_dir;
  int64_t tensorboard_histograms = 0;
  bool model_summary = false;
  std::string timeline;
  std::string display = "auto";
  bool detach = false;
  // Root of the jobs' state; "" = DefaultStateDir() of environment.h.
  std::string state_dir;
  std::string token_file;
  std::string failpoints;

  // Options of sbatch; whether the flag was given, the FlagSet knows.
  std::string slurm;

  // Cluster.
  std::string image;
  // Build the image at submission (commands/job_image.h).
  std::string docker_image_prefix;
  std::string image_base;
  std::string worker_image;
  std::string name_space = "default";  // --namespace
  std::string master_resource_request = "cpu=0.1,memory=1024Mi";
  std::string master_resource_limit;
  std::string worker_resource_request = "cpu=0.5,memory=4096Mi";
  std::string worker_resource_limit;
  std::string ps_resource_request = "cpu=1,memory=4096Mi";
  std::string ps_resource_limit;
  std::string master_pod_priority;
  std::string worker_pod_priority;
  std::string ps_pod_priority;
  std::string volume;
  std::string image_pull_policy = "Always";
  std::string restart_policy = "Never";
  std::string envs;
  std::string populate_env_names;
  std::string cluster_spec;
  std::string cluster_spec_json;
  std::string yaml;
  bool force_use_kube_config_file = false;
  std::string extra_pypi_index = "https://pypi.org/simple";

  // Programs of a job, started by the pod manager or by hand.
  int64_t port = 50001;
  std::string pod_backend = "none";
  int64_t http_port = 0;
  std::string pod_template_dir;
  int64_t worker_id = -1;
  std::string master_addr = "localhost:50001";
  std::string worker_address;
  std::string ps_addrs;
  std::string job_type;
  bool compile_only = false;
  bool show_devices = false;
  int64_t ps_id = 0;
  std::string opt_type = "unknown";
  std::string opt_args;

  // Flags of old versions that TranslateLegacyFlags turns into the above.
  struct Legacy {
    std::string model_file;
    std::string model_class;
    int64_t records_per_task = 0;
    std::string volume_name;
    std::string mount_path;
    bool custom_training_loop = false;
    std::string master_cpu_request;
    std::string master_cpu_limit;
    std::string master_memory_request;
    std::string master_memory_limit;
    std::string worker_cpu_request;
    std::string worker_cpu_limit;
    std::string worker_memory_request;
    std::string worker_memory_limit;
  } legacy;
  // Values of flags that are accepted and have no effect; `ignored_bool` for
  // those that were booleans.
  std::string ignored;
  bool ignored_bool = false;

  // Runs on a cluster, not on this machine: an image is named or will be built.
  bool OnCluster() const;
  // The strategy in use: what was given, else AllreduceStrategy when there are
  // no parameter servers and ParameterServerStrategy otherwise.
  std::string Strategy() const;
  // training_only, training_with_evaluation, evaluation_only, prediction_only:
  // --job_type, or what the data flags say.
  std::string JobType() const;
  // Workers run --job_command instead of the built-in training loop.
  bool RunsJobCommand() const;
  // It trains with parameter servers.
  bool HasServers() const;
  // The source file that --model_zoo and --model_def name; "" when they name
  // something else (a TorchScript file).
  std::string ModelFile() const;
};

// Adds the flags of `command`, the old ones included. For kPs some defaults of
// `flags` change first to those of the old PS program.
void AddJobFlags(JobCommand command, JobFlags* flags, FlagSet* set);

// After set->Parse: turns old flags that are no mere renames into present ones,
// with a hint each. `set` then passes on (ToArgs) present names only. A job
// with an image gets kZooInImage here, before a model's path is split.
absl::Status TranslateLegacyFlags(JobFlags* flags, FlagSet* set);

// After TranslateLegacyFlags: rules between flags. Corrects what the original
// corrected with a warning (a hint here); else INVALID_ARGUMENT.
absl::Status ValidateJobFlags(JobCommand command, JobFlags* flags,
                              FlagSet* set);

// A hint for a value of --model_params that looks like several pairs with
// commas between them, and one for each key that neither the model file nor its
// neighbours in the folder mention as "key": models ignore what they do not
// ask for, so a misspelt one would go unnoticed (none when there is no file).
void HintModelParams(const JobFlags& flags, FlagSet* set);

// `mnist-functional-api-0725-014259-07` from a --model_def and the time.
std::string DefaultJobName(const std::string& model_def, absl::Time now);
// The same with another end, such as the number of a Slurm job.
std::string DefaultJobName(const std::string& model_def,
                           const std::string& suffix);

// Programs of ElasticDL give each other a job's flags as one argument, checked
// and packed (FlagSet::Pack). In a pod they are plain flags: people read them
// there, and edit them in the file of --yaml.
std::string PackedArgument(const FlagSet& set);

// The same for the master of a local job, with what the client decides: `more`
// holds names and values of the master's flags.
absl::StatusOr<std::string> PackedMasterArgument(const FlagSet& set,
                                                 const KeyValues& more);

// Parse, translate, validate; a job without name and image gets
// DefaultJobName. A PackedArgument is taken as it is. CANCELLED: --help. `set`
// must be empty.
absl::Status CheckJobFlags(JobCommand command,
                           const std::vector<std::string>& args,
                           JobFlags* flags, FlagSet* set);

// The same, with hints and errors on stderr. The exit code when the program
// should end now (0 help, 2 usage), or -1 to go on.
int ParseJobFlags(JobCommand command, const std::vector<std::string>& args,
                  JobFlags* flags, FlagSet* set);

}  // namespace elasticdl::flags
