#include "server_calls.h"

#include <utility>

namespace elasticdl::worker {

std::shared_ptr<ServerCalls::Ticket> ServerCalls::Begin(Call call) {
  auto ticket = std::make_shared<Ticket>();
  {
    MutexLock lock(mu_);
    jobs_.push_back({std::move(call), ticket});
  }
  changed_.NotifyAll();
  if (thread_ == nullptr) {
    thread_ = std::make_unique<Thread>("ps calls", [this] { Loop(); });
  }
  return ticket;
}

absl::Status ServerCalls::Wait(const std::shared_ptr<Ticket>& ticket) {
  MutexLock lock(mu_);
  while (!ticket->done) changed_.Wait(mu_);
  return ticket->status;
}

absl::Status ServerCalls::Run(const Call& call) {
  bool idle = false;
  {
    MutexLock lock(mu_);
    idle = jobs_.empty() && !busy_;
  }
  // It stays idle: only this thread could begin another one.
  return idle ? call() : Wait(Begin(call));
}

void ServerCalls::Drain() {
  MutexLock lock(mu_);
  while (busy_ || !jobs_.empty()) changed_.Wait(mu_);
}

std::optional<ServerCalls::Job> ServerCalls::Next() {
  MutexLock lock(mu_);
  while (jobs_.empty() && !stopped_) changed_.Wait(mu_);
  if (jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  busy_ = true;
  return job;
}

void ServerCalls::Loop() {
  while (std::optional<Job> job = Next()) {
    absl::Status status = job->call();
    // What it keeps alive is freed here, not by whoever waits.
    job->call = nullptr;
    {
      MutexLock lock(mu_);
      busy_ = false;
      job->ticket->status = std::move(status);
      job->ticket->done = true;
    }
    changed_.NotifyAll();
  }
}

ServerCalls::~ServerCalls() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace elasticdl::worker
