// The program elasticdl-ps: its conversation with a master, killed and started
// again, told to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "model.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using rendezvous::ConnectionId;
using rendezvous::StreamServer;
using test::ChildProcess;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// A master that does what the test says.
class Master : public rendezvous::StreamSink {
 public:
  struct Said {
    ConnectionId connection = 0;
    // Nothing: the stream has ended.
    std::optional<v1::WorkerMessage> message;
  };

  explicit Master(int port = 0) {
    StreamServer::Options options;
    options.address = absl::StrCat("127.0.0.1:", port);
    options.token = kToken;
    auto started = StreamServer::Start(options, *this);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) server_ = *std::move(started);
  }
  ~Master() override { server_->Shutdown(absl::ZeroDuration()); }

  void OnMessage(ConnectionId connection, v1::WorkerMessage message) override {
    said_.Push({connection, std::move(message)});
  }
  void OnClosed(ConnectionId connection, const absl::Status&) override {
    said_.Push({connection, std::nullopt});
  }

  int port() const { return server_->port(); }
  // The next message.
  v1::WorkerMessage Next() {
    while (auto said = said_.Pop(test::kPatience)) {
      if (!said->message.has_value()) continue;
      connection_ = said->connection;
      return *said->message;
    }
    ADD_FAILURE() << "nobody says anything";
    return {};
  }
  void Send(const v1::MasterMessage& message) {
    server_->Send({connection_}, message);
  }

 private:
  Queue<Said> said_{std::numeric_limits<size_t>::max()};
  std::unique_ptr<StreamServer> server_;
  // Who spoke last.
  ConnectionId connection_ = 0;
};

class PsProcessTest : public testing::Test {
 protected:
  PsProcessTest() {
    job_.set_job_name("j");
    job_.set_num_ps_pods(1);
    job_.set_run("00000000000000aa");
    EXPECT_TRUE(WriteFileAtomic(dir_.Path("token"), kToken).ok());
    StartMaster();
  }

  void StartMaster(int port = 0) {
    master_ = std::make_unique<Master>(port);
    port_ = master_->port();
  }
  void StartProcess() {
    ChildProcess::Options options;
    options.argv = {absl::StrCat(ELASTICDL_BIN_DIR, "/elasticdl-ps"),
                    "--ps_id=0",
                    absl::StrCat("--master_addr=127.0.0.1:", port_),
                    absl::StrCat("--token_file=", dir_.Path("token")),
                    absl::StrCat("--ps_log=", dir_.Path("logs")),
                    "--port=0",
                    "--worker_address=127.0.0.1"};
    options.log = dir_.Path(absl::StrCat("ps-", processes_++));
    process_ = std::make_unique<ChildProcess>(options);
  }
  void Welcome() {
    v1::MasterMessage message;
    *message.mutable_welcome()->mutable_job() = job_;
    master_->Send(message);
  }
  // The process is there, and its server is at address_.
  void ExpectServer() {
    const v1::WorkerMessage first = master_->Next();
    EXPECT_EQ(first.server_hello().address(), "") << first.DebugString();
    EXPECT_EQ(first.server_hello().pid(), process_->pid());
    Welcome();
    ExpectAddress();
  }
  void ExpectAddress() {
    const v1::WorkerMessage hello = master_->Next();
    ASSERT_TRUE(hello.has_server_hello()) << hello.DebugString();
    EXPECT_EQ(hello.server_hello().server(), 0);
    const auto address = net::Address::Parse(hello.server_hello().address());
    ASSERT_TRUE(address.ok()) << address.status() << process_->err();
    EXPECT_EQ(address->host, "127.0.0.1");
    address_ = *address;
  }
  std::unique_ptr<Client> MakeClient() {
    Client::Options options;
    options.secret = kToken;
    options.patience = test::kPatience;
    options.find = [address = address_](int, absl::Duration) {
      return absl::StatusOr<net::Address>(address);
    };
    return std::make_unique<Client>(options, BucketMap::Even(1));
  }
  // The model, with values.
  std::unique_ptr<Client> MakeModel() {
    auto client = MakeClient();
    absl::Status status = client->Define(definition_);
    EXPECT_TRUE(status.ok()) << status;
    status = client->SetInitialValues(InitialDense(definition_).data());
    EXPECT_TRUE(status.ok()) << status;
    return client;
  }
  // Stages the gradient of minibatch `number`; what commits it alone.
  v1::PsCommit Stage(Client& client, int64_t number) {
    Gradient gradient = RandomGradient(definition_, number, random_);
    gradient.name.set_stage(true);
    const absl::Status pushed = Push(client, gradient);
    EXPECT_TRUE(pushed.ok()) << pushed;
    v1::PsCommit commit;
    commit.set_version(number + 1);
    commit.set_map_version(BucketMap::Even(1).version());
    v1::PsRanges& push = *commit.add_pushes();
    push.set_shard(gradient.name.shard());
    push.set_epoch(gradient.name.epoch());
    push.add_bounds(gradient.name.begin());
    push.add_bounds(gradient.name.end());
    return commit;
  }
  // Why the version is not there; empty: it is.
  std::string Commit(const v1::PsCommit& commit) {
    v1::MasterMessage message;
    *message.mutable_commit() = commit;
    master_->Send(message);
    const v1::WorkerMessage answer = master_->Next();
    EXPECT_TRUE(answer.has_server_committed()) << answer.DebugString();
    EXPECT_EQ(answer.server_committed().version(), commit.version());
    return answer.server_committed().error();
  }
  v1::PsReply Status() {
    const auto status = MakeClient()->Status(/*digest=*/true);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->at(0) : v1::PsReply();
  }
  std::optional<int> Terminate() {
    process_->Signal(SIGTERM);
    return process_->Wait();
  }

  const test::TempDir dir_;
  const v1::PsDefinition definition_ = TestDefinition("Adagrad");
  std::mt19937_64 random_{1};
  v1::JobSpec job_;
  std::unique_ptr<Master> master_;
  int port_ = 0;
  int processes_ = 0;
  std::unique_ptr<ChildProcess> process_;
  net::Address address_;
};

TEST_F(PsProcessTest, AppliesTheVersionsOfTheMaster) {
  StartProcess();
  ExpectServer();
  const auto client = MakeModel();
  v1::PsCommit commit = Stage(*client, 0);
  EXPECT_THAT(Commit(commit), IsEmpty());
  // Said again after a restart of the master.
  EXPECT_THAT(Commit(commit), IsEmpty());
  EXPECT_EQ(Status().version(), 1);
  // Never staged.
  commit.set_version(2);
  commit.mutable_pushes(0)->set_epoch(7);
  EXPECT_THAT(Commit(commit), HasSubstr("not staged"));
  EXPECT_EQ(Status().version(), 1);
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

TEST_F(PsProcessTest, KilledServerGoesOnFromItsLog) {
  StartProcess();
  ExpectServer();
  {
    const auto client = MakeModel();
    EXPECT_THAT(Commit(Stage(*client, 0)), IsEmpty());
    EXPECT_THAT(Commit(Stage(*client, 1)), IsEmpty());
  }
  const v1::PsReply before = Status();
  EXPECT_EQ(before.version(), 2);
  for (const int signal : {SIGKILL, SIGTERM}) {
    process_->Signal(signal);
    EXPECT_EQ(process_->Wait(), signal == SIGKILL ? 128 + SIGKILL : 0);
    StartProcess();
    ExpectServer();
    const v1::PsReply after = Status();
    EXPECT_EQ(after.version(), 2);
    EXPECT_EQ(after.status().digest(), before.status().digest());
  }
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

TEST_F(PsProcessTest, AnotherRunBeginsFromNothing) {
  StartProcess();
  ExpectServer();
  EXPECT_THAT(Commit(Stage(*MakeModel(), 0)), IsEmpty());
  EXPECT_EQ(Terminate(), 0) << process_->err();
  EXPECT_TRUE(FileExists(dir_.Path("logs/00000000000000aa/ps-0")));
  job_.set_run("00000000000000bb");
  StartProcess();
  ExpectServer();
  EXPECT_EQ(Status().version(), 0);
  EXPECT_FALSE(Status().status().initialized());
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

TEST_F(PsProcessTest, EndsWithTheCodeOfTheMaster) {
  StartProcess();
  ExpectServer();
  v1::MasterMessage message;
  message.mutable_stop()->set_exit_code(5);
  master_->Send(message);
  EXPECT_EQ(process_->Wait(), 5) << process_->err();
}

TEST_F(PsProcessTest, EndsWhileItWaitsForAnAnswer) {
  StartProcess();
  EXPECT_TRUE(master_->Next().has_server_hello());
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

TEST_F(PsProcessTest, WithoutAMasterItEnds) {
  StartProcess();
  ExpectServer();
  master_.reset();
  EXPECT_EQ(process_->Wait(), 3) << process_->err();
}

TEST_F(PsProcessTest, ComesBackToARestartedMaster) {
  job_.set_master_timeout_seconds(60);
  StartProcess();
  ExpectServer();
  const net::Address address = address_;
  EXPECT_THAT(Commit(Stage(*MakeModel(), 0)), IsEmpty());
  master_.reset();
  StartMaster(port_);
  // It has kept its address. The version that it says is of after the Welcome:
  // workers may have pushed while there was no master.
  ExpectServer();
  EXPECT_EQ(address_.port, address.port);
  EXPECT_THAT(Commit(Stage(*MakeModel(), 1)), IsEmpty());
  EXPECT_EQ(Status().version(), 2);
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

TEST_F(PsProcessTest, LeavesTheMasterOfAnotherRun) {
  job_.set_master_timeout_seconds(60);
  StartProcess();
  ExpectServer();
  master_.reset();
  StartMaster(port_);
  EXPECT_EQ(master_->Next().server_hello().address(), "");
  job_.set_run("00000000000000bb");
  Welcome();
  EXPECT_EQ(process_->Wait(), 3);
  EXPECT_THAT(process_->err(), HasSubstr("another run"));
}

// Log and values may differ from here on: its successor reads the log.
TEST_F(PsProcessTest, BrokenServerEndsWithAnError) {
  // After definition, map, initial values and push.
  job_.set_failpoints("ps.apply=error@5");
  StartProcess();
  ExpectServer();
  v1::MasterMessage message;
  *message.mutable_commit() = Stage(*MakeModel(), 0);
  master_->Send(message);
  EXPECT_EQ(process_->Wait(), 1);
  EXPECT_THAT(process_->err(), HasSubstr("ps.apply"));
  job_.clear_failpoints();
  // Whatever it still said.
  master_.reset();
  StartMaster();
  StartProcess();
  ExpectServer();
  EXPECT_EQ(Status().version(), 1);
  EXPECT_EQ(Terminate(), 0) << process_->err();
}

}  // namespace
}  // namespace elasticdl::ps
