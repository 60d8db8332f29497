// Two copies of a part of the model behind sockets; the test is their master.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/handshake.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"
#include "model.h"
#include "support/child_process.h"
#include "support/temp_dir.h"
#include "wire.h"

namespace elasticdl::ps {
namespace {

class ReplicationTest : public testing::Test {
 protected:
  static constexpr char kSecret[] = "the token of this job";

  struct Told {
    int copy = 0;
    v1::PsPartState state;
  };

  void Start(int copy) {
    ServerOptions options;
    options.address = {"127.0.0.1", 0};
    options.secret = kSecret;
    options.log_dir = dir_.Path(absl::StrCat("copy-", copy));
    options.snapshot_bytes = snapshot_bytes_;
    options.replicated = true;
    options.tell = [this, copy](const v1::PsPartState& state) {
      told_.Push({copy, state});
    };
    auto started = Server::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    copies_[copy] = *std::move(started);
  }
  std::string AddressOf(int copy) {
    return net::Address{"127.0.0.1", copies_[copy]->port()}.ToString();
  }
  void Assign(int copy, int64_t term, bool primary, const std::string& backup,
              int64_t alone = 0) {
    v1::PsAssignment assignment;
    assignment.set_term(term);
    assignment.set_primary(primary);
    assignment.set_backup_address(backup);
    assignment.set_alone(alone);
    if (primary) {
      MutexLock lock(mu_);
      primary_ = copy;
    }
    copies_[copy]->Assign(assignment);
  }
  // Waits until a copy says this kind of thing.
  v1::PsPartState Hear(int copy, v1::PsPartState::StateCase what) {
    while (auto told = told_.Pop(test::kPatience)) {
      if (told->copy == copy && told->state.state_case() == what) {
        return told->state;
      }
    }
    ADD_FAILURE() << "copy " << copy << " does not say it";
    return {};
  }
  // Copy 0 is the primary, and copy 1 has everything.
  void StartBoth() {
    Start(0);
    Start(1);
    Assign(1, 1, false, "");
    Assign(0, 1, true, AddressOf(1));
    Hear(0, v1::PsPartState::kCurrent);
  }
  std::unique_ptr<Client> MakeClient() {
    Client::Options options;
    options.secret = kSecret;
    options.patience = absl::Seconds(60);
    options.find = [this](int, absl::Duration) -> absl::StatusOr<net::Address> {
      MutexLock lock(mu_);
      if (copies_[primary_] == nullptr) {
        return absl::UnavailableError("not there");
      }
      return net::Address{"127.0.0.1", copies_[primary_]->port()};
    };
    auto client = std::make_unique<Client>(options, BucketMap::Even(1));
    absl::Status status = client->Define(definition_);
    EXPECT_TRUE(status.ok()) << status;
    status = client->SetInitialValues(InitialDense(definition_).data());
    EXPECT_TRUE(status.ok()) << status;
    return client;
  }
  void PushSome(Client& client, int count) {
    for (int i = 0; i < count; ++i) {
      const Gradient gradient = RandomGradient(definition_, next_++, random_);
      const absl::Status status = Push(client, gradient);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // Of a copy, whatever its role.
  v1::PsStatus StatusOf(int copy) {
    Client::Options options;
    options.secret = kSecret;
    options.find = [this, copy](
                       int, absl::Duration) -> absl::StatusOr<net::Address> {
      return net::Address{"127.0.0.1", copies_[copy]->port()};
    };
    Client client(options, BucketMap::Even(1));
    const auto status = client.Status(/*digest=*/true);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? (*status)[0].status() : v1::PsStatus();
  }
  void ExpectEqual() {
    const v1::PsStatus first = StatusOf(0);
    const v1::PsStatus second = StatusOf(1);
    EXPECT_EQ(first.digest(), second.digest());
    EXPECT_EQ(first.log_position(), second.log_position());
  }

  test::TempDir dir_;
  const v1::PsDefinition definition_ = TestDefinition("Adam");
  int64_t snapshot_bytes_ = int64_t{1} << 30;
  std::mt19937_64 random_{1};
  int64_t next_ = 0;
  Queue<Told> told_{1000000};
  Mutex mu_;
  int primary_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<Server> copies_[2];
};

TEST_F(ReplicationTest, TheBackupHasEveryBit) {
  StartBoth();
  auto client = MakeClient();
  PushSome(*client, 20);
  ExpectEqual();
  EXPECT_EQ(StatusOf(1).log_position(), 23);
}

TEST_F(ReplicationTest, ABackupAnswersNoWorker) {
  StartBoth();
  auto client = MakeClient();
  {
    MutexLock lock(mu_);
    primary_ = 1;
  }
  Client::Options options;
  options.secret = kSecret;
  options.patience = absl::Milliseconds(100);
  options.find = [this](int, absl::Duration) -> absl::StatusOr<net::Address> {
    return net::Address{"127.0.0.1", copies_[1]->port()};
  };
  Client wrong(options, BucketMap::Even(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(wrong.Define(definition_)));
}

TEST_F(ReplicationTest, TheBackupTakesOverWithEverything) {
  StartBoth();
  auto client = MakeClient();
  PushSome(*client, 10);
  const uint64_t digest = StatusOf(0).digest();
  copies_[0].reset();
  ASSERT_TRUE(RemoveTree(dir_.Path("copy-0")).ok());
  Assign(1, 2, true, "");
  EXPECT_EQ(Hear(1, v1::PsPartState::kServing).serving(), 10);
  EXPECT_EQ(StatusOf(1).digest(), digest);
  PushSome(*client, 10);
  // The one that is lost comes back as the backup.
  Start(0);
  Assign(0, 2, false, "");
  Assign(1, 2, true, AddressOf(0));
  Hear(1, v1::PsPartState::kCurrent);
  PushSome(*client, 10);
  ExpectEqual();
}

TEST_F(ReplicationTest, ADamagedLogStaysUntilTheCopyIsCompleteAgain) {
  StartBoth();
  auto client = MakeClient();
  PushSome(*client, 5);
  copies_[1].reset();
  Assign(0, 1, true, "", Hear(0, v1::PsPartState::kLost).lost().number());
  const std::string log = dir_.Path("copy-1/log-0");
  ASSERT_TRUE(WriteFileAtomic(log, "x" + ReadFile(log)->substr(1)).ok());
  Start(1);
  EXPECT_TRUE(FileExists(dir_.Path("copy-1/damaged/log-0")));
  Assign(1, 1, false, "");
  Assign(0, 1, true, AddressOf(1));
  Hear(0, v1::PsPartState::kCurrent);
  // The backup hears of it with the next entry.
  PushSome(*client, 1);
  EXPECT_FALSE(FileExists(dir_.Path("copy-1/damaged")));
  ExpectEqual();
}

TEST_F(ReplicationTest, APrimaryAsksBeforeItGoesOnAlone) {
  StartBoth();
  auto client = MakeClient();
  PushSome(*client, 5);
  copies_[1].reset();
  const v1::PsPartState lost = Hear(0, v1::PsPartState::kLost);
  EXPECT_EQ(lost.term(), 1);
  std::atomic<bool> acknowledged = false;
  absl::Status pushed;
  Thread pusher("pusher", [&] {
    pushed = Push(*client, RandomGradient(definition_, next_, random_));
    acknowledged = true;
  });
  v1::PsCopy copy = copies_[0]->Describe();
  EXPECT_EQ(copy.lost().number(), 1);
  EXPECT_FALSE(copy.current());
  // An answer to another question does not count.
  Assign(0, 1, true, "", /*alone=*/7);
  EXPECT_TRUE(copies_[0]->Describe().has_lost());
  EXPECT_FALSE(acknowledged);
  Assign(0, 1, true, "", /*alone=*/1);
  pusher.Join();
  EXPECT_TRUE(pushed.ok()) << pushed;
  ++next_;
  // The next backup gets what it missed.
  Start(1);
  Assign(1, 1, false, "");
  Assign(0, 1, true, AddressOf(1));
  Hear(0, v1::PsPartState::kCurrent);
  PushSome(*client, 5);
  ExpectEqual();
}

// It was only slow: its backup is the primary by now.
TEST_F(ReplicationTest, AnOldPrimaryAcknowledgesNothing) {
  StartBoth();
  auto client = MakeClient();
  PushSome(*client, 5);
  const Gradient late = RandomGradient(definition_, next_++, random_);
  // Whoever still talks to the old one.
  Client::Options options;
  options.secret = kSecret;
  options.patience = absl::Milliseconds(500);
  options.find = [this](int, absl::Duration) -> absl::StatusOr<net::Address> {
    return net::Address{"127.0.0.1", copies_[0]->port()};
  };
  Client old(options, BucketMap::Even(1));
  ASSERT_TRUE(old.Define(definition_).ok());
  Assign(1, 2, true, "");
  Hear(1, v1::PsPartState::kServing);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Push(old, late)));
  EXPECT_FALSE(copies_[0]->Describe().primary());
  EXPECT_EQ(copies_[1]->version(), 5);
  EXPECT_TRUE(Push(*client, late).ok());
  // It has an entry that nobody has; as a backup it forgets that.
  Assign(0, 2, false, "");
  Assign(1, 2, true, AddressOf(0));
  Hear(1, v1::PsPartState::kCurrent);
  PushSome(*client, 5);
  ExpectEqual();
}

// Not even that it is there: what it has by then is not from its old primary.
TEST_F(ReplicationTest, ANewPrimaryAnswersNoBeat) {
  Start(1);
  Assign(1, 1, false, "");
  auto socket =
      net::Socket::Connect({"127.0.0.1", copies_[1]->port()}, test::kPatience);
  ASSERT_TRUE(socket.ok()) << socket.status();
  ASSERT_TRUE(net::GreetAsDialler(*socket, kSecret, 0, test::kPatience).ok());
  const auto ask = [&](const v1::PsRequest& request) {
    v1::PsReply reply;
    Buffer none;
    EXPECT_TRUE(WriteMessage(*socket, request, {}, test::kPatience).ok());
    EXPECT_TRUE(ReadMessage(*socket, reply, none, test::kPatience).ok());
    return reply;
  };
  v1::PsRequest follow;
  follow.mutable_follow()->set_term(1);
  v1::PsRequest beat;
  beat.mutable_frames();
  EXPECT_EQ(ask(follow).code(), 0);
  EXPECT_EQ(ask(beat).code(), 0);
  Assign(1, 2, true, "");
  Hear(1, v1::PsPartState::kServing);
  PushSome(*MakeClient(), 5);
  const v1::PsReply late = ask(beat);
  EXPECT_EQ(late.code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(late.term(), 2);
}

// A backup that hangs while it catches up holds up nobody for long, and is not
// given up either: when it answers again it becomes current.
TEST_F(ReplicationTest, ASilentBackupThatCatchesUpIsNotWaitedFor) {
  Start(0);
  Assign(0, 1, true, "");
  auto client = MakeClient();
  PushSome(*client, 300);
  // The backup is this test.
  auto listener = net::Listener::Open({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  Assign(0, 1, true, net::Address{"127.0.0.1", listener->port()}.ToString());
  auto socket = listener->Accept();
  ASSERT_TRUE(socket.ok()) << socket.status();
  ASSERT_TRUE(net::GreetAsListener(*socket, kSecret, 0, test::kPatience).ok());
  const auto read = [&] {
    v1::PsRequest request;
    Buffer bytes;
    const auto status = ReadMessage(*socket, request, bytes, test::kPatience);
    EXPECT_TRUE(status.ok()) << status;
    return request.request_case();
  };
  const auto answer = [&](int64_t position) {
    v1::PsReply reply;
    reply.set_term(1);
    reply.set_incarnation(77);
    reply.set_position(position);
    EXPECT_TRUE(WriteMessage(*socket, reply, {}, test::kPatience).ok());
  };
  EXPECT_EQ(read(), v1::PsRequest::kFollow);
  answer(0);
  EXPECT_EQ(read(), v1::PsRequest::kFrames);
  answer(1);
  // So far behind that it is waited for after some pushes. It says no more, and
  // takes no more: its connection is open.
  PushSome(*client, 400);
  answer(703);
  EXPECT_EQ(Hear(0, v1::PsPartState::kCurrent).current(), 77u);
}

TEST_F(ReplicationTest, ABackupIsBroughtUpToDateUnderLoad) {
  snapshot_bytes_ = 1 << 20;
  Start(0);
  Assign(0, 1, true, "");
  auto client = MakeClient();
  // Several snapshots are made.
  PushSome(*client, 30);
  std::atomic<bool> enough = false;
  Thread pusher("pusher", [&] {
    while (!enough) PushSome(*client, 1);
  });
  for (int i = 0; i < 3; ++i) {
    Start(1);
    Assign(1, 1, false, "");
    Assign(0, 1, true, AddressOf(1));
    Hear(0, v1::PsPartState::kCurrent);
    if (i == 2) break;
    copies_[1].reset();
    const int64_t number = Hear(0, v1::PsPartState::kLost).lost().number();
    Assign(0, 1, true, "", number);
  }
  enough = true;
  pusher.Join();
  PushSome(*client, 30);
  ExpectEqual();
  // What it has written is a log like any other.
  const uint64_t digest = StatusOf(0).digest();
  copies_[1].reset();
  Start(1);
  EXPECT_EQ(StatusOf(1).digest(), digest);
}

}  // namespace
}  // namespace elasticdl::ps
