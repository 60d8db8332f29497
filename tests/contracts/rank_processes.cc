#include "contracts/rank_processes.h"

#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"
#include "support/mpirun.h"

namespace elasticdl::collective {
namespace {

constexpr int kHangMilliseconds = 60000;
constexpr size_t kMessageBytes = 128 << 10;

constexpr char kGone[] = "the other end is gone";

// For the ranks of an mpirun: the number of the object whose body they run,
// where the test listens, and what they share with it.
constexpr char kObject[] = "ELASTICDL_TEST_OBJECT";
constexpr char kAddress[] = "ELASTICDL_TEST_ADDRESS";
constexpr char kSeed[] = "ELASTICDL_TEST_SEED";
constexpr char kPage[] = "ELASTICDL_TEST_PAGE";
constexpr size_t kPageBytes = 4096;

// Of the current test.
RankProcesses::Launch launch_mode = RankProcesses::Launch::kFork;
std::vector<std::string>* mpirun_options = nullptr;
int num_objects = 0;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Not a file, so that nothing is left behind.
std::pair<sockaddr_un, socklen_t> AbstractAddress(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          name.size())};
}

[[noreturn]] void RunRank(int rank, const RankProcesses::Body& body, Fd fd) {
  Channel test(std::move(fd));
  const std::string result = body(rank, test);
  const bool sent = test.Send("result" + result).ok();
  _exit(sent && result.empty() ? 0 : 1);
}

// For the handler of crashes.
int crash_fd = -1;

[[noreturn]] void ReportCrash(int signal) {
  char text[] = "mresultcrashed, signal 00";
  text[sizeof(text) - 3] = static_cast<char>('0' + signal / 10);
  text[sizeof(text) - 2] = static_cast<char>('0' + signal % 10);
  [[maybe_unused]] const ssize_t sent =
      send(crash_fd, text, sizeof(text) - 1, MSG_NOSIGNAL);
  // Visible with ELASTICDL_TEST_VERBOSE.
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  _exit(1);
}

[[noreturn]] void RunAsMpiRank(const RankProcesses::Body& body) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [where, length] = AbstractAddress(Variable(kAddress));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), length) !=
      0) {
    _exit(1);
  }
  const std::string rank = Variable("OMPI_COMM_WORLD_RANK");
  const std::string hello = "m" + rank;
  if (send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) _exit(1);
  crash_fd = fd.get();
  for (const int crash : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
    signal(crash, ReportCrash);
  }
  RunRank(std::atoi(rank.c_str()), body, std::move(fd));
}

[[noreturn]] void ExecMpirun(int version, int count,
                             const std::string& address) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv(kObject, absl::StrCat(num_objects).c_str(), 1);
  setenv(kAddress, address.c_str(), 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  // What the repeated test prints tells nothing.
  if (Variable("ELASTICDL_TEST_VERBOSE").empty()) {
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(nowhere, fd);
  }
  const testing::TestInfo& test =
      *testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      absl::StrCat("--gtest_filter=", test.test_suite_name(), ".", test.name());
  char program[4096] = "";
  ELASTICDL_CHECK(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
  std::vector<std::string> command = {"mpirun"};
  const std::vector<std::vector<std::string>> parts = {
      test::MpirunRecovery(version),
      test::MpirunPlacement(version),
      *mpirun_options,
      {"-np", absl::StrCat(count), program, filter}};
  for (const auto& part : parts) {
    command.insert(command.end(), part.begin(), part.end());
  }
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp("mpirun", argv.data());
  _exit(127);
}

std::pair<Fd, Fd> MakePair() {
  int fds[2];
  // Keeps the bounds of messages.
  ELASTICDL_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) ==
                  0);
  return {Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

absl::Status Channel::Send(const std::string& message) {
  if (!fd_.valid()) return absl::OkStatus();
  // A first byte, because an empty message looks like the end.
  const std::string framed = "m" + message;
  const ssize_t sent =
      send(fd_.get(), framed.data(), framed.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(framed.size())) {
    return ErrnoToStatus(errno, "send to the test");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Channel::Receive() {
  if (!fd_.valid()) return "late";
  pollfd ready = {fd_.get(), POLLIN, 0};
  if (poll(&ready, 1, kHangMilliseconds) != 1) {
    return absl::DeadlineExceededError("no message for a minute");
  }
  std::string framed(kMessageBytes, '\0');
  const ssize_t received = recv(fd_.get(), framed.data(), framed.size(), 0);
  if (received <= 0) return absl::UnavailableError(kGone);
  return framed.substr(1, static_cast<size_t>(received) - 1);
}

void RankProcesses::Use(Launch launch, std::vector<std::string> options) {
  launch_mode = launch;
  delete std::exchange(mpirun_options,
                       new std::vector<std::string>(std::move(options)));
  num_objects = 0;
}

bool RankProcesses::IsMpiRank() { return !Variable(kObject).empty(); }

RankProcesses::RankProcesses(int count, const Body& body) {
  ++num_objects;
  if (launch_mode == Launch::kFork) {
    Fork(count, body);
    return;
  }
  for (int rank = 0; rank < count; ++rank) {
    ranks_.push_back({0, Channel(Fd()), Fd()});
  }
  if (!IsMpiRank()) StartMpirun(count);
  if (Variable(kObject) == absl::StrCat(num_objects)) RunAsMpiRank(body);
}

void RankProcesses::Fork(int count, const Body& body) {
  for (int rank = 0; rank < count; ++rank) {
    std::pair<Fd, Fd> ends = MakePair();
    const pid_t pid = fork();
    ELASTICDL_CHECK(pid >= 0);
    if (pid == 0) {
      // A killed test leaves no ranks behind.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Else the test would not see the others' ends.
      ends.first.Reset();
      ranks_.clear();
      RunRank(rank, body, std::move(ends.second));
    }
    ranks_.push_back({pid, Channel(std::move(ends.first)), Fd()});
  }
}

void RankProcesses::StartMpirun(int count) {
  const std::string address =
      absl::StrCat("elasticdl-ranks-", getpid(), "-", num_objects);
  const Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [where, length] = AbstractAddress(address);
  ELASTICDL_CHECK(bind(listener.get(),
                       reinterpret_cast<const sockaddr*>(&where), length) == 0);
  ELASTICDL_CHECK(listen(listener.get(), count) == 0);
  const int version = test::FindMpirunVersion();
  mpirun_ = fork();
  ELASTICDL_CHECK(mpirun_ >= 0);
  if (mpirun_ == 0) ExecMpirun(version, count, address);
  for (int i = 0; i < count; ++i) {
    pollfd ready = {listener.get(), POLLIN, 0};
    ELASTICDL_CHECK(poll(&ready, 1, kHangMilliseconds) == 1);
    Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred peer = {};
    socklen_t size = sizeof(peer);
    ELASTICDL_CHECK(getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer,
                               &size) == 0);
    Channel channel(std::move(connection));
    int rank = -1;
    ELASTICDL_CHECK(absl::SimpleAtoi(channel.Receive().value(), &rank) &&
                    rank >= 0 && rank < count);
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
    // It may have ended already, and mpirun have reaped it.
    ELASTICDL_CHECK(pidfd.valid() || errno == ESRCH);
    ranks_[rank] = {peer.pid, std::move(channel), std::move(pidfd)};
  }
}

RankProcesses::~RankProcesses() {
  for (const Rank& rank : ranks_) {
    if (rank.pid <= 0) continue;
    kill(rank.pid, SIGKILL);
    if (mpirun_ == 0) waitpid(rank.pid, nullptr, 0);
  }
  // It ends with its last rank.
  if (mpirun_ > 0) waitpid(mpirun_, nullptr, 0);
}

void RankProcesses::Signal(int rank, int signal) {
  if (ranks_[rank].pid > 0) kill(ranks_[rank].pid, signal);
}

absl::Status RankProcesses::Exchange(const std::vector<int>& ranks) {
  // Repeated in an mpirun's rank.
  if (ranks_[ranks.front()].pid == 0) return absl::OkStatus();
  std::vector<std::string> messages;
  for (const int rank : ranks) {
    ELASTICDL_ASSIGN_OR_RETURN(std::string message, channel(rank).Receive());
    messages.push_back(std::move(message));
  }
  for (const int rank : ranks) {
    for (const std::string& message : messages) {
      ELASTICDL_RETURN_IF_ERROR(channel(rank).Send(message));
    }
    ELASTICDL_RETURN_IF_ERROR(channel(rank).Send("end of exchange"));
  }
  return absl::OkStatus();
}

std::string RankProcesses::Result(int rank) {
  // Repeated in an mpirun's rank.
  if (ranks_[rank].pid == 0) return "";
  std::string text;
  while (text.rfind("result", 0) != 0) {
    const absl::StatusOr<std::string> message = channel(rank).Receive();
    if (!message.ok()) {
      text = std::string(message.status().message());
      break;
    }
    text = *message;
  }
  if (text.rfind("result", 0) == 0) {
    text = text.substr(6);
  } else if (text == "no message for a minute") {
    kill(ranks_[rank].pid, SIGKILL);
    text = "hangs";
  }
  const std::string death = HowItEnded(ranks_[rank]);
  if (!death.empty() && (mpirun_ == 0 || text == kGone || text == "hangs")) {
    return absl::StrCat(text == "hangs" ? "hangs; " : "", death);
  }
  return text;
}

// Empty if it ended by itself. Of an mpirun's ranks only the launcher knows;
// but they report crashes themselves, so who has gone without a word was
// killed.
std::string RankProcesses::HowItEnded(Rank& rank) {
  const pid_t pid = std::exchange(rank.pid, 0);
  if (mpirun_ > 0) {
    pollfd ended = {rank.pidfd.get(), POLLIN, 0};
    if (rank.pidfd.valid() && poll(&ended, 1, kHangMilliseconds) != 1) {
      return "does not end";
    }
    return "died of signal 9";
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) {
    return absl::StrCat("died of signal ", WTERMSIG(status));
  }
  // RunRank's own are 0 and 1.
  return WEXITSTATUS(status) > 1
             ? absl::StrCat("exit code ", WEXITSTATUS(status))
             : "";
}

unsigned SharedSeed() {
  if (!RankProcesses::IsMpiRank()) {
    setenv(kSeed, absl::StrCat(std::random_device()()).c_str(), 1);
  }
  unsigned seed = 0;
  ELASTICDL_CHECK(absl::SimpleAtoi(Variable(kSeed), &seed));
  return seed;
}

void* SharedPage() {
  Fd page;
  if (RankProcesses::IsMpiRank()) {
    page = Fd(open(Variable(kPage).c_str(), O_RDWR | O_CLOEXEC));
  } else {
    page = Fd(memfd_create("shared page", MFD_CLOEXEC));
    ELASTICDL_CHECK(ftruncate(page.get(), kPageBytes) == 0);
  }
  void* const at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        page.get(), 0);
  ELASTICDL_CHECK(at != MAP_FAILED);
  if (!RankProcesses::IsMpiRank()) {
    // Stays open: the ranks of an mpirun open it there.
    setenv(kPage,
           absl::StrCat("/proc/", getpid(), "/fd/", page.Release()).c_str(), 1);
  }
  return at;
}

absl::StatusOr<std::vector<std::string>> ExchangeWithAll(
    Channel& test, const std::string& own) {
  ELASTICDL_RETURN_IF_ERROR(test.Send(own));
  std::vector<std::string> all;
  while (true) {
    ELASTICDL_ASSIGN_OR_RETURN(std::string message, test.Receive());
    if (message == "end of exchange") return all;
    all.push_back(std::move(message));
  }
}

}  // namespace elasticdl::collective
