#include "elasticdl/ps/client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lane.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/optim.h"
#include "elasticdl/ps/dense_layout.h"

namespace elasticdl::ps {
namespace {

// A server that is alive answers; one that is stopped or cut off is asked again
// over a new connection.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);
// A question aside, which somebody else can answer too.
constexpr absl::Duration kMapTimeout = absl::Seconds(5);
// It reads all of its memory for that.
constexpr absl::Duration kDigestTimeout = absl::Minutes(10);

// The server was away or is another process now; the same request may be made
// again, because every request is idempotent.
bool IsWorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

Client::Client(Options options, BucketMap map)
    : options_(std::move(options)), map_(std::move(map)) {
  for (int server = 0; server < map_.servers(); ++server) {
    lanes_.push_back(std::make_unique<Lane>(options_, server));
  }
}

Client::~Client() = default;

void Client::Cancel() {
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    for (const auto& lane : lanes_) lane->Cancel();
  }
  wake_.NotifyAll();
}

// ---- bucket maps ----

void Client::NoteMap(const v1::PsReply& reply) {
  const v1::PsMap& map = reply.map();
  if (map.version() <= std::max(map_.version(), newer_map_.version())) return;
  auto made = BucketMap::Make(map.version(), map.servers(),
                              {map.owners().begin(), map.owners().end()});
  if (made.ok()) newer_map_ = *std::move(made);
}

bool Client::TakeNewerMap() {
  if (!has_newer_map()) return false;
  map_ = std::move(newer_map_);
  newer_map_ = BucketMap();
  {
    MutexLock lock(mu_);
    // A gradient is for all servers: one that is new gets it as computed on
    // the same version.
    const int64_t version = lanes_[0]->version;
    lanes_.resize(static_cast<size_t>(map_.servers()));
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i] != nullptr) continue;
      lanes_[i] = std::make_unique<Lane>(options_, static_cast<int>(i));
      lanes_[i]->version = version;
      if (cancelled_) lanes_[i]->Cancel();
    }
  }
  SetLayout();
  return true;
}

void Client::SetLayout() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i]->slices = DenseLayout(definition_, map_, static_cast<int>(i));
  }
}

absl::Status Client::WithMap(const std::function<absl::Status()>& attempt) {
  while (true) {
    absl::Status status = attempt();
    if (!absl::IsFailedPrecondition(status) || !TakeNewerMap()) return status;
  }
}

void Client::OnMoved(int server) {
  const auto index = static_cast<size_t>(server);
  {
    MutexLock lock(mu_);
    ++moved_;
    if (index < lanes_.size()) lanes_[index]->Interrupt();
  }
  wake_.NotifyAll();
}

std::vector<Client::Call> Client::MakeCalls() const {
  return std::vector<Call>(lanes_.size());
}

absl::Status Client::Run(std::vector<Call>& calls) {
  return Run(calls, kAnswerTimeout);
}

absl::Status Client::Run(std::vector<Call>& calls,
                         absl::Duration answer_timeout) {
  const Clock& clock = Clock::Real();
  const absl::Time end = clock.Now() + options_.patience;
  Backoff::Options pauses;
  pauses.initial = absl::Milliseconds(5);
  pauses.max = absl::Milliseconds(500);
  Backoff backoff(pauses, static_cast<uint64_t>(absl::ToUnixNanos(end)));
  bool told = false;
  while (true) {
    int64_t moved = 0;
    {
      MutexLock lock(mu_);
      moved = moved_;
    }
    ELASTICDL_RETURN_IF_ERROR(Round(calls, end, answer_timeout));
    size_t away = 0;
    while (away < calls.size() && calls[away].done) ++away;
    if (away == calls.size()) return absl::OkStatus();
    // It may be away for good: the others answered before it was scaled away.
    AskForMap(calls);
    if (has_newer_map()) {
      return absl::FailedPreconditionError("the bucket map is another one");
    }
    const std::string why(calls[away].status.message());
    if (clock.Now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("parameter server ", away, " was away for ",
                       absl::FormatDuration(options_.patience), ": ", why));
    }
    if (!std::exchange(told, true)) {
      LogWarning("parameter server ", away, " is away (", why,
                 "); waiting for it");
    }
    const absl::Time next = std::min(end, clock.Now() + backoff.Next());
    MutexLock lock(mu_);
    // Whoever is elsewhere now can be asked at once.
    while (!cancelled_ && moved == moved_ && clock.Now() < next) {
      wake_.WaitFor(mu_, next - clock.Now());
    }
    if (cancelled_) return absl::CancelledError("cancelled");
  }
}

void Client::AskForMap(const std::vector<Call>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].done) continue;
    Lane& lane = *lanes_[i];
    Call ask;
    ask.request.mutable_status();
    // The answer that came is still to be read.
    std::swap(lane.answer, lane.kept);
    absl::Status asked = lane.Send(ask, kMapTimeout);
    if (asked.ok()) asked = lane.Receive(ask, kMapTimeout);
    std::swap(lane.answer, lane.kept);
    NoteMap(ask.reply);
    if (asked.ok()) return;
  }
}

// Asks all servers that have not answered yet. An error is final; who is away
// has not answered.
absl::Status Client::Round(std::vector<Call>& calls, absl::Time end,
                           absl::Duration answer_timeout) {
  const auto timeout = [&] {
    return std::max(absl::Milliseconds(1),
                    std::min(answer_timeout, end - Clock::Real().Now()));
  };
  // All requests are on their way before the first answer is waited for.
  absl::Status final_error;
  absl::Status another_map;
  std::vector<bool> sent(calls.size(), false);
  for (size_t i = 0; i < calls.size() && final_error.ok(); ++i) {
    if (calls[i].done) continue;
    // Who dies here has reached some of the servers only.
    if (i > 0 && calls[i].request.entry().has_push()) {
      final_error = Failpoint("ps.between_servers");
      if (!final_error.ok()) break;
    }
    calls[i].status = lanes_[i]->Send(calls[i], timeout());
    sent[i] = calls[i].status.ok();
    if (!sent[i] && !IsWorthAnotherTry(calls[i].status)) {
      final_error =
          Annotate(calls[i].status, absl::StrCat("parameter server ", i));
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!sent[i]) continue;
    if (!final_error.ok()) {
      // The next request must not get the answer of this one.
      lanes_[i]->Drop();
      continue;
    }
    calls[i].status = lanes_[i]->Receive(calls[i], timeout());
    calls[i].done = calls[i].status.ok();
    NoteMap(calls[i].reply);
    if (absl::IsFailedPrecondition(calls[i].status) && has_newer_map()) {
      // The other connections are of use when their answers have come.
      another_map = calls[i].status;
    } else if (!calls[i].done && !IsWorthAnotherTry(calls[i].status)) {
      final_error =
          Annotate(calls[i].status, absl::StrCat("parameter server ", i));
    }
  }
  // With the new map, the server that refused may not be asked at all.
  if (!another_map.ok() && !absl::IsCancelled(final_error)) return another_map;
  return final_error;
}

absl::Status Client::Define(const v1::PsDefinition& definition) {
  ELASTICDL_RETURN_IF_ERROR(CountDense(definition).status());
  ELASTICDL_ASSIGN_OR_RETURN(
      const optim::OptimizerSpec spec,
      optim::OptimizerSpec::Parse(definition.optimizer()));
  ELASTICDL_ASSIGN_OR_RETURN(const auto optimizer,
                             optim::Optimizer::Create(spec));
  slots_ = optimizer->slot_names().size();
  definition_ = definition;
  SetLayout();
  return WithMap([this] { return DefineOnce(); });
}

absl::Status Client::DefineOnce() {
  std::vector<Call> calls = MakeCalls();
  for (Call& call : calls) {
    *call.request.mutable_entry()->mutable_definition() = definition_;
  }
  ELASTICDL_RETURN_IF_ERROR(Run(calls));
  if (has_newer_map()) {
    return absl::FailedPreconditionError("the bucket map is another one");
  }
  // All other maps are the master's to tell.
  if (map_.version() != kFirstMapVersion) return absl::OkStatus();
  calls = MakeCalls();
  for (Call& call : calls) {
    v1::PsMap& map = *call.request.mutable_entry()->mutable_map();
    map.set_version(map_.version());
    map.set_servers(map_.servers());
    for (const int owner : map_.owners()) map.add_owners(owner);
  }
  return Run(calls);
}

void Client::Split(uint32_t table, absl::Span<const int64_t> ids,
                   std::vector<std::vector<uint32_t>>& positions) const {
  const uint64_t hash =
      HashName(definition_.tables(static_cast<int>(table)).name());
  positions.assign(lanes_.size(), {});
  for (auto& list : positions) list.reserve(ids.size() / lanes_.size() + 16);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int owner = map_.owner(BucketOf(HashRow(hash, ids[i])));
    positions[static_cast<size_t>(owner)].push_back(static_cast<uint32_t>(i));
  }
}

absl::StatusOr<int64_t> Client::Pull(float* values,
                                     absl::Span<const PullRows> rows) {
  int64_t version = 0;
  ELASTICDL_RETURN_IF_ERROR(WithMap([&]() -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(version, PullOnce(values, rows));
    return absl::OkStatus();
  }));
  return version;
}

absl::StatusOr<int64_t> Client::PullOnce(float* values,
                                         absl::Span<const PullRows> rows) {
  std::vector<Call> calls = MakeCalls();
  // By part, then by server.
  std::vector<std::vector<std::vector<uint32_t>>> positions(rows.size());
  for (size_t p = 0; p < rows.size(); ++p) {
    Split(rows[p].table, rows[p].ids, positions[p]);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    v1::PsPull& pull = *call.request.mutable_pull();
    pull.set_map_version(map_.version());
    pull.set_dense(values != nullptr);
    pull.set_dense_version(lanes_[i]->dense_version);
    pull.set_incarnation(lanes_[i]->incarnation);
    for (size_t p = 0; p < rows.size(); ++p) {
      std::vector<int64_t>& ids = call.ids.emplace_back();
      for (const uint32_t position : positions[p][i]) {
        ids.push_back(rows[p].ids[position]);
      }
      v1::PsTablePart& part = *pull.add_parts();
      part.set_table(rows[p].table);
      part.set_rows(ids.size());
    }
    for (const auto& ids : call.ids) {
      call.payload.push_back(
          {const_cast<int64_t*>(ids.data()), ids.size() * sizeof(int64_t)});
    }
  }
  ELASTICDL_RETURN_IF_ERROR(Run(calls));
  int64_t lowest = -1;
  for (size_t i = 0; i < calls.size(); ++i) {
    Lane& lane = *lanes_[i];
    const v1::PsReply& reply = calls[i].reply;
    size_t expected = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      expected +=
          positions[p][i].size() *
          static_cast<size_t>(
              definition_.tables(static_cast<int>(rows[p].table)).dim());
    }
    if (reply.dense()) {
      for (const DenseSlice& slice : lane.slices) {
        expected += static_cast<size_t>(slice.size);
      }
    }
    if (lane.answer.size() != expected * sizeof(float)) {
      return absl::InternalError(absl::StrCat(
          "parameter server ", i, " answered with ", lane.answer.size(),
          " bytes instead of ", expected * sizeof(float)));
    }
    const auto* from = reinterpret_cast<const float*>(lane.answer.data());
    if (reply.dense()) {
      for (const DenseSlice& slice : lane.slices) {
        std::memcpy(values + slice.offset, from,
                    static_cast<size_t>(slice.size) * sizeof(float));
        from += slice.size;
      }
      lane.dense_version = reply.dense_version();
      lane.incarnation = reply.incarnation();
    }
    for (size_t p = 0; p < rows.size(); ++p) {
      const auto dim = static_cast<size_t>(
          definition_.tables(static_cast<int>(rows[p].table)).dim());
      for (const uint32_t position : positions[p][i]) {
        std::memcpy(rows[p].rows + position * dim, from, dim * sizeof(float));
        from += dim;
      }
    }
    lane.version = reply.version();
    if (lowest < 0 || reply.version() < lowest) lowest = reply.version();
  }
  return std::max<int64_t>(lowest, 0);
}

absl::Status Client::Push(const v1::PsPush& push, const float* gradients,
                          absl::Span<const PushRows> rows,
                          absl::Span<const int64_t> base) {
  return WithMap([&] { return PushOnce(push, gradients, rows, base); });
}

absl::Status Client::PushOnce(const v1::PsPush& push, const float* gradients,
                              absl::Span<const PushRows> rows,
                              absl::Span<const int64_t> base) {
  std::vector<Call> calls = MakeCalls();
  for (size_t i = 0; i < calls.size(); ++i) {
    v1::PsPush& mine = *calls[i].request.mutable_entry()->mutable_push();
    mine = push;
    mine.set_map_version(map_.version());
    // A staged gradient is as old as the oldest of all that it was computed
    // from: what was pulled last may be newer than the rest.
    if (!push.stage()) {
      mine.set_base_version(i < base.size() ? base[i] : lanes_[i]->version);
    }
    mine.set_dense(gradients != nullptr);
  }
  for (const PushRows& part : rows) {
    const auto dim = static_cast<size_t>(
        definition_.tables(static_cast<int>(part.table)).dim());
    std::vector<std::vector<uint32_t>> positions;
    Split(part.table, part.ids, positions);
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<int64_t>& ids = calls[i].ids.emplace_back();
      std::vector<float>& floats = calls[i].floats.emplace_back();
      ids.reserve(positions[i].size());
      floats.resize(positions[i].size() * dim);
      float* to = floats.data();
      for (const uint32_t position : positions[i]) {
        ids.push_back(part.ids[position]);
        std::memcpy(to, part.gradients + position * dim, dim * sizeof(float));
        to += dim;
      }
      v1::PsTablePart& out =
          *calls[i].request.mutable_entry()->mutable_push()->add_parts();
      out.set_table(part.table);
      out.set_rows(ids.size());
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    for (const auto& ids : call.ids) {
      call.payload.push_back(
          {const_cast<int64_t*>(ids.data()), ids.size() * sizeof(int64_t)});
    }
    if (gradients != nullptr) {
      for (const DenseSlice& slice : lanes_[i]->slices) {
        call.payload.push_back(
            {const_cast<float*>(gradients + slice.offset),
             static_cast<size_t>(slice.size) * sizeof(float)});
      }
    }
    for (const auto& floats : call.floats) {
      call.payload.push_back(
          {const_cast<float*>(floats.data()), floats.size() * sizeof(float)});
    }
  }
  return Run(calls);
}

std::vector<int64_t> Client::versions() const {
  std::vector<int64_t> versions;
  for (const auto& lane : lanes_) versions.push_back(lane->version);
  return versions;
}

absl::StatusOr<std::vector<v1::PsReply>> Client::Status(bool digest) {
  std::vector<Call> calls;
  ELASTICDL_RETURN_IF_ERROR(WithMap([&] {
    calls = MakeCalls();
    for (Call& call : calls) call.request.mutable_status()->set_digest(digest);
    return Run(calls, digest ? kDigestTimeout : kAnswerTimeout);
  }));
  std::vector<v1::PsReply> replies;
  replies.reserve(calls.size());
  for (Call& call : calls) replies.push_back(std::move(call.reply));
  return replies;
}

}  // namespace elasticdl::ps
