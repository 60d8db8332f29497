// Makes sparse click-through data whose true probabilities are known, so that
// the best reachable AUC is known too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/data/convert.h"

namespace elasticdl::data {

struct GenerateOptions {
  int64_t records = 100000;   // in train
  int64_t test_records = -1;  // in test; < 0: a tenth of `records`
  uint64_t seed = 1;
  // Gets folders train and test; output.directory is the parent of both.
  OutputOptions output;
  Progress progress;
};

struct GenerateResult {
  int64_t train_records = 0;
  int64_t test_records = 0;
  // Expected AUC on the test records of a model that knows the probabilities.
  double best_auc = 0;
  // The part of test records with label 1.
  double positives = 0;
};

// frappe  feature int64[10] (ids 1 to 5382, one per field), label int64
// census  the columns of UCI's adult data: age, education-num, capital-gain,
//         capital-loss, hours-per-week float; workclass, education,
//         marital-status, occupation, relationship, race, sex, native-country
//         bytes; label int64
// ctr     I1 … I13 int64 (0 if missing), C1 … C26 bytes ("" if missing),
//         label int64
std::vector<std::string> GeneratableSets();

// INVALID_ARGUMENT for an unknown set.
absl::StatusOr<GenerateResult> GenerateDataset(const std::string& set,
                                               const GenerateOptions& options);

// The AUC to expect of scores p when the label of each is 1 with probability p.
double ExpectedAuc(std::vector<double> probabilities);

}  // namespace elasticdl::data
