// Makes a world of Gloo's connections. The offer is where this member listens,
// as in the tcp backend, and members first connect and prove themselves as
// there. Over those connections they tell each other Gloo's addresses, so that
// Gloo's ports are open, and known to nobody else, only for that moment.
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "gloo_backend.h"
#include "offer.h"
#include "tcp_rendezvous.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "gloo";

absl::StatusOr<TcpAddress> Decode(const WorldSpec& world, int rank,
                                  const std::string& offer) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string payload,
                             OpenOffer(world, rank, kKind, offer));
  absl::string_view rest = payload;
  TcpAddress address;
  if (!TakeText(rest, address.host) || !TakeRaw(rest, address.port) ||
      !rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("offer of rank ", rank, " is damaged"));
  }
  return address;
}

// Ends Pair::connect, which has no other way out.
class PairCloser final : public MemberWatch::Sleeper {
 public:
  PairCloser(gloo::transport::Context& context, MemberWatch& watch)
      : context_(context), watch_(watch) {
    watch_.Add(this);
  }
  ~PairCloser() { watch_.Remove(this); }
  PairCloser(const PairCloser&) = delete;
  PairCloser& operator=(const PairCloser&) = delete;

  void Wake() override {
    for (int rank = 0; rank < context_.size; ++rank) {
      const auto& pair = context_.getPair(rank);
      if (pair != nullptr) pair->close();
    }
  }

 private:
  gloo::transport::Context& context_;
  MemberWatch& watch_;
};

// Makes the pairs; the address of each, by rank.
std::vector<std::vector<char>> MakePairs(gloo::transport::Context& context,
                                         Deadline& deadline) {
  // A pair waits five times as long for its connection.
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(deadline.Left() / 5) + 1;
  context.setTimeout(std::chrono::milliseconds(milliseconds));
  std::vector<std::vector<char>> addresses(static_cast<size_t>(context.size));
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank == context.rank) continue;
    addresses[rank] = context.createPair(rank)->address().bytes();
  }
  return addresses;
}

// Gives everybody the address that is meant for it, and gets theirs.
absl::Status ExchangeAddresses(TcpMesh& mesh,
                               std::vector<std::vector<char>>& addresses,
                               Deadline& deadline) {
  std::vector<std::vector<char>> theirs = addresses;
  std::vector<TcpSend> sends;
  std::vector<TcpReceive> receives;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == mesh.rank()) continue;
    // All have the same size: members run on one architecture.
    sends.push_back({rank, addresses[rank].data(), addresses[rank].size()});
    receives.push_back({rank, theirs[rank].data(), theirs[rank].size()});
  }
  ELASTICDL_RETURN_IF_ERROR(
      mesh.Move(std::move(sends), std::move(receives), deadline));
  addresses = std::move(theirs);
  return absl::OkStatus();
}

class GlooConnector final : public Connector {
 public:
  GlooConnector(const WorldSpec& world, TcpListener listener)
      : world_(world), listener_(std::move(listener)) {
    std::string payload;
    AppendText(listener_.address.host, payload);
    AppendRaw(listener_.address.port, payload);
    offer_ = SealOffer(world_, kKind, payload);
  }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override;

 private:
  absl::StatusOr<std::shared_ptr<MemberWatch>> Meet(
      const std::vector<std::string>& offers, const TcpListener& listener,
      Deadline& deadline);
  absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(
      const std::shared_ptr<MemberWatch>& watch, const std::string& host,
      Deadline& deadline);
  void SetWatch(std::shared_ptr<MemberWatch> watch);

  const WorldSpec world_;
  TcpListener listener_;
  std::string offer_;
  AbortSignal abort_;
  Mutex mu_;
  // While Gloo connects.
  std::shared_ptr<MemberWatch> watch_ ABSL_GUARDED_BY(mu_);
};

void GlooConnector::Abort(const std::string& reason) {
  abort_.Raise(reason);
  MutexLock lock(mu_);
  if (watch_ != nullptr) watch_->End(reason);
}

void GlooConnector::SetWatch(std::shared_ptr<MemberWatch> watch) {
  MutexLock lock(mu_);
  watch_ = std::move(watch);
}

absl::StatusOr<std::shared_ptr<MemberWatch>> GlooConnector::Meet(
    const std::vector<std::string>& offers, const TcpListener& listener,
    Deadline& deadline) {
  std::vector<TcpAddress> addresses;
  for (int rank = 0; rank < world_.size(); ++rank) {
    ELASTICDL_ASSIGN_OR_RETURN(TcpAddress address,
                               Decode(world_, rank, offers[rank]));
    addresses.push_back(std::move(address));
  }
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.connect"));
  TcpRendezvous rendezvous(world_, listener, abort_);
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<Fd> sockets,
                             rendezvous.Run(addresses, deadline));
  return std::make_shared<MemberWatch>(
      std::make_unique<TcpMesh>(world_.rank, std::move(sockets)));
}

absl::StatusOr<std::unique_ptr<Communicator>> GlooConnector::ConnectGloo(
    const std::shared_ptr<MemberWatch>& watch, const std::string& host,
    Deadline& deadline) {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  std::vector<std::vector<char>> addresses;
  ELASTICDL_RETURN_IF_ERROR(RunGloo(*watch, deadline, [&] {
    // Numeric and known to be ours: Gloo takes an unknown name badly.
    device = gloo::transport::tcp::CreateDevice(host.c_str());
    context = device->createContext(world_.rank, world_.size());
    addresses = MakePairs(*context, deadline);
  }));
  ELASTICDL_RETURN_IF_ERROR(
      ExchangeAddresses(watch->mesh(), addresses, deadline));
  watch->Start();
  {
    const PairCloser closer(*context, *watch);
    ELASTICDL_RETURN_IF_ERROR(RunGloo(*watch, deadline, [&] {
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (rank == world_.rank || !watch->Check().ok()) continue;
        context->getPair(rank)->connect(addresses[rank]);
      }
    }));
  }
  ELASTICDL_RETURN_IF_ERROR(watch->AwaitReady(deadline));
  auto transport = std::make_shared<WatchedContext>(std::move(context), *watch);
  return std::make_unique<GlooCommunicator>(watch, std::move(device),
                                            std::move(transport));
}

absl::StatusOr<std::unique_ptr<Communicator>> GlooConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  if (offers.size() != world_.hosts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(offers.size(), " offers for ", world_.size(), " members"));
  }
  // Nobody can dial any more when this returns, whatever comes of it.
  const TcpListener listener = std::move(listener_);
  if (!listener.socket.valid()) {
    return absl::FailedPreconditionError("Connect was called before");
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::shared_ptr<MemberWatch> watch,
                             Meet(offers, listener, deadline));
  SetWatch(watch);
  // An abort before that was not told to the watch.
  if (abort_.raised()) watch->End(std::string(abort_.Check().message()));
  auto made = ConnectGloo(watch, listener.address.host, deadline);
  SetWatch(nullptr);
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginGloo(const WorldSpec& world,
                                                     const std::string& host) {
  ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
  return std::make_unique<GlooConnector>(world, std::move(listener));
}

}  // namespace elasticdl::collective
