// Flags of parameter servers and of the tables on them.
#include "elasticdl/common/limits.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr char kPs[] = "Parameter server";

void AddEmbeddings(JobFlags* f, FlagSet* set) {
  set->Add(
      "embedding_max_rows", &f->embedding_max_rows,
      Info(kPs,
           "About how many rows a table may have; others are evicted. 0 = any "
           "number.")
          .Min(0));
  set->Add(
      "embedding_eviction", &f->embedding_eviction,
      Info(kPs,
           "Which rows are evicted first: those not pushed for the longest "
           "time, or those with the fewest pushes.")
          .Value("NAME")
          .Choices({"age", "frequency"}));
  set->Add("embedding_min_count", &f->embedding_min_count,
           Info(kPs, "An id gets a row with its Nth push.").Min(1).Max(255));
  set->Add("embedding_layer_limit", &f->embedding_layer_limit,
           Info(kPs,
                "Embedding layers of torch above this size live on servers. "
                "0 = none does.")
               .Value("SIZE")
               .Grammar(ParseMemorySize));
  set->Add("embedding_dtype", &f->embedding_dtype,
           Info(kPs, "Type of the rows' values on servers.")
               .Value("NAME")
               .Choices({"float32", "bfloat16", "float16"}));
}

}  // namespace

void AddPsFlags(JobCommand command, JobFlags* f, FlagSet* set) {
  set->Add("num_ps_pods", &f->num_ps_pods,
           Info(kPs, "Number of parameter servers.")
               .Min(0)
               .Max(kMaxParameterServers)
               .Old({"num_ps"}));
  set->Add("get_model_steps", &f->get_model_steps,
           Info(kPs, "A worker pulls the model every N steps (async only).")
               .Min(1)
               .Max(kMaxInt)
               .Old({"get_model_frequency"}));
  if (!HasTraining(command)) return;
  set->Add("use_async", &f->use_async,
           Info(kPs, "Apply each worker's gradients as they come."));
  set->Add("grads_to_wait", &f->grads_to_wait,
           Info(kPs, "Gradients that make one synchronous update.")
               .Min(1)
               .Max(kMaxInt));
  set->Add("sync_version_tolerance", &f->sync_version_tolerance,
           Info(kPs, "How many versions old a synchronous gradient may be.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("lr_staleness_modulation", &f->lr_staleness_modulation,
           Info(kPs, "Divide the learning rate by a gradient's age (async)."));
  set->Add("ps_overlap", &f->ps_overlap,
           Info(kPs,
                "Pull and push while the model computes (async): a minibatch "
                "does not see the worker's own last update."));
  if (IsWorker(command)) return;
  if (command != JobCommand::kPs) AddEmbeddings(f, set);
  set->Add("ps_log", &f->ps_log,
           Info(kPs,
                "Folder for the logs from which a restarted server continues. "
                "Default: the job's; on a cluster, its pod's.")
               .Value("DIR"));
  set->Add("ps_memory_limit", &f->ps_memory_limit,
           Info(kPs,
                "Memory of one server for its part of the model, such as 2Gi; "
                "beyond it, the job fails. 0 = no limit. Default: no limit; on "
                "a cluster, 45 % of the server's memory.")
               .Value("SIZE")
               .Grammar(ParseMemorySize));
  set->Add("ps_audit", &f->ps_audit,
           Info(kPs,
                "Server i writes the pushes that it has applied to FILE.i, one "
                "JSON object per line; with --ps_backup=1, its copy of part j "
                "to FILE.j-on-i.")
               .Value("FILE"));
  // So that tests need not write as much as a job of hours.
  set->Add(
      "ps_snapshot_bytes", &f->ps_snapshot_bytes,
      Info(kPs, "A server makes a snapshot when its log has grown by this.")
          .Min(0)
          .Hidden());
  // A server hears it from its master.
  if (command == JobCommand::kPs) return;
  set->Add("ps_backup", &f->ps_backup,
           Info(kPs,
                "Keep a warm copy of each server's part of the model on the "
                "next server, which takes over when the first is lost; 0 or 1. "
                "Needs two servers or more.")
               .Min(0)
               .Max(1));
}

}  // namespace elasticdl::flags
