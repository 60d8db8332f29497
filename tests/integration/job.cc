#include "integration/job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/check.h"

namespace elasticdl::test {
namespace {

std::string EventLogOf(const std::string& dir, const std::string& name) {
  return absl::StrCat(dir, "/", name, ".events");
}
std::string AuditOf(const std::string& dir, const std::string& name) {
  return absl::StrCat(dir, "/", name, ".audit");
}

}  // namespace

std::string Program(const std::string& name) {
  const char* other = getenv("ELASTICDL_BIN_DIR");
  return absl::StrCat(other != nullptr ? other : ELASTICDL_BIN_DIR, "/", name);
}

std::string Zoo() { return ELASTICDL_TEST_ZOO; }

void WriteCsv(const std::string& path, int64_t count, int64_t first_id) {
  std::ofstream file(path);
  file << "id,x,y\n";
  for (int64_t i = 0; i < count; ++i) {
    // Spread over [-1, 1) in an order without pattern; the same every time.
    const double x = static_cast<double>((i * 617 + 41) % 1009) / 504.5 - 1;
    file << first_id + i << "," << x << "," << 3 * x - 1 << "\n";
  }
  ELASTICDL_CHECK(file.good());
}

Job::Job(const ChildProcess::Options& options, std::string name,
         const std::string& dir)
    : name_(std::move(name)),
      dir_(dir),
      event_log_(EventLogOf(dir, name_)),
      audit_(AuditOf(dir, name_)),
      argv_(options.argv),
      process_(options),
      follower_(event_log_),
      history_follower_(event_log_) {}

std::string Job::Flag(const std::string& name) const {
  std::string value;
  for (const std::string& flag : argv_) {
    if (flag.rfind(name + "=", 0) == 0) value = flag.substr(name.size() + 1);
  }
  return value;
}

bool Job::Has(const std::string& flag) const {
  return std::find(argv_.begin(), argv_.end(), flag) != argv_.end();
}

Json Job::WaitForEvent(const std::string& event,
                       const std::function<bool(const Json&)>& wanted) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (const auto line = follower_.Next(deadline - absl::Now())) {
    Json json = Json::parse(*line);
    if (json.at("event") == event && wanted(json)) return json;
  }
  ADD_FAILURE() << "no event " << event << "; " << Output();
  return Json();
}

std::optional<Json> Job::NextEvent(absl::Duration timeout) {
  const std::optional<std::string> line = history_follower_.Next(timeout);
  if (!line.has_value()) return std::nullopt;
  history_.push_back(Json::parse(*line));
  return history_.back();
}

bool Job::WaitUntil(
    const std::string& what,
    const std::function<bool(const std::vector<Json>&)>& condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition(history_)) {
    const bool over =
        !history_.empty() && history_.back().at("event") == "job_end";
    if (over || !NextEvent(deadline - absl::Now()).has_value()) {
      ADD_FAILURE() << (over ? "the job ended before: " : "no ") << what << "; "
                    << Output();
      return false;
    }
  }
  return true;
}

pid_t Job::WaitForWorker(int64_t worker_id) {
  const Json started = WaitForEvent("pod_started", [&](const Json& json) {
    return json.at("type") == "worker" && json.at("id") == worker_id;
  });
  WaitForEvent("worker_ready", [&](const Json& json) {
    return json.at("worker_id") == worker_id;
  });
  return started.is_null() ? 0 : started.at("pid").get<pid_t>();
}

int Job::Wait() {
  const std::optional<int> code = process_.Wait();
  if (!code.has_value()) ADD_FAILURE() << "does not end; " << Output();
  return code.value_or(-1);
}

std::vector<Json> Job::Events(const std::string& event) {
  std::vector<Json> events;
  double time = 0;
  for (const std::string& line : Lines(event_log_)) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("time") ||
        !json.contains("event")) {
      ADD_FAILURE() << "bad line in the event log: " << line;
      continue;
    }
    EXPECT_GE(json.at("time").get<double>(), time) << line;
    time = json.at("time");
    if (event.empty() || json.at("event") == event) events.push_back(json);
  }
  return events;
}

Json Job::End() {
  const std::vector<Json> all = Events();
  if (!all.empty() && all.back().at("event") == "job_end") return all.back();
  ADD_FAILURE() << "job_end is not the last event; " << Output();
  return Json{{"state", ""}, {"reason", ""}, {"exit_code", -1}, {"step", -1}};
}

std::string Job::LogsDir() const {
  return absl::StrCat(dir_, "/state/elasticdl/jobs/", name_, "/logs/");
}

std::string Job::Log(const std::string& pod) {
  return pod == "master" ? Contents(LogsDir() + "master.log")
                         : Contents(absl::StrCat(LogsDir(), "elasticdl-worker-",
                                                 name_, "-", pod, ".log"));
}

std::vector<int64_t> Job::WorkersWithLogs() {
  std::vector<int64_t> ids;
  for (const std::string& file : List(LogsDir())) {
    absl::string_view number = file;
    int64_t id = 0;
    if (absl::ConsumePrefix(&number,
                            absl::StrCat("elasticdl-worker-", name_, "-")) &&
        absl::ConsumeSuffix(&number, ".log") && absl::SimpleAtoi(number, &id)) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string Job::Output() {
  std::string output = absl::StrCat(
      "output of ", name_, ":\n", process_.out(), process_.err(), "events:\n",
      Contents(event_log_), "master's log:\n", Log("master"));
  for (const int64_t id : WorkersWithLogs()) {
    absl::StrAppend(&output, "log of worker ", id, ":\n",
                    Log(absl::StrCat(id)));
  }
  return output;
}

JobTest::JobTest() {
  WriteCsv(train_csv(), kTrainRecords);
  WriteCsv(test_csv(), kTestRecords, /*first_id=*/1000000);
}

void JobTest::TearDown() {
  EXPECT_TRUE(orphanage_.WaitForNobody()) << "processes are left";
}

ChildProcess::Options JobTest::MakeOptions(
    const std::string& name, std::vector<std::string> argv) const {
  ChildProcess::Options options;
  options.argv = std::move(argv);
  options.environment = {absl::StrCat("XDG_STATE_HOME=", Path("state")),
                         absl::StrCat("XDG_CACHE_HOME=", ELASTICDL_TEST_CACHE),
                         "TERM=dumb"};
  options.log = Path(name);
  return options;
}

TestGpus JobTest::Gpus() {
  const char* const preloaded = getenv("LD_PRELOAD");
  return FindGpus(preloaded == nullptr ? "" : preloaded,
                  getenv("ELASTICDL_TEST_GPU") != nullptr, [this] {
                    const auto worker =
                        Run("devices",
                            {Program("elasticdl-worker"), "--show_devices"});
                    worker->Wait();
                    return worker->out() + worker->err();
                  });
}

std::unique_ptr<ChildProcess> JobTest::Run(
    const std::string& name, const std::vector<std::string>& argv) {
  return std::make_unique<ChildProcess>(MakeOptions(name, argv));
}

std::unique_ptr<Job> JobTest::Start(const std::string& command,
                                    const std::string& name,
                                    const Flags& flags) {
  std::vector<std::string> argv = {Program("elasticdl"), command};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return std::make_unique<Job>(MakeOptions(name, argv), name, dir());
}

std::unique_ptr<Job> JobTest::Train(const std::string& name,
                                    const Flags& flags) {
  Flags all = {"--job_name=" + name,
               "--distribution_strategy=Local",
               "--model_zoo=" + Zoo(),
               "--model_def=linear.custom_model",
               "--training_data=" + train_csv(),
               "--minibatch_size=16",
               "--num_minibatches_per_task=2",
               "--num_threads=1",
               "--event_log=" + EventLogOf(dir(), name),
               "--ledger_audit=" + AuditOf(dir(), name)};
  all.insert(all.end(), flags.begin(), flags.end());
  return Start("train", name, all);
}

std::unique_ptr<Job> JobTest::Evaluate(const std::string& name,
                                       const Flags& flags) {
  Flags all = {"--job_name=" + name,
               "--num_workers=1",
               "--model_zoo=" + Zoo(),
               "--model_def=linear.custom_model",
               "--validation_data=" + test_csv(),
               "--minibatch_size=16",
               "--num_minibatches_per_task=2",
               "--num_threads=1",
               "--event_log=" + EventLogOf(dir(), name)};
  all.insert(all.end(), flags.begin(), flags.end());
  return Start("evaluate", name, all);
}

std::unique_ptr<Job> JobTest::Predict(const std::string& name,
                                      const Flags& flags) {
  Flags all = {"--job_name=" + name,
               "--num_workers=1",
               "--model_zoo=" + Zoo(),
               "--model_def=linear.custom_model",
               "--prediction_data=" + test_csv(),
               "--minibatch_size=16",
               "--num_minibatches_per_task=2",
               "--num_threads=1",
               "--event_log=" + EventLogOf(dir(), name)};
  all.insert(all.end(), flags.begin(), flags.end());
  return Start("predict", name, all);
}

testing::AssertionResult JobTest::LedgerIsExact(const std::string& audit,
                                                int64_t epochs,
                                                const Flags& more) {
  Flags flags = {absl::StrCat("--epochs=", epochs),
                 absl::StrCat("--shard=", train_csv(), ":0:", kTrainRecords)};
  flags.insert(flags.end(), more.begin(), more.end());
  return CheckLedger(audit, flags);
}

testing::AssertionResult JobTest::CheckLedger(const std::string& audit,
                                              const Flags& flags) {
  std::vector<std::string> argv = {ELASTICDL_LEDGER_CHECK, audit};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const auto check = Run("ledger_check", argv);
  if (check->Wait() == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << check->out() << check->err() << "the audit:\n"
         << Contents(audit);
}

std::string JobTest::MakeGate() {
  std::string gate = Path("gate");
  ELASTICDL_CHECK(mkdir(gate.c_str(), 0755) == 0);
  ELASTICDL_CHECK(mkfifo((gate + "/gate").c_str(), 0644) == 0);
  return gate;
}

bool JobTest::WaitForGate(const std::string& gate) {
  return WaitForFile(gate + "/reached");
}

void JobTest::OpenGate(const std::string& gate) {
  // Waits for the model, which opens the other end.
  const Fd fd(open((gate + "/gate").c_str(), O_WRONLY | O_CLOEXEC));
  ELASTICDL_CHECK(write(fd.get(), "x", 1) == 1);
}

Flags PsAudits(const std::string& audit) {
  const size_t slash = audit.rfind('/');
  Flags flags;
  for (const std::string& name : List(audit.substr(0, slash))) {
    if (name.rfind(audit.substr(slash + 1) + ".", 0) == 0) {
      flags.push_back("--ps_audit=" + audit.substr(0, slash + 1) + name);
    }
  }
  return flags;
}

std::vector<int64_t> CutBacks(const Job& job) {
  std::vector<int64_t> steps;
  for (const std::string& line : Lines(job.audit())) {
    const Json json = Json::parse(line);
    if (json.contains("cut_back")) steps.push_back(json.at("cut_back"));
  }
  return steps;
}

std::vector<int64_t> Versions(const std::string& checkpoint_dir) {
  std::vector<int64_t> versions;
  for (const std::string& name : List(checkpoint_dir)) {
    absl::string_view number = name;
    int64_t version = 0;
    if (absl::ConsumePrefix(&number, "version-") &&
        absl::SimpleAtoi(number, &version) &&
        FileExists(absl::StrCat(checkpoint_dir, "/", name, "/manifest.json"))) {
      versions.push_back(version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::vector<std::string> List(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Contents(const std::string& path) {
  return ReadFile(path).value_or("");
}

std::vector<std::string> Lines(const std::string& path) {
  return absl::StrSplit(Contents(path), '\n', absl::SkipEmpty());
}

}  // namespace elasticdl::test
