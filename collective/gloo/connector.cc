// Makes a world of Gloo's connections. The offer is where this member listens,
// as in the tcp backend, and members first connect and prove themselves as
// there. Over those connections they tell each other Gloo's addresses, so that
// Gloo's ports are open, and known to nobody else, only for that moment, and
// tokens that show who has really connected to them.
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends.h"
#include "core/offer.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "gloo/backend.h"
#include "tcp/meeting.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "gloo";
constexpr size_t kTokenBytes = 16;
// Gloo's algorithms use numbers whose upper bits are set.
constexpr uint64_t kTokenSlot = 1;

// Ends Pair::connect, which has no other way out.
class PairCloser final : public MemberWatch::Sleeper {
 public:
  PairCloser(gloo::transport::Context& context, MemberWatch& watch)
      : context_(context), watch_(watch) {
    watch_.Add(this);
  }
  ~PairCloser() override { watch_.Remove(this); }
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

// What two members tell each other before Gloo connects them.
struct Card {
  // Of the pair of the one who tells.
  std::vector<char> address;
  // Comes back over Gloo's connection, as proof of who is at the other end.
  std::string token;
};
// By rank.
using Cards = std::vector<Card>;

Cards MakePairs(gloo::transport::Context& context, Deadline& deadline) {
  // A pair waits five times as long for its connection.
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(deadline.Left() / 5) + 1;
  context.setTimeout(std::chrono::milliseconds(milliseconds));
  Cards cards(static_cast<size_t>(context.size));
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank == context.rank) continue;
    cards[rank] = {context.createPair(rank)->address().bytes(),
                   RandomBytes(kTokenBytes)};
  }
  return cards;
}

// Gives everybody the card that is meant for it, and gets theirs.
absl::StatusOr<Cards> ExchangeCards(TcpMesh& mesh, const Cards& own,
                                    Deadline& deadline) {
  // All have the same size: members run on one architecture.
  Cards theirs = own;
  std::vector<MeshSend> addresses_out;
  std::vector<MeshReceive> addresses_in;
  std::vector<MeshSend> tokens_out;
  std::vector<MeshReceive> tokens_in;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == mesh.rank()) continue;
    const Card& mine = own[rank];
    Card& other = theirs[rank];
    addresses_out.push_back({rank, mine.address.data(), mine.address.size()});
    addresses_in.push_back({rank, other.address.data(), other.address.size()});
    tokens_out.push_back({rank, mine.token.data(), kTokenBytes});
    tokens_in.push_back({rank, other.token.data(), kTokenBytes});
  }
  ELASTICDL_RETURN_IF_ERROR(
      mesh.Move(std::move(addresses_out), std::move(addresses_in), deadline));
  ELASTICDL_RETURN_IF_ERROR(
      mesh.Move(std::move(tokens_out), std::move(tokens_in), deadline));
  return theirs;
}

// Shows every member its token and checks what it shows. Throws.
void ProveToAll(gloo::transport::Context& context, const Cards& own,
                const Cards& theirs) {
  std::vector<std::string> shown(own.size(), std::string(kTokenBytes, '\0'));
  std::vector<std::string> to_show;
  for (const Card& card : theirs) to_show.push_back(card.token);
  // After the memory that they use.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank == context.rank) continue;
    buffers.push_back(
        context.createUnboundBuffer(to_show[rank].data(), kTokenBytes));
    buffers.back()->send(rank, kTokenSlot);
    buffers.push_back(
        context.createUnboundBuffer(shown[rank].data(), kTokenBytes));
    buffers.back()->recv(rank, kTokenSlot);
  }
  for (size_t i = 0; i < buffers.size(); i += 2) {
    buffers[i]->waitSend();
    buffers[i + 1]->waitRecv();
  }
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank != context.rank && shown[rank] != own[rank].token) {
      throw std::runtime_error(
          absl::StrCat("a stranger is connected in place of rank ", rank));
    }
  }
}

class GlooConnector final : public Connector {
 public:
  GlooConnector(const WorldSpec& world, TcpListener listener)
      : world_(world), meeting_(world, std::move(listener)) {
    std::string payload;
    AppendAddress(meeting_.address(), payload);
    offer_ = SealOffer(world_, kKind, payload);
  }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override { meeting_.Abort(reason); }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(
      const std::shared_ptr<MemberWatch>& watch, const std::string& host,
      Deadline& deadline);

  const WorldSpec world_;
  Meeting meeting_;
  std::string offer_;
};

absl::StatusOr<std::unique_ptr<Communicator>> GlooConnector::ConnectGloo(
    const std::shared_ptr<MemberWatch>& watch, const std::string& host,
    Deadline& deadline) {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  Cards own;
  ELASTICDL_RETURN_IF_ERROR(RunGloo(*watch, deadline, [&] {
    // Numeric and known to be ours: Gloo takes an unknown name badly.
    device = gloo::transport::tcp::CreateDevice(host.c_str());
    context = device->createContext(world_.rank, world_.size());
    own = MakePairs(*context, deadline);
  }));
  ELASTICDL_ASSIGN_OR_RETURN(const Cards theirs,
                             ExchangeCards(watch->mesh(), own, deadline));
  watch->Start();
  auto transport = std::make_shared<WatchedContext>(context, *watch);
  transport->set_deadline(&deadline);
  ELASTICDL_RETURN_IF_ERROR(RunGloo(*watch, deadline, [&] {
    const PairCloser closer(*context, *watch);
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (rank == world_.rank || !watch->Check().ok()) continue;
      context->getPair(rank)->connect(theirs[rank].address);
    }
    ProveToAll(*transport, own, theirs);
  }));
  ELASTICDL_RETURN_IF_ERROR(watch->AwaitReady(deadline));
  return std::make_unique<GlooCommunicator>(watch, std::move(device),
                                            std::move(transport));
}

absl::StatusOr<std::unique_ptr<Communicator>> GlooConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::vector<TcpAddress> addresses,
      OpenAddressOffers(world_, kKind, AllPeers(world_.size(), world_.rank),
                        offers));
  ELASTICDL_ASSIGN_OR_RETURN(const std::shared_ptr<MemberWatch> watch,
                             meeting_.Meet(addresses, deadline));
  auto made = ConnectGloo(watch, meeting_.address().host, deadline);
  meeting_.End();
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginGloo(const WorldSpec& world,
                                                     const std::string& host) {
  ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
  return std::make_unique<GlooConnector>(world, std::move(listener));
}

}  // namespace elasticdl::collective
