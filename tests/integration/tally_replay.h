// What the servers of a job with zoo/tally.cc hold, computed again from the
// job's audit in one process, with code that the programs do not share.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace elasticdl::test {

// Trains the model: each version adds -1 to every dense value, and to the row
// of a record the record's share of the version times the number of records of
// its minibatch, with the sign turned (-1 for a version of one minibatch).
// Thread-compatible.
class TallyReplay {
 public:
  // `async`: every minibatch is a version; otherwise every step of the audit.
  explicit TallyReplay(bool async, int64_t minibatch = 8)
      : async_(async), minibatch_(minibatch) {}

  // Trains the ranges of an audit up to this step. A position is taken for the
  // id of its record: with --shuffle, only whole epochs of single minibatches
  // come out right. An audit with a rollback differs from everything.
  void Train(const std::string& audit,
             int64_t last_step = std::numeric_limits<int64_t>::max());

  // How a checkpoint, or the newest one in a folder, differs, for people.
  // Empty: not at all; its version, dense values and rows are those of the
  // audits.
  std::string Compare(const std::string& path) const;

 private:
  const bool async_;
  const int64_t minibatch_;
  int64_t versions_ = 0;
  std::map<int64_t, double> rows_;
  std::string problems_;
};

}  // namespace elasticdl::test
