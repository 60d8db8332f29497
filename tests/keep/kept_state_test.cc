// Memory that outlives its process: what it says after a death at any moment.
#include "elasticdl/keep/kept_state.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "elasticdl/keep/kept_reader.h"

namespace elasticdl::keep {
namespace {

// Numbers that change between two marks; the last ones are fewer.
constexpr size_t kSlice = 1000;
constexpr size_t kFloats = 3 * kSlice + 100;

Facts FactsOf(int64_t step) {
  return {step, /*lineage=*/7, /*learning_rate=*/0.5, {{1, 10 * step}}};
}

// Two arrays, and the input of the update.
struct Owner {
  Owner() {
    auto made = KeptState::Create();
    EXPECT_TRUE(made.ok()) << made.status();
    state = *std::move(made);
    for (float** array : {&values, &slot, &input}) {
      *array =
          reinterpret_cast<float*>(*state->AddArray(kFloats * sizeof(float)));
    }
    EXPECT_TRUE(state->AddUndo(2 * kSlice * sizeof(float)).ok());
    EXPECT_TRUE(state->Seal(/*layout=*/5).ok());
  }
  // One step of something that cannot be repeated. `at` is called between any
  // two things that happen.
  void Step(int64_t step, const std::function<void()>& at) {
    for (size_t i = 0; i < kFloats; ++i) {
      input[i] = static_cast<float>(step) + static_cast<float>(i) * 0.001F;
    }
    at();
    EXPECT_TRUE(state->Plan(FactsOf(step)));
    at();
    state->BeginUpdate();
    for (size_t begin = 0; begin < kFloats; begin += kSlice) {
      const size_t end = std::min(begin + kSlice, kFloats);
      at();
      auto* const undo = reinterpret_cast<float*>(state->undo());
      std::copy(values + begin, values + end, undo);
      std::copy(slot + begin, slot + end, undo + kSlice);
      Mark(state->count(), end - begin);
      Mark(state->progress(), begin << 1 | 1);
      at();
      Update(values, slot, input, begin, (begin + end) / 2);
      at();
      Update(values, slot, input, (begin + end) / 2, end);
      at();
      Mark(state->progress(), end << 1);
    }
    at();
    state->EndUpdate();
    at();
  }
  void Mark(std::atomic<uint64_t>& word, uint64_t value) const {
    if (state->updating()) word = value;
  }
  static void Update(float* values, float* slot, const float* input,
                     size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      slot[i] = slot[i] * 0.9F + input[i];
      values[i] -= slot[i] * 0.1F;
    }
  }

  std::unique_ptr<KeptState> state;
  float* values = nullptr;
  float* slot = nullptr;
  float* input = nullptr;
};

using Floats = std::vector<float>;

// What somebody else makes of it.
struct Heir {
  explicit Heir(const Owner& owner) {
    auto reader = KeptReader::Open(Fd(dup(owner.state->fd())));
    EXPECT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->layout(), 5u);
    EXPECT_EQ(reader->num_arrays(), 4u);
    facts = reader->facts();
    const KeptReader::Update& update = reader->update();
    Floats input(kFloats);
    const auto copy = [&](size_t array, Floats& to) {
      to.resize(kFloats);
      memcpy(to.data(), reader->array(array).data(), kFloats * sizeof(float));
    };
    copy(0, values);
    copy(1, slot);
    copy(2, input);
    if (!update.open) return;
    finished = true;
    const auto* undo = reinterpret_cast<const float*>(reader->array(3).data());
    std::copy_n(undo, update.torn, values.data() + update.done);
    std::copy_n(undo + kSlice, update.torn, slot.data() + update.done);
    Owner::Update(values.data(), slot.data(), input.data(), update.done,
                  kFloats);
  }
  Facts facts;
  Floats values;
  Floats slot;
  bool finished = false;
};

// The values of each step, without any death.
std::vector<std::pair<Floats, Floats>> Straight(int64_t steps) {
  Owner owner;
  std::vector<std::pair<Floats, Floats>> all;
  const auto add = [&] {
    all.emplace_back(Floats(owner.values, owner.values + kFloats),
                     Floats(owner.slot, owner.slot + kFloats));
  };
  add();
  owner.state->Publish(FactsOf(0));
  for (int64_t step = 1; step <= steps; ++step) {
    owner.Step(step, [] {});
    add();
  }
  return all;
}

// Runs `body` in a process of its own, which is killed or ends by itself.
void InProcess(const std::function<void()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
}

TEST(KeptStateTest, DeathBetweenAnyTwoStoresLosesNothing) {
  constexpr int64_t kSteps = 3;
  const auto straight = Straight(kSteps);
  int finished = 0;
  bool ended = false;
  for (int place = 1; !ended; ++place) {
    Owner owner;
    owner.state->Publish(FactsOf(0));
    // Whether the child came to its end; shared like the rest.
    auto* const reached =
        static_cast<int*>(mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    InProcess([&] {
      int places = 0;
      for (int64_t step = 1; step <= kSteps; ++step) {
        owner.Step(step, [&] {
          if (++places == place) kill(getpid(), SIGKILL);
        });
      }
      *reached = 1;
    });
    ended = *reached != 0;
    munmap(reached, sizeof(int));
    const Heir heir(owner);
    finished += heir.finished ? 1 : 0;
    const int64_t step = heir.facts.step;
    ASSERT_LE(step, kSteps);
    EXPECT_EQ(heir.facts.lineage, 7);
    EXPECT_EQ(heir.facts.totals[0].second, 10 * step);
    EXPECT_EQ(heir.values, straight[static_cast<size_t>(step)].first) << place;
    EXPECT_EQ(heir.slot, straight[static_cast<size_t>(step)].second) << place;
  }
  // Of 20 places of a step, 17 are inside its update.
  EXPECT_EQ(finished, 3 * 17);
}

TEST(KeptStateTest, NothingIsThereBeforeItIsPublished) {
  Owner owner;
  const auto open = [&] {
    return KeptReader::Open(Fd(dup(owner.state->fd()))).status();
  };
  EXPECT_TRUE(absl::IsNotFound(open()));
  // An update of nothing leads to nothing.
  owner.Step(1, [] {});
  EXPECT_TRUE(absl::IsNotFound(open()));
  owner.state->Publish(FactsOf(1));
  EXPECT_TRUE(open().ok());
  owner.Step(2, [] {});
  EXPECT_TRUE(open().ok());
  owner.state->Forget();
  EXPECT_TRUE(absl::IsNotFound(open()));
}

TEST(KeptStateTest, AnUpdateWithoutAPlanIsForgotten) {
  Owner owner;
  owner.state->Publish(FactsOf(1));
  owner.state->BeginUpdate();
  EXPECT_FALSE(owner.state->whole());
  EXPECT_TRUE(
      absl::IsNotFound(KeptReader::Open(Fd(dup(owner.state->fd()))).status()));
}

TEST(KeptStateTest, APlanThatIsNotCarriedOutChangesNothing) {
  Owner owner;
  owner.state->Publish(FactsOf(3));
  EXPECT_TRUE(owner.state->Plan(FactsOf(4)));
  EXPECT_EQ(Heir(owner).facts.step, 3);
  EXPECT_TRUE(owner.state->Plan(FactsOf(5)));
  owner.state->BeginUpdate();
  EXPECT_EQ(Heir(owner).facts.step, 5);
  EXPECT_EQ(Heir(owner).facts.totals[0].second, 50);
}

TEST(KeptStateTest, TooManyWorkersAreSaidOnce) {
  Owner owner;
  Facts many = FactsOf(1);
  for (int64_t id = 0; id < 3000; ++id) many.totals.emplace_back(id, 1);
  EXPECT_FALSE(owner.state->Publish(many));
  EXPECT_FALSE(owner.state->whole());
  EXPECT_TRUE(owner.state->Publish(many));
  EXPECT_FALSE(owner.state->whole());
}

TEST(KeptStateTest, OtherMemoryIsRefused) {
  const Fd empty(memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(absl::IsDataLoss(KeptReader::Open(empty).status()));
  const Fd sealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sealed.get(), 1 << 20), 0);
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(absl::IsDataLoss(KeptReader::Open(sealed).status()));
  EXPECT_FALSE(KeptReader::Open("/dev/null").ok());
  EXPECT_TRUE(absl::IsNotFound(KeptReader::Open("/no/such").status()));
}

TEST(KeptStateTest, OnlyItsOwnerIsAccepted) {
  Owner owner;
  owner.state->SetOwner(7);
  const Fd fd(dup(owner.state->fd()));
  EXPECT_TRUE(CheckOwner(fd, 7, getpid()).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckOwner(fd, 8, getpid())));
  EXPECT_TRUE(absl::IsDataLoss(CheckOwner(fd, 7, getppid())));
  const Fd other(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(other.get(), 1 << 20), 0);
  EXPECT_TRUE(absl::IsDataLoss(CheckOwner(other, 0, 0))) << "not sealed";
  ASSERT_EQ(fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(absl::IsDataLoss(CheckOwner(other, 0, 0))) << "nothing in it";
}

// Nobody can make it smaller, so that others would get SIGBUS.
TEST(KeptStateTest, ItsSizeIsFixed) {
  const Owner owner;
  EXPECT_NE(ftruncate(owner.state->fd(), 4096), 0);
  EXPECT_NE(ftruncate(owner.state->fd(), 1 << 30), 0);
}

TEST(KeptStateTest, ALimitForFilesIsAnError) {
  bool* const refused =
      static_cast<bool*>(mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  InProcess([&] {
    const rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto state = KeptState::Create();
    const auto array = (*state)->AddArray(4 << 20);
    *refused = absl::IsResourceExhausted(array.status());
  });
  EXPECT_TRUE(*refused) << "or it was killed by SIGXFSZ";
  munmap(refused, sizeof(bool));
}

TEST(KeptStateTest, LargeArraysBeginAtHugePages) {
  auto state = KeptState::Create();
  ASSERT_TRUE(state.ok());
  ASSERT_TRUE((*state)->AddArray(100).ok());
  const auto large = (*state)->AddArray(5 << 20);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*large) % (2 << 20), 0u);
  EXPECT_TRUE((*state)->AddArray(0).ok());
}

}  // namespace
}  // namespace elasticdl::keep
