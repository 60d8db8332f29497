#include "kube_pod_backend.h"

#include <poll.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/kube/watch.h"
#include "kube_pod_callers.h"

namespace elasticdl::master {
namespace {

using kube::Json;

// Push must never wait.
constexpr size_t kUnbounded = std::numeric_limits<size_t>::max();

// The pod may exist although the call failed.
bool OutcomeUnknown(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) ||
         absl::IsCancelled(error) || absl::IsUnknown(error);
}

bool MayPass(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
}

// The API server may be starting too. Nothing needs to interrupt this wait:
// nobody else has the backend yet.
void WaitABit(absl::Duration delay) {
  poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(delay)));
}

absl::StatusOr<Json> ListPods(kube::Client& client, const KubeJob& job,
                              absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  Backoff backoff(Backoff::Options(), std::random_device{}());
  while (true) {
    absl::StatusOr<Json> list =
        client.List(kube::Pods(), cluster::ReplicaSelector(job.name));
    if (list.ok()) return list;
    if (!MayPass(list.status())) return ExplainRefusal(list.status());
    const absl::Duration delay = backoff.Next();
    if (Clock::Real().Now() + delay >= deadline) return list;
    LogWarning("listing the job's pods: ", list.status().message(),
               "; trying again");
    WaitABit(delay);
  }
}

}  // namespace

// Thread-safe.
class KubePodBackend::Loop {
 public:
  Loop(Options options, std::vector<PodEvent> existing, PodEventSink sink);

  absl::Status Create(const PodSpec& spec);
  absl::Status Delete(const std::string& name, absl::Duration grace);
  void Stop();
  const std::vector<PodEvent>& existing() const { return existing_; }

 private:
  // What is known about a pod.
  struct Pod {
    // The last event that was reported, if `told`.
    PodEvent last;
    bool told = false;
    // The server has reported that it exists.
    bool exists = false;
    // Delete was called: its end counts as a deletion, however it looks.
    bool deleted = false;
    bool over() const { return told && IsFinal(last.phase); }
  };
  PodCallers::Options CallerOptions();
  bool Make(const PodCall& call);
  void DoCreate(const PodCall& call);
  absl::Status AfterConflict(const PodCall& call);
  bool DoDelete(const PodCall& call);
  void DoVerify(const PodCall& call);

  void OnWatch(const kube::WatchEvent& event);
  void VerifyUnseen();

  // Reports an event unless it was reported before or the pod has ended.
  void Tell(PodEvent event);
  void TellGone(const std::string& name);
  void Forget(const std::string& name);
  // False when some pods have not ended within stop_timeout.
  bool WaitForEnds();
  bool stopping() {
    MutexLock lock(mu_);
    return stopping_;
  }

  const Options options_;
  kube::Client& client_;
  const std::vector<PodEvent> existing_;
  const PodEventSink sink_;

  // Only the watch's thread uses it: the names of the list that is coming in.
  std::set<std::string> listed_;

  Mutex mu_;
  CondVar changed_;
  std::map<std::string, Pod> pods_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Own synchronisation.
  Queue<PodEvent> events_{kUnbounded};
  Thread dispatcher_;
  Mutex stop_mu_;  // serialises Stop with itself
  bool stopped_ ABSL_GUARDED_BY(stop_mu_) = false;
  std::unique_ptr<PodCallers> callers_;
  std::unique_ptr<kube::Watch> watch_;
};

KubePodBackend::Loop::Loop(Options options, std::vector<PodEvent> existing,
                           PodEventSink sink)
    : options_(std::move(options)),
      client_(*options_.client),
      existing_(std::move(existing)),
      sink_(std::move(sink)) {
  {
    MutexLock lock(mu_);
    for (const PodEvent& event : existing_) {
      Pod& pod = pods_[event.name];
      pod.exists = true;
      // Adopt has been told about pods that have ended: they need no event.
      pod.told = IsFinal(event.phase);
      pod.last = event;
    }
  }
  dispatcher_ = Thread("pods", [this] {
    while (auto event = events_.Pop()) sink_(*event);
  });
  callers_ = std::make_unique<PodCallers>(CallerOptions());
  kube::Watch::Options watch;
  watch.resource = kube::Pods();
  watch.namespace_name = client_.namespace_name();
  watch.selector = cluster::ReplicaSelector(options_.job.name);
  watch_ = std::make_unique<kube::Watch>(
      client_.transport(), watch,
      [this](const kube::WatchEvent& event) { OnWatch(event); });
}

// Calls -----------------------------------------------------------------------

absl::Status KubePodBackend::Loop::Create(const PodSpec& spec) {
  const Json& pod_template = spec.type == PodType::kWorker
                                 ? options_.worker_template
                                 : options_.ps_template;
  PodCall call;
  call.name = spec.name;
  ELASTICDL_ASSIGN_OR_RETURN(call.pod,
                             MakePod(pod_template, spec, options_.job));
  {
    MutexLock lock(mu_);
    if (stopping_) {
      return absl::FailedPreconditionError("the pod backend is stopped");
    }
    const auto [it, is_new] = pods_.try_emplace(spec.name);
    if (!is_new && it->second.exists) {
      return absl::AlreadyExistsError(absl::StrCat("pod ", spec.name));
    }
    it->second = Pod();
  }
  callers_->Push(std::move(call));
  return absl::OkStatus();
}

absl::Status KubePodBackend::Loop::Delete(const std::string& name,
                                          absl::Duration grace) {
  {
    MutexLock lock(mu_);
    if (stopping_) {
      return absl::FailedPreconditionError("the pod backend is stopped");
    }
    const auto it = pods_.find(name);
    if (it == pods_.end() || it->second.over()) {
      return absl::NotFoundError(absl::StrCat("no pod ", name));
    }
    it->second.deleted = true;
  }
  PodCall call;
  call.kind = PodCall::Kind::kDelete;
  call.name = name;
  call.grace = grace;
  callers_->Push(std::move(call));
  return absl::OkStatus();
}

PodCallers::Options KubePodBackend::Loop::CallerOptions() {
  PodCallers::Options callers;
  callers.retry_initial = options_.retry_initial;
  callers.retry_max = options_.retry_max;
  callers.make = [this](const PodCall& call) { return Make(call); };
  return callers;
}

// False: it has to be made again.
bool KubePodBackend::Loop::Make(const PodCall& call) {
  switch (call.kind) {
    case PodCall::Kind::kCreate:
      DoCreate(call);
      return true;
    case PodCall::Kind::kVerify:
      DoVerify(call);
      return true;
    case PodCall::Kind::kDelete:
      return DoDelete(call);
  }
  return true;
}

void KubePodBackend::Loop::DoCreate(const PodCall& call) {
  absl::StatusOr<Json> created = absl::CancelledError("stopping");
  if (!stopping()) created = client_.Create(kube::Pods(), call.pod);
  absl::Status error = created.status();
  if (absl::IsAlreadyExists(error)) error = AfterConflict(call);
  MutexLock lock(mu_);
  const auto found = pods_.find(call.name);
  // The watch has shown it created and deleted.
  if (found == pods_.end()) return;
  Pod& pod = found->second;
  if (error.ok()) {
    pod.exists = true;
    // The watch may have reported it already, with a newer state.
    if (pod.told || !created.ok()) return;
    pod.last = DescribePod(*created);
    pod.told = true;
    events_.Push(pod.last);
    return;
  }
  if (pod.exists) return;  // the watch has seen it
  PodEvent event;
  event.name = call.name;
  event.create_error = ExplainRefusal(error);
  events_.Push(event);
  if (!OutcomeUnknown(error)) pods_.erase(call.name);
  changed_.NotifyAll();
}

// A pod with that name exists: ours, from an attempt whose response was lost,
// or one of an earlier job with this name, which the cluster is deleting.
absl::Status KubePodBackend::Loop::AfterConflict(const PodCall& call) {
  const absl::StatusOr<Json> present = client_.Get(kube::Pods(), call.name);
  if (absl::IsNotFound(present.status())) {
    return absl::UnavailableError("a pod of that name was just deleted");
  }
  ELASTICDL_RETURN_IF_ERROR(present.status());
  if (!cluster::IsReplicaOf(options_.job, *present)) {
    return absl::UnavailableError(absl::StrCat(
        "a pod of that name is there and belongs to somebody else: an earlier "
        "job named ",
        options_.job.name, "?"));
  }
  Tell(DescribePod(*present));
  return absl::OkStatus();
}

// True if there is nothing left to do.
bool KubePodBackend::Loop::DoDelete(const PodCall& call) {
  const absl::Status status =
      client_.Delete(kube::Pods(), call.name, call.grace);
  if (status.ok() || absl::IsCancelled(status)) return true;
  if (absl::IsNotFound(status)) {
    TellGone(call.name);
    return true;
  }
  if (call.backoff == nullptr) {
    LogWarning("deleting pod ", call.name, ": ",
               ExplainRefusal(status).message(), "; trying again");
  }
  return false;
}

void KubePodBackend::Loop::DoVerify(const PodCall& call) {
  const absl::Status status = client_.Get(kube::Pods(), call.name).status();
  // If it is there, the watch will show it.
  if (absl::IsNotFound(status)) TellGone(call.name);
}

// Events ----------------------------------------------------------------------

void KubePodBackend::Loop::OnWatch(const kube::WatchEvent& event) {
  using Kind = kube::WatchEvent::Kind;
  switch (event.kind) {
    case Kind::kListed:
      listed_.insert(kube::TextAt(event.object, "/metadata/name"));
      [[fallthrough]];
    case Kind::kAdded:
    case Kind::kModified:
      if (cluster::IsReplicaOf(options_.job, event.object))
        Tell(DescribePod(event.object));
      break;
    case Kind::kDeleted:
      if (cluster::IsReplicaOf(options_.job, event.object)) {
        Tell(DescribeGonePod(event.object));
        Forget(kube::TextAt(event.object, "/metadata/name"));
      }
      break;
    case Kind::kSynced:
      VerifyUnseen();
      break;
    case Kind::kTrouble:
      LogWarning("the job's pods cannot be watched: ",
                 ExplainRefusal(event.error).message(),
                 "; running pods are not affected");
      break;
    case Kind::kRecovered:
      LogInfo("the job's pods are watched again");
      break;
  }
}

// A pod that was deleted while nobody watched is not in the list. Neither is
// one that was created after the list was made, so the server is asked about
// each.
void KubePodBackend::Loop::VerifyUnseen() {
  const std::set<std::string> listed = std::exchange(listed_, {});
  std::vector<std::string> unseen;
  {
    MutexLock lock(mu_);
    for (const auto& [name, pod] : pods_) {
      if (pod.exists && !pod.over() && listed.count(name) == 0) {
        unseen.push_back(name);
      }
    }
  }
  for (const std::string& name : unseen) {
    PodCall call;
    call.kind = PodCall::Kind::kVerify;
    call.name = name;
    callers_->Push(std::move(call));
  }
}

void KubePodBackend::Loop::Tell(PodEvent event) {
  MutexLock lock(mu_);
  Pod& pod = pods_[event.name];
  pod.exists = true;
  if (pod.over()) return;
  if (pod.deleted && IsFinal(event.phase)) {
    event.phase = PodPhase::kDeleted;
    event.reason = PodEndReason::kDeleted;
  }
  if (pod.told && pod.last == event) return;
  pod.last = event;
  pod.told = true;
  events_.Push(std::move(event));
  changed_.NotifyAll();
}

void KubePodBackend::Loop::TellGone(const std::string& name) {
  PodEvent event;
  {
    MutexLock lock(mu_);
    const auto found = pods_.find(name);
    if (found == pods_.end()) return;  // told before
    event = found->second.last;
  }
  event.name = name;
  event.phase = PodPhase::kDeleted;
  event.reason = PodEndReason::kDeleted;
  event.message.clear();
  Tell(std::move(event));
  Forget(name);
}

// The pod no longer exists and its end was reported. Names are not reused, so
// it can be forgotten; a job that relaunches pods for months would otherwise
// remember them all.
void KubePodBackend::Loop::Forget(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = pods_.find(name);
  if (found != pods_.end() && found->second.over()) pods_.erase(found);
}

// The end ---------------------------------------------------------------------

bool KubePodBackend::Loop::WaitForEnds() {
  const absl::Time deadline = Clock::Real().Now() + options_.stop_timeout;
  MutexLock lock(mu_);
  while (std::any_of(pods_.begin(), pods_.end(),
                     [](const auto& entry) { return !entry.second.over(); })) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return true;
}

void KubePodBackend::Loop::Stop() {
  MutexLock stop_lock(stop_mu_);
  if (std::exchange(stopped_, true)) return;
  std::vector<std::string> alive;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (auto& [name, pod] : pods_) {
      if (pod.over()) continue;
      pod.deleted = true;
      alive.push_back(name);
    }
  }
  for (const std::string& name : alive) {
    PodCall call;
    call.kind = PodCall::Kind::kDelete;
    call.name = name;
    call.grace = options_.stop_grace;
    callers_->Push(std::move(call));
  }
  if (!WaitForEnds()) {
    LogWarning(
        "some pods are still ending; the cluster ends them with their "
        "owner");
  }
  client_.CancelCalls();
  watch_->Stop();
  callers_->CloseAndJoin();
  events_.Close();
  dispatcher_.Join();
}

// The shell -------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<KubePodBackend>> KubePodBackend::Start(
    Options options, PodEventSink sink) {
  ELASTICDL_RETURN_IF_ERROR(
      Annotate(cluster::CheckPodTemplate(options.worker_template), "worker"));
  if (!options.ps_template.is_null()) {
    ELASTICDL_RETURN_IF_ERROR(
        Annotate(cluster::CheckPodTemplate(options.ps_template), "ps"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      const Json list,
      ListPods(*options.client, options.job, options.start_timeout));
  std::vector<PodEvent> existing;
  for (const Json& pod : kube::ListAt(list, "/items")) {
    if (cluster::IsReplicaOf(options.job, pod))
      existing.push_back(DescribePod(pod));
  }
  return std::unique_ptr<KubePodBackend>(
      new KubePodBackend(std::make_unique<Loop>(
          std::move(options), std::move(existing), std::move(sink))));
}

KubePodBackend::KubePodBackend(std::unique_ptr<Loop> loop)
    : loop_(std::move(loop)) {}

KubePodBackend::~KubePodBackend() { Stop(); }

const std::vector<PodEvent>& KubePodBackend::existing() const {
  return loop_->existing();
}

absl::Status KubePodBackend::Create(const PodSpec& spec) {
  return loop_->Create(spec);
}

absl::Status KubePodBackend::Delete(const std::string& name,
                                    absl::Duration grace) {
  return loop_->Delete(name, grace);
}

void KubePodBackend::Stop() { loop_->Stop(); }

}  // namespace elasticdl::master
