// The contract of Communicator: results. Failures: communicator_fault_test.cc.

#include <atomic>
#include <cstring>
#include <new>
#include <random>

#include "contracts/communicator_fixture.h"

namespace elasticdl::collective {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                               DataType::kFloat16, DataType::kInt64};

// Around nothing, vectors, and the chunks of all backends.
const std::vector<size_t>& Counts() {
  static const auto* const counts = new std::vector<size_t>{
      0,     1,     2,     3,      7,      8,      15,    16,    17,
      33,    100,   1000,  4095,   4096,   4097,   8191,  8192,  8193,
      16383, 16384, 16385, 32767,  32768,  32769,  65535, 65536, 65537,
      98303, 98304, 98305, 131071, 131072, 131073, 300001};
  return *counts;
}

// A small whole number, so that sums are exact in every type.
int ValueOf(int rank, size_t index) {
  return static_cast<int>((index * 7 + static_cast<size_t>(rank) * 3) % 11);
}

uint16_t BFloat16Of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// Of whole numbers up to 2048, which are exact.
uint16_t Float16Of(int value) {
  if (value == 0) return 0;
  int exponent = 0;
  while ((value >> (exponent + 1)) != 0) ++exponent;
  const int mantissa = (value << (10 - exponent)) & 0x3FF;
  return static_cast<uint16_t>(((exponent + 15) << 10) | mantissa);
}

void Put(std::vector<char>& data, size_t index, DataType type, int value) {
  char* const at = data.data() + index * SizeOf(type);
  const auto store = [at](auto element) {
    std::memcpy(at, &element, sizeof(element));
  };
  switch (type) {
    case DataType::kFloat32:
      return store(static_cast<float>(value));
    case DataType::kBFloat16:
      return store(BFloat16Of(static_cast<float>(value)));
    case DataType::kFloat16:
      return store(Float16Of(value));
    case DataType::kInt64:
      return store(int64_t{value});
  }
}

std::vector<char> ArrayOf(int rank, size_t count, DataType type) {
  std::vector<char> data(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) Put(data, i, type, ValueOf(rank, i));
  return data;
}

std::vector<char> SumOf(int size, size_t count, DataType type) {
  std::vector<char> data(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    int sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += ValueOf(rank, i);
    Put(data, i, type, sum);
  }
  return data;
}

std::vector<char> BytesOf(int rank, size_t bytes) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<char>(ValueOf(rank, i) * 20 + rank);
  }
  return data;
}

std::string CheckAllReduce(Communicator& world, size_t count, DataType type) {
  std::vector<char> data = ArrayOf(world.rank(), count, type);
  RANK_EXPECT_OK(world.AllReduce(data.data(), count, type, kLong));
  RANK_EXPECT(data == SumOf(world.size(), count, type), "count ", count,
              " type ", static_cast<int>(type));
  return "";
}

std::string CheckBroadcast(Communicator& world, size_t bytes, int root) {
  std::vector<char> data = BytesOf(world.rank(), bytes);
  RANK_EXPECT_OK(world.Broadcast(data.data(), bytes, root, kLong));
  RANK_EXPECT(data == BytesOf(root, bytes), "bytes ", bytes, " root ", root);
  return "";
}

std::string CheckAllGather(Communicator& world, size_t bytes) {
  const std::vector<char> in = BytesOf(world.rank(), bytes);
  std::vector<char> out(bytes * static_cast<size_t>(world.size()), 'x');
  RANK_EXPECT_OK(world.AllGather(in.data(), out.data(), bytes, kLong));
  std::vector<char> expected;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::vector<char> part = BytesOf(rank, bytes);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  RANK_EXPECT(out == expected, "bytes ", bytes);
  return "";
}

std::string CheckReduceScatter(Communicator& world, size_t count,
                               DataType type) {
  const size_t all = count * static_cast<size_t>(world.size());
  const size_t block = count * SizeOf(type);
  std::vector<char> data = ArrayOf(world.rank(), all, type);
  RANK_EXPECT_OK(world.ReduceScatter(data.data(), count, type, kLong));
  const std::vector<char> expected = SumOf(world.size(), all, type);
  const size_t offset = block * static_cast<size_t>(world.rank());
  RANK_EXPECT(block == 0 || std::memcmp(data.data() + offset,
                                        expected.data() + offset, block) == 0,
              "count ", count, " type ", static_cast<int>(type));
  return "";
}

TEST_P(CommunicatorTest, AllReduceAddsUp) {
  for (int size = 1; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) -> std::string {
      for (const DataType type : kTypes) {
        for (const size_t count : Counts()) {
          const std::string error = CheckAllReduce(world, count, type);
          if (!error.empty()) return error;
        }
      }
      return "";
    });
  }
}

TEST_P(CommunicatorTest, AllReduceOfLargeArrays) {
  for (int size = 2; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) {
      return CheckAllReduce(world, (9 << 20) + 1, DataType::kFloat32);
    });
  }
}

TEST_P(CommunicatorTest, BroadcastReachesAll) {
  for (int size = 1; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) -> std::string {
      for (int root = 0; root < world.size(); ++root) {
        for (const size_t count : Counts()) {
          const std::string error = CheckBroadcast(world, count, root);
          if (!error.empty()) return error;
        }
      }
      return CheckBroadcast(world, (5 << 20) + 3, world.size() - 1);
    });
  }
}

TEST_P(CommunicatorTest, AllGatherKeepsTheOrderOfRanks) {
  for (int size = 1; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) -> std::string {
      for (const size_t count : Counts()) {
        const std::string error = CheckAllGather(world, count);
        if (!error.empty()) return error;
      }
      return CheckAllGather(world, (3 << 20) + 5);
    });
  }
}

TEST_P(CommunicatorTest, AllGatherWorksInPlace) {
  RunWorld(Members(3), [](Communicator& world) -> std::string {
    constexpr size_t kBytes = 100001;
    std::vector<char> all(kBytes * static_cast<size_t>(world.size()));
    char* const own = all.data() + kBytes * static_cast<size_t>(world.rank());
    const std::vector<char> in = BytesOf(world.rank(), kBytes);
    std::memcpy(own, in.data(), kBytes);
    RANK_EXPECT_OK(world.AllGather(own, all.data(), kBytes, kLong));
    for (int rank = 0; rank < world.size(); ++rank) {
      RANK_EXPECT(std::memcmp(all.data() + kBytes * static_cast<size_t>(rank),
                              BytesOf(rank, kBytes).data(), kBytes) == 0);
    }
    return "";
  });
}

TEST_P(CommunicatorTest, ReduceScatterLeavesOwnSum) {
  for (int size = 1; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) -> std::string {
      for (const DataType type : kTypes) {
        for (const size_t count : Counts()) {
          const std::string error = CheckReduceScatter(world, count, type);
          if (!error.empty()) return error;
        }
      }
      return "";
    });
  }
}

TEST_P(CommunicatorTest, BarrierWaitsForAll) {
  // How many have come to a barrier so far.
  auto* const arrived = static_cast<std::atomic<int>*>(SharedPage());
  RunWorld(Members(4), [arrived](Communicator& world) -> std::string {
    for (int round = 1; round <= 200; ++round) {
      arrived->fetch_add(1);
      RANK_EXPECT_OK(world.Barrier(kLong));
      RANK_EXPECT(arrived->load() >= round * world.size(), "round ", round);
    }
    return "";
  });
}

// Random numbers of very different sizes: the order of additions shows.
TEST_P(CommunicatorTest, ResultsAreBitwiseTheSame) {
  for (int size = 2; size <= Members(4); ++size) {
    RunWorld(size, [](Communicator& world) -> std::string {
      for (const DataType type :
           {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
        for (const size_t count : {5, 1000, 20001, 200003}) {
          std::mt19937 random(static_cast<unsigned>(world.rank() + 1));
          std::vector<char> data(count * SizeOf(type));
          for (char& byte : data) byte = static_cast<char>(random());
          RANK_EXPECT_OK(world.AllReduce(data.data(), count, type, kLong));
          std::vector<char> all(data.size() *
                                static_cast<size_t>(world.size()));
          RANK_EXPECT_OK(
              world.AllGather(data.data(), all.data(), data.size(), kLong));
          for (int rank = 0; rank < world.size(); ++rank) {
            RANK_EXPECT(std::memcmp(all.data() +
                                        data.size() * static_cast<size_t>(rank),
                                    data.data(), data.size()) == 0,
                        "rank ", rank, " count ", count, " type ",
                        static_cast<int>(type));
          }
        }
      }
      return "";
    });
  }
}

TEST_P(CommunicatorTest, ManyRandomOperations) {
  const unsigned seed = SharedSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (int size = 2; size <= Members(4); ++size) {
    RunWorld(size, [seed](Communicator& world) -> std::string {
      std::mt19937 random(seed);
      for (int i = 0; i < 300; ++i) {
        // Mostly small, sometimes over several chunks.
        const size_t limit = random() % 10 == 0 ? 200000 : 3000;
        const size_t count = random() % limit;
        const DataType type = kTypes[random() % 4];
        const int root = static_cast<int>(random() % world.size());
        std::string error;
        switch (random() % 5) {
          case 0:
            error = CheckAllReduce(world, count, type);
            break;
          case 1:
            error = CheckBroadcast(world, count, root);
            break;
          case 2:
            error = CheckAllGather(world, count);
            break;
          case 3:
            error = CheckReduceScatter(world, count, type);
            break;
          default:
            RANK_EXPECT_OK(world.Barrier(kLong));
        }
        if (!error.empty()) return absl::StrCat("operation ", i, ": ", error);
      }
      return "";
    });
  }
}

// A member that has finished its last operation may go; the others finish too.
// More members than a full mesh has.
TEST_P(CommunicatorTest, LargeWorld) {
  if (GetParam().option != "tcp" && GetParam().option != "auto") {
    GTEST_SKIP() << "connects all members with each other, at any size";
  }
  constexpr int kSize = 64;
  static_assert(kSize > kFullMeshMembers);
  RunWorld(kSize, [](Communicator& world) -> std::string {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{100000}}) {
      auto data = ArrayOf(world.rank(), count, DataType::kFloat32);
      RANK_EXPECT_OK(
          world.AllReduce(data.data(), count, DataType::kFloat32, kLong));
      RANK_EXPECT(data == SumOf(kSize, count, DataType::kFloat32));
    }
    for (const size_t bytes : {size_t{8}, size_t{200000}}) {
      const int root = 37;
      std::vector<char> data(bytes, world.rank() == root ? 'r' : 'x');
      RANK_EXPECT_OK(world.Broadcast(data.data(), bytes, root, kLong));
      RANK_EXPECT(data == std::vector<char>(bytes, 'r'));
    }
    std::vector<int> all(kSize);
    const int mine = world.rank() * 3;
    RANK_EXPECT_OK(world.AllGather(&mine, all.data(), sizeof(mine), kLong));
    for (int rank = 0; rank < kSize; ++rank) {
      RANK_EXPECT(all[static_cast<size_t>(rank)] == rank * 3);
    }
    RANK_EXPECT_OK(world.Barrier(kLong));
    return "";
  });
}

TEST_P(CommunicatorTest, LeavingAfterAnOperationDisturbsNobody) {
  for (int round = 0; round < 20; ++round) {
    RunWorld(Members(3), [round](Communicator& world) -> std::string {
      if (round % 2 == 0) {
        return CheckBroadcast(world, 100000, round % world.size());
      }
      return CheckAllReduce(world, 50000, DataType::kFloat32);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest,
                         testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace elasticdl::collective
