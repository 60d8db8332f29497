// From YAML to a Plan.
#include "elasticdl/experiment/plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "plan_reader.h"

namespace elasticdl::experiment {
namespace {

// A plan with more runs is a mistake.
constexpr size_t kMaxRuns = 100000;

bool IsName(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
           c == '_' || c == '.';
  });
}

void ReadFlags(const YAML::Node& node, const std::string& what,
               PlanReader& reader, Settings* flags,
               std::map<std::string, int>* lines) {
  if (!reader.Keys(node, what, {})) return;
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    const std::string flag = FlagOfAxis(key);
    if (!IsName(flag)) {
      reader.Fail(entry.first, absl::StrCat("'", key, "' in ", what,
                                            " is not a flag of elasticdl "
                                            "train"));
      return;
    }
    (*flags)[flag] =
        entry.second.IsNull()
            ? ""
            : reader.Text(entry.second, absl::StrCat("'", key, "'"));
    (*lines)[flag] = PlanReader::Line(entry.first);
  }
}

void CheckChoice(const YAML::Node& node, const std::string& axis,
                 PlanReader& reader) {
  std::vector<std::string> known;
  if (axis == "peer") known = {kElasticdl, kTorchrun, kMpirun};
  if (axis == "policy") known = {kElastic, kGang};
  if (known.empty()) return;
  if (std::find(known.begin(), known.end(), node.Scalar()) != known.end()) {
    return;
  }
  std::string text =
      absl::StrCat("unknown ", axis, " '", node.Scalar(), "'; known:");
  for (const std::string& one : known) absl::StrAppend(&text, " ", one);
  reader.Fail(node, text);
}

void ReadMatrix(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!reader.Keys(node, "matrix", {})) return;
  for (const auto& entry : node) {
    Axis axis;
    axis.name = entry.first.Scalar();
    if (!IsName(axis.name) || axis.name == "trace" || axis.name == "repeat") {
      reader.Fail(entry.first,
                  absl::StrCat("'", axis.name, "' cannot vary in a matrix"));
      return;
    }
    plan->lines[axis.name] = PlanReader::Line(entry.first);
    const std::string flag = FlagOfAxis(axis.name);
    if (!flag.empty()) plan->lines[flag] = PlanReader::Line(entry.first);
    for (const YAML::Node& value : reader.List(entry.second, axis.name)) {
      const std::string text = reader.Text(value, axis.name);
      if (!reader.status().ok()) return;
      CheckChoice(value, axis.name, reader);
      if (axis.name == "workers") reader.Integer(value, "workers", 1);
      if (std::find(axis.values.begin(), axis.values.end(), text) !=
          axis.values.end()) {
        reader.Fail(value,
                    absl::StrCat("'", text, "' is there twice in ", axis.name));
      }
      axis.values.push_back(text);
    }
    plan->matrix.push_back(std::move(axis));
  }
}

void ReadEvent(const YAML::Node& node, PlanReader& reader, TraceSpec* trace) {
  std::vector<std::string> known = {"at", "step", "for"};
  for (const char* name : {"kill", "preempt", "stop", "join", "leave",
                           "workers", "kill_server", "servers"}) {
    known.push_back(name);
  }
  if (!reader.Keys(node, "an event", known)) return;
  Action action;
  bool timed = false;
  int kinds = 0;
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    if (key == "at") {
      action.at = reader.Seconds(entry.second, "at");
    } else if (key == "step") {
      action.step = reader.Integer(entry.second, "step", 0);
    } else if (key == "for") {
      action.seconds = reader.Seconds(entry.second, "for");
    } else {
      ++kinds;
      // Keys has checked it.
      action.kind = *ParseActionKind(key);
      action.count = reader.Integer(entry.second, key, 1);
    }
    timed = timed || key == "at" || key == "step";
  }
  if (!timed) reader.Fail(node, "an event needs 'at' or 'step'");
  if (node["at"] && node["step"]) {
    reader.Fail(node, "an event has 'at' or 'step', not both");
  }
  if (kinds != 1) {
    reader.Fail(node,
                "an event needs one action: kill, preempt, stop, join, leave, "
                "workers, kill_server or servers");
  }
  if (action.kind == ActionKind::kStop && action.seconds <= 0) {
    reader.Fail(node, "stop needs a time: for: 3s");
  }
  trace->actions.push_back(action);
}

// A path in the plan, relative to the plan's folder.
std::string Beside(const std::string& plan, const std::string& path) {
  return (std::filesystem::path(plan).parent_path() / path).string();
}

void ReadReplay(const YAML::Node& node, const std::string& file,
                const FileReader& read, PlanReader& reader, TraceSpec* trace) {
  const std::string csv = reader.Text(node["csv"], "csv");
  const double speed =
      node["speed"] ? reader.Number(node["speed"], "speed") : 1;
  if (!(speed > 0)) reader.Fail(node["speed"], "speed must be above 0");
  if (!reader.status().ok()) return;
  const std::string path = Beside(file, csv);
  const absl::StatusOr<std::string> text = read(path);
  if (!text.ok()) {
    reader.Check(node["csv"], text.status());
    return;
  }
  auto actions = ParseTraceCsv(path, *text, speed);
  if (actions.ok()) {
    trace->actions = *std::move(actions);
  } else {
    // It names a line of the other file.
    reader.FailAsIs(actions.status());
  }
}

void AddTrace(const YAML::Node& node, TraceSpec trace, PlanReader& reader,
              Plan* plan) {
  for (const TraceSpec& other : plan->traces) {
    if (other.name != trace.name) continue;
    reader.Fail(node, absl::StrCat("two traces are named ", trace.name));
  }
  plan->traces.push_back(std::move(trace));
}

void ReadRandom(const YAML::Node& node, TraceSpec trace, PlanReader& reader,
                Plan* plan) {
  if (node["shape"]) trace.shape = reader.Number(node["shape"], "shape");
  if (!(trace.shape >= 0.1 && trace.shape <= 100)) {
    reader.Fail(node["shape"], "shape must be between 0.1 and 100");
  }
  if (node["action"]) {
    const auto kind = ParseActionKind(reader.Text(node["action"], "action"));
    reader.Check(node["action"], kind.status());
    if (kind.ok()) trace.kind = *kind;
  }
  const std::vector<YAML::Node> all = reader.List(node["mtbf"], "mtbf");
  const std::string name = trace.name;
  for (const YAML::Node& one : all) {
    trace.mtbf = reader.Seconds(one, "mtbf");
    if (!reader.status().ok()) return;
    if (trace.mtbf <= 0) reader.Fail(one, "mtbf must be above 0");
    if (all.size() > 1) trace.name = absl::StrCat(name, "-", one.Scalar());
    AddTrace(one, trace, reader, plan);
  }
}

void ReadTrace(const YAML::Node& node, const FileReader& read,
               PlanReader& reader, Plan* plan) {
  if (!reader.Keys(
          node, "a trace",
          {"name", "events", "mtbf", "shape", "action", "csv", "speed"})) {
    return;
  }
  TraceSpec trace;
  if (!node["name"]) return reader.Fail(node, "a trace needs a name");
  trace.name = reader.Text(node["name"], "name");
  const int sources =
      (node["events"] ? 1 : 0) + (node["mtbf"] ? 1 : 0) + (node["csv"] ? 1 : 0);
  if (sources > 1) {
    reader.Fail(node, absl::StrCat("trace ", trace.name,
                                   " has more than one of events, mtbf, csv"));
  }
  if (!reader.status().ok()) return;
  if (node["mtbf"]) return ReadRandom(node, std::move(trace), reader, plan);
  if (node["events"]) {
    if (!node["events"].IsSequence()) {
      return reader.Fail(node["events"], "events must be a list");
    }
    for (const YAML::Node& event : node["events"]) {
      ReadEvent(event, reader, &trace);
    }
  }
  if (node["csv"]) ReadReplay(node, plan->file, read, reader, &trace);
  AddTrace(node, std::move(trace), reader, plan);
}

void ReadSharedJob(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!reader.Keys(node, "a job of shared",
                   {"name", "arrives", "workers", "min_workers", "flags"})) {
    return;
  }
  SharedJob job;
  job.name = node["name"] ? reader.Text(node["name"], "name")
                          : absl::StrCat("job", plan->sharing.jobs.size() + 1);
  if (!IsName(job.name))
    reader.Fail(node, "a job's name is letters and digits");
  if (node["arrives"]) job.arrives = reader.Seconds(node["arrives"], "arrives");
  if (!node["workers"]) return reader.Fail(node, "a job needs workers: N");
  job.workers = reader.Integer(node["workers"], "workers", 1);
  if (node["min_workers"]) {
    job.min_workers = reader.Integer(node["min_workers"], "min_workers", 1);
  }
  if (job.min_workers > job.workers) {
    reader.Fail(node, "min_workers is more than workers");
  }
  if (job.workers > plan->sharing.slots) {
    reader.Fail(node, absl::StrCat("job ", job.name, " wants ", job.workers,
                                   " of ", plan->sharing.slots, " slots"));
  }
  if (node["flags"]) {
    ReadFlags(node["flags"], "flags", reader, &job.flags, &plan->lines);
  }
  plan->sharing.jobs.push_back(std::move(job));
}

void ReadService(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!node.IsSequence()) {
    return reader.Fail(node, "service must be a list of {at: …, slots: …}");
  }
  double before = -1;
  for (const YAML::Node& one : node) {
    if (!reader.Keys(one, "a point of service", {"at", "slots"})) return;
    if (!one["at"] || !one["slots"]) {
      return reader.Fail(one, "a point of service needs at and slots");
    }
    LoadPoint point;
    point.at = reader.Seconds(one["at"], "at");
    point.slots = reader.Integer(one["slots"], "slots", 0);
    if (point.at <= before) {
      reader.Fail(one, "points of service must be in order of time");
    }
    if (point.slots >= plan->sharing.slots) {
      reader.Fail(one, "the service would leave no slot for the jobs");
    }
    before = point.at;
    plan->sharing.service.push_back(point);
  }
}

void ReadSharing(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!reader.Keys(node, "shared", {"slots", "jobs", "service"})) return;
  if (!node["slots"]) return reader.Fail(node, "shared needs slots: N");
  plan->sharing.slots = reader.Integer(node["slots"], "slots", 1);
  if (!node["jobs"] || !node["jobs"].IsSequence() || node["jobs"].size() == 0) {
    return reader.Fail(node, "shared needs a list of jobs");
  }
  for (const YAML::Node& job : node["jobs"]) ReadSharedJob(job, reader, plan);
  if (node["service"]) ReadService(node["service"], reader, plan);
}

void ReadTarget(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!reader.Keys(node, "target", {}) || node.size() != 1) {
    return reader.Fail(node, "target must be one metric: value");
  }
  plan->target_metric = node.begin()->first.Scalar();
  plan->target_value = reader.Number(node.begin()->second, "target");
}

void ReadModel(const YAML::Node& node, PlanReader& reader, Plan* plan) {
  if (!reader.Keys(node, "checkpoint_restart", {"save", "restart"})) return;
  if (node["save"]) plan->save = reader.Seconds(node["save"], "save");
  if (node["restart"]) {
    plan->restart = reader.Seconds(node["restart"], "restart");
  }
}

// Rules that concern several parts.
void CheckWhole(const YAML::Node& root, PlanReader& reader, Plan* plan) {
  bool policy = false;
  bool peers = false;
  for (const Axis& axis : plan->matrix) {
    policy = policy || axis.name == "policy";
    peers = peers || axis.name == "peer";
  }
  if (policy && !plan->shared()) {
    reader.Fail(root["matrix"], "policy needs shared: slots and jobs");
  }
  if (plan->shared() && (peers || !plan->traces.empty())) {
    reader.Fail(root["shared"], "shared jobs have no peers and no traces");
  }
  if (plan->shared() && plan->seconds > 0) {
    reader.Fail(root["seconds"], "shared jobs run to their end");
  }
  // One in which nothing happens.
  if (plan->traces.empty()) plan->traces.emplace_back();
  // Their product may be too large for an integer.
  double runs = static_cast<double>(plan->repeats) *
                static_cast<double>(plan->traces.size());
  for (const Axis& axis : plan->matrix) {
    runs *= static_cast<double>(axis.values.size());
  }
  if (runs > kMaxRuns) {
    reader.Fail(root,
                absl::StrCat("the plan has more than ", kMaxRuns, " runs"));
  }
}

void ReadSimple(const YAML::Node& root, PlanReader& reader, Plan* plan) {
  plan->name = std::filesystem::path(plan->file).stem().string();
  if (root["name"]) plan->name = reader.Text(root["name"], "name");
  if (!IsName(plan->name)) {
    reader.Fail(root["name"] ? root["name"] : root,
                absl::StrCat("the name '", plan->name,
                             "' must be letters, digits, '-', '_', '.'"));
  }
  if (root["description"]) {
    plan->description = reader.Text(root["description"], "description");
  }
  if (root["seed"]) {
    plan->seed = static_cast<uint64_t>(reader.Integer(root["seed"], "seed", 0));
  }
  if (root["repeats"]) {
    plan->repeats = reader.Integer(root["repeats"], "repeats", 1);
  }
  if (root["seconds"])
    plan->seconds = reader.Seconds(root["seconds"], "seconds");
  if (root["timeout"])
    plan->timeout = reader.Seconds(root["timeout"], "timeout");
}

void ReadPlan(const YAML::Node& root, const FileReader& read,
              PlanReader& reader, Plan* plan) {
  if (!reader.Keys(root, "a plan",
                   {"name", "description", "seed", "repeats", "seconds",
                    "timeout", "job", "matrix", "traces", "shared", "target",
                    "checkpoint_restart"})) {
    return;
  }
  ReadSimple(root, reader, plan);
  if (!root["job"]) return reader.Fail(root, "a plan needs job: with flags");
  ReadFlags(root["job"], "job", reader, &plan->flags, &plan->lines);
  if (root["matrix"]) ReadMatrix(root["matrix"], reader, plan);
  if (root["traces"]) {
    if (!root["traces"].IsSequence()) {
      return reader.Fail(root["traces"], "traces must be a list");
    }
    for (const YAML::Node& one : root["traces"]) {
      if (reader.status().ok()) ReadTrace(one, read, reader, plan);
    }
  }
  if (root["shared"]) ReadSharing(root["shared"], reader, plan);
  if (root["target"]) ReadTarget(root["target"], reader, plan);
  if (root["checkpoint_restart"]) {
    ReadModel(root["checkpoint_restart"], reader, plan);
  }
  if (reader.status().ok()) CheckWhole(root, reader, plan);
}

}  // namespace

std::string FlagOfAxis(const std::string& axis) {
  static const auto* names = new Settings{{"workers", "num_workers"},
                                          {"batch", "minibatch_size"},
                                          {"strategy", "distribution_strategy"},
                                          {"servers", "num_ps_pods"},
                                          {"threads", "num_threads"},
                                          {"model", "model_def"},
                                          {"peer", ""},
                                          {"policy", ""}};
  const auto it = names->find(axis);
  return it == names->end() ? axis : it->second;
}

absl::StatusOr<Plan> ParsePlan(const std::string& file, const std::string& text,
                               const FileReader& read) {
  PlanReader reader(file);
  Plan plan;
  plan.file = file;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsMap()) {
      ReadPlan(root, read, reader, &plan);
    } else {
      reader.FailAsIs(absl::InvalidArgumentError(
          absl::StrCat(file, ":1: this is not a plan (name: value)")));
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ":", std::max(0, error.mark.line) + 1, ": ", error.msg));
  }
  if (!reader.status().ok()) return reader.status();
  return plan;
}

}  // namespace elasticdl::experiment
