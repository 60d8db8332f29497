#include "elasticdl/experiment/job_view.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "event_line.h"

namespace elasticdl::experiment {

void JobView::OnLine(absl::string_view line) {
  const EventLine event(line);
  const double time = event.Number("time");
  if (time > 0) last_event_at_ = time;
  const auto id = static_cast<int64_t>(event.Number("id", -1));
  if (event.Is("pod_started")) {
    auto& pods = event.Text("type") == "ps" ? servers_ : workers_;
    pods[id] = {event.Text("pod"), static_cast<pid_t>(event.Number("pid"))};
  } else if (event.Is("pod_ended")) {
    // A server's id is that of a worker, too.
    auto& pods =
        absl::StrContains(event.Text("pod"), "-ps-") ? servers_ : workers_;
    pods.erase(id);
  } else if (event.Is("world")) {
    members_ = event.Integers("members");
  } else if (event.Is("scaled")) {
    target_ = static_cast<int64_t>(event.Number("to"));
  } else if (event.Is("first_step") || event.Is("progress")) {
    step_ = static_cast<int64_t>(event.Number("step"));
    if (step_ > 0 && first_step_at_ == 0) first_step_at_ = time;
    const auto members = event.Is("progress")
                             ? static_cast<int64_t>(event.Number("workers"))
                             : num_members();
    if (step_ > 0 && !started() && members >= wanted_) started_at_ = time;
  }
}

void JobView::OnProcessEnded(pid_t pid) {
  for (auto* pods : {&workers_, &servers_}) {
    for (auto it = pods->begin(); it != pods->end();) {
      it = it->second.pid == pid ? pods->erase(it) : std::next(it);
    }
  }
}

void JobView::OnPodEnded(const std::string& name) {
  for (auto* pods : {&workers_, &servers_}) {
    for (auto it = pods->begin(); it != pods->end();) {
      it = it->second.name == name ? pods->erase(it) : std::next(it);
    }
  }
}

std::vector<JobPod> JobView::Workers() const {
  std::vector<JobPod> pods;
  for (const int64_t member : members_) {
    const auto it = workers_.find(member);
    if (it != workers_.end()) pods.push_back(it->second);
  }
  if (!pods.empty() || !members_.empty()) return pods;
  // With parameter servers there is no world.
  for (const auto& [id, pod] : workers_) pods.push_back(pod);
  return pods;
}

std::vector<JobPod> JobView::Servers() const {
  std::vector<JobPod> pods;
  for (const auto& [id, pod] : servers_) pods.push_back(pod);
  return pods;
}

TraceDriver::TraceDriver(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    (action.step >= 0 ? stepped_ : timed_).push_back(action);
  }
}

std::vector<Delivery> TraceDriver::Due(double now, const JobView& view) {
  std::vector<Delivery> due;
  for (auto it = stopped_.begin(); it != stopped_.end();) {
    if (it->at > now) {
      ++it;
      continue;
    }
    due.push_back({ActionKind::kStop, SIGCONT, it->pods, 0});
    it = stopped_.erase(it);
  }
  if (!view.started()) return due;
  while (next_stepped_ < stepped_.size() &&
         stepped_[next_stepped_].step <= view.step() &&
         Deliver(stepped_[next_stepped_], now, view, &due)) {
    ++next_stepped_;
  }
  while (next_timed_ < timed_.size() &&
         view.started_at() + timed_[next_timed_].at <= now &&
         Deliver(timed_[next_timed_], now, view, &due)) {
    ++next_timed_;
  }
  return due;
}

double TraceDriver::NextTime(const JobView& view) const {
  double next = std::numeric_limits<double>::infinity();
  for (const Wakeup& one : stopped_) next = std::min(next, one.at);
  if (view.started() && next_timed_ < timed_.size()) {
    next = std::min(next, view.started_at() + timed_[next_timed_].at);
  }
  return next;
}

bool TraceDriver::Deliver(const Action& action, double now, const JobView& view,
                          std::vector<Delivery>* out) {
  Delivery delivery;
  delivery.kind = action.kind;
  switch (action.kind) {
    case ActionKind::kJoin:
      delivery.target = view.target_workers() + action.count;
      break;
    case ActionKind::kLeave:
      delivery.target =
          std::max<int64_t>(1, view.target_workers() - action.count);
      break;
    case ActionKind::kWorkers:
    case ActionKind::kServers:
      delivery.target = action.count;
      break;
    case ActionKind::kKill:
    case ActionKind::kKillServer:
      delivery.signal = SIGKILL;
      break;
    case ActionKind::kPreempt:
      delivery.signal = SIGTERM;
      break;
    case ActionKind::kStop:
      delivery.signal = SIGSTOP;
      break;
  }
  if (delivery.signal != 0) {
    const std::vector<JobPod> all = action.kind == ActionKind::kKillServer
                                        ? view.Servers()
                                        : view.Workers();
    // Everybody is on the way back from the last one: try again later.
    if (all.empty()) return false;
    const auto first =
        static_cast<size_t>(action.pick * static_cast<double>(all.size()));
    const size_t count =
        std::min(all.size(), static_cast<size_t>(action.count));
    for (size_t i = 0; i < count; ++i) {
      delivery.pods.push_back(all[(first + i) % all.size()]);
    }
    if (action.kind == ActionKind::kStop) {
      stopped_.push_back({now + action.seconds, delivery.pods});
    }
  }
  out->push_back(std::move(delivery));
  return true;
}

}  // namespace elasticdl::experiment
