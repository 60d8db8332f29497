// Flags of the programs that a job consists of, which no user's command has.
#include "elasticdl/common/limits.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr char kProgram[] = "This program";

}  // namespace

void AddProgramFlags(JobCommand command, JobFlags* f, FlagSet* set) {
  if (IsMaster(command) || command == JobCommand::kPs) {
    set->Add("port", &f->port,
             Info(kProgram, "Port to listen on; 0 = any free one.")
                 .Min(0)
                 .Max(65535));
  }
  if (IsMaster(command)) {
    set->Add("pod_backend", &f->pod_backend,
             Info(kProgram,
                  "Who starts the workers; none: they are started by hand.")
                 .Value("NAME")
                 .Choices({"local", "kubernetes", "slurm", "none"}));
    set->Add("http_port", &f->http_port,
             Info(kProgram, "Port of the status page; 0 = any free one.")
                 .Hidden()
                 .Min(0)
                 .Max(65535));
    set->Add("pod_template_dir", &f->pod_template_dir,
             Info(kProgram,
                  "Folder with worker-pod.json and ps-pod.json, the pods that "
                  "--pod_backend=kubernetes makes.")
                 .Hidden()
                 .Value("DIR"));
    return;
  }
  set->Add("master_addr", &f->master_addr,
           Info(kProgram, "The master's address (or env MASTER_ADDR).")
               .Value("HOST:PORT")
               .Grammar(ParseAddress));
  if (IsWorker(command)) {
    set->Add("worker_id", &f->worker_id,
             Info(kProgram,
                  "This worker's number (or env WORKER_ID); -1 = the master "
                  "chooses.")
                 .Min(-1)
                 .Max(kMaxInt));
    set->Add("worker_address", &f->worker_address,
             Info(kProgram,
                  "Where workers on other hosts reach this one (or env "
                  "ELASTICDL_WORKER_ADDRESS).")
                 .Value("HOST"));
    set->Add("ps_addrs", &f->ps_addrs,
             Info(kProgram, "The parameter servers, in order of their ids.")
                 .Value("A,B,...")
                 .Grammar(ParseAddresses));
    set->Add("job_type", &f->job_type,
             Info(kProgram, "Default: what the master says.")
                 .Value("TYPE")
                 .Choices({"", "training_only", "evaluation_only",
                           "prediction_only", "training_with_evaluation"}));
    set->Add("show_devices", &f->show_devices,
             Info(kProgram,
                  "Print the GPUs, libtorch and NCCL that this worker finds, "
                  "as JSON lines, and end."));
    set->Add("compile_only", &f->compile_only,
             Info(kProgram, "Compile the model into the cache and end."));
  } else {
    set->Add("ps_id", &f->ps_id,
             Info(kProgram, "This server's number, from 0.")
                 .Min(0)
                 .Max(kMaxParameterServers - 1));
    set->Add("worker_address", &f->worker_address,
             Info(kProgram,
                  "Where workers reach this server (or env "
                  "ELASTICDL_WORKER_ADDRESS).")
                 .Value("HOST"));
    set->Add(
        "opt_type", &f->opt_type,
        Info(kProgram, "Optimizer: SGD, Adam, Adagrad, ...").Value("NAME"));
    set->Add("opt_args", &f->opt_args,
             Info(kProgram, "learning_rate=0.1;momentum=0.9;nesterov=false;")
                 .Value("PARAMS")
                 .Check(CheckReaderParams));
  }
}

}  // namespace elasticdl::flags
