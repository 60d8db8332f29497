// What the files of ledger_check share. No code of the programs it checks.
#pragma once

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>

namespace elasticdl::test {

// What is wrong; the first ones are printed.
class Findings {
 public:
  template <typename... Args>
  void Add(const Args&... args) {
    if (++count_ <= 20) (std::cout << ... << args) << "\n";
  }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
};

// How often each record of one epoch's shard must be there, and is.
using Counts = std::map<std::pair<int64_t, std::string>,
                        std::map<int64_t, std::pair<int, int>>>;

}  // namespace elasticdl::test
