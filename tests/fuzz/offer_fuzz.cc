// What a member of a world hears from others: offers and the handshake of a
// connection. Only who knows the secret is believed.
#include "core/offer.h"
#include "fuzz.h"
#include "tcp/handshake.h"

namespace elasticdl::collective {
namespace {

WorldSpec World(int rank) {
  WorldSpec world;
  world.generation = 7;
  world.rank = rank;
  world.hosts = {"a", "b", "c"};
  world.secret = "secret";
  return world;
}

void Run(absl::string_view bytes) {
  const WorldSpec world = World(0);
  // Bytes of a stranger are never an offer: he cannot make the MAC.
  ELASTICDL_CHECK(!OpenOffer(world, 1, "tcp", bytes).ok());
  // Any payload of a member arrives as it was.
  const auto payload =
      OpenOffer(world, 1, "tcp", SealOffer(World(1), "tcp", bytes));
  ELASTICDL_CHECK(payload.ok() && *payload == bytes);

  absl::string_view rest = bytes;
  std::string text;
  uint16_t number = 0;
  while (TakeText(rest, text) && TakeRaw(rest, number)) {
  }

  const std::string hello(bytes.substr(0, TcpHandshake::kHelloBytes));
  ELASTICDL_CHECK(!TcpHandshake::ReadHello(world, hello).ok());
  const std::string good = TcpHandshake::Hello(World(1), 0);
  ELASTICDL_CHECK(TcpHandshake::ReadHello(world, good).ok());
  ELASTICDL_CHECK(
      !TcpHandshake::CheckReply(World(1), good, std::string(bytes)));
}

}  // namespace
}  // namespace elasticdl::collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::collective::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
