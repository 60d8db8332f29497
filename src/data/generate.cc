// Records of categorical fields whose label follows a factorization machine:
//   logit = bias + sum of weights + sum over pairs of fields of <v, v'>,
// with weights and vectors drawn from (field, value), never stored.
#include "elasticdl/data/generate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/example.h"
#include "random.h"

namespace elasticdl::data {
namespace {

using internal::Random;

constexpr size_t kRank = 4;
constexpr int64_t kProgressEvery = 5000;

// A categorical field.
struct Field {
  const char* name;
  uint64_t size;  // values 0 … size - 1, small ones more frequent
  double weight;  // standard deviation of the values' weights
  double factor;  // … and of each component of their vectors
  std::vector<const char*> values{};  // for census
};

// Zipf-like: the density falls as 1 / (value + 1).
uint64_t DrawValue(uint64_t size, Random& random) {
  const double value =
      std::pow(static_cast<double>(size) + 1, random.Uniform()) - 1;
  return std::min(static_cast<uint64_t>(value), size - 1);
}

// Knows the truth about records. Thread-compatible.
class Truth {
 public:
  Truth(std::vector<Field> fields, double bias, uint64_t seed)
      : fields_(std::move(fields)), bias_(bias), seed_(seed) {}

  const std::vector<Field>& fields() const { return fields_; }

  std::vector<uint64_t> Draw(Random& random) const {
    std::vector<uint64_t> values;
    values.reserve(fields_.size());
    for (const Field& field : fields_) {
      values.push_back(DrawValue(field.size, random));
    }
    return values;
  }

  double Probability(const std::vector<uint64_t>& values) const {
    double logit = bias_;
    double sum[kRank] = {};
    double squares = 0;
    for (size_t i = 0; i < fields_.size(); ++i) {
      Random random(seed_ ^ MixHash(i * 0x100000001 + values[i]));
      logit += fields_[i].weight * random.Normal();
      for (double& component : sum) {
        const double v = fields_[i].factor * random.Normal();
        component += v;
        squares += v * v;
      }
    }
    for (const double component : sum) logit += component * component / 2;
    logit -= squares / 2;
    return 1 / (1 + std::exp(-logit));
  }

 private:
  const std::vector<Field> fields_;
  const double bias_;
  const uint64_t seed_;
};

using Encode = std::function<void(const Truth&, const std::vector<uint64_t>&,
                                  Random&, ExampleBuilder&)>;

struct Recipe {
  const char* set;
  double bias;
  std::vector<Field> (*fields)();
  Encode encode;
};

// The ten fields of the Frappe data; together 5382 values.
std::vector<Field> FrappeFields() {
  return {{"user", 957, 0.6, 0.35},   {"item", 4082, 0.8, 0.35},
          {"daytime", 7, 0.3, 0.25},  {"weekday", 7, 0.2, 0.2},
          {"isweekend", 2, 0.2, 0.2}, {"homework", 3, 0.3, 0.2},
          {"cost", 2, 0.3, 0.2},      {"weather", 9, 0.3, 0.2},
          {"country", 80, 0.4, 0.25}, {"city", 233, 0.4, 0.25}};
}

void EncodeFrappe(const Truth& truth, const std::vector<uint64_t>& values,
                  Random&, ExampleBuilder& builder) {
  std::vector<int64_t> ids;
  int64_t offset = 1;  // 0 is left for padding
  for (size_t i = 0; i < values.size(); ++i) {
    ids.push_back(offset + static_cast<int64_t>(values[i]));
    offset += static_cast<int64_t>(truth.fields()[i].size);
  }
  builder.SetInt64s("feature", ids);
}

// Fields without values are numbers: value × step + noise.
std::vector<Field> CensusFields() {
  return {
      {"age", 15, 0.6, 0.15},
      {"education-num", 16, 0.5, 0.15},
      {"capital-gain", 8, 0.7, 0.1},
      {"capital-loss", 6, 0.4, 0.1},
      {"hours-per-week", 10, 0.5, 0.15},
      {"workclass",
       9,
       0.4,
       0.2,
       {"Private", "Self-emp-not-inc", "Local-gov", "?", "State-gov",
        "Self-emp-inc", "Federal-gov", "Without-pay", "Never-worked"}},
      {"education",
       16,
       0.6,
       0.25,
       {"HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc", "11th",
        "Assoc-acdm", "10th", "7th-8th", "Prof-school", "9th", "12th",
        "Doctorate", "5th-6th", "1st-4th", "Preschool"}},
      {"marital-status",
       7,
       0.8,
       0.25,
       {"Married-civ-spouse", "Never-married", "Divorced", "Separated",
        "Widowed", "Married-spouse-absent", "Married-AF-spouse"}},
      {"occupation",
       15,
       0.6,
       0.3,
       {"Prof-specialty", "Craft-repair", "Exec-managerial", "Adm-clerical",
        "Sales", "Other-service", "Machine-op-inspct", "?", "Transport-moving",
        "Handlers-cleaners", "Farming-fishing", "Tech-support",
        "Protective-serv", "Priv-house-serv", "Armed-Forces"}},
      {"relationship",
       6,
       0.6,
       0.25,
       {"Husband", "Not-in-family", "Own-child", "Unmarried", "Wife",
        "Other-relative"}},
      {"race",
       5,
       0.2,
       0.1,
       {"White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"}},
      {"sex", 2, 0.3, 0.1, {"Male", "Female"}},
      {"native-country",
       10,
       0.2,
       0.1,
       {"United-States", "Mexico", "?", "Philippines", "Germany", "Canada",
        "Puerto-Rico", "El-Salvador", "India", "Cuba"}},
  };
}

void EncodeCensus(const Truth& truth, const std::vector<uint64_t>& values,
                  Random& random, ExampleBuilder& builder) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Field& field = truth.fields()[i];
    if (!field.values.empty()) {
      builder.SetBytes(field.name, absl::string_view(field.values[values[i]]));
      continue;
    }
    const absl::string_view name = field.name;
    const double step = name == "age"              ? 5
                        : name == "education-num"  ? 1
                        : name == "hours-per-week" ? 10
                                                   : 500;
    const double start = name == "age" ? 17 : name == "education-num" ? 1 : 0;
    const double noise =
        step > 1
            ? static_cast<double>(random.Below(static_cast<uint64_t>(step)))
            : 0;
    const double value = start + step * static_cast<double>(values[i]) + noise;
    builder.SetFloat(name, static_cast<float>(value));
  }
}

// Thirteen numbers and 26 categories like Criteo's logs.
std::vector<Field> CtrFields() {
  static constexpr const char* kNumbers[] = {"I1",  "I2",  "I3", "I4", "I5",
                                             "I6",  "I7",  "I8", "I9", "I10",
                                             "I11", "I12", "I13"};
  static constexpr const char* kCategories[] = {
      "C1",  "C2",  "C3",  "C4",  "C5",  "C6",  "C7",  "C8",  "C9",
      "C10", "C11", "C12", "C13", "C14", "C15", "C16", "C17", "C18",
      "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26"};
  static constexpr uint64_t kSizes[] = {
      1000, 500,  5000, 3000, 300, 20,   5000, 600, 3,
      5000, 4000, 5000, 3000, 26,  5000, 5000, 10,  4000,
      2000, 4,    5000, 18,   15,  5000, 100,  5000};
  std::vector<Field> fields;
  for (const char* name : kNumbers) fields.push_back({name, 24, 0.2, 0.08});
  for (size_t i = 0; i < 26; ++i) {
    fields.push_back({kCategories[i], kSizes[i], 0.3, 0.15});
  }
  return fields;
}

// Value 0, the most frequent one, is "missing".
void EncodeCtr(const Truth& truth, const std::vector<uint64_t>& values, Random&,
               ExampleBuilder& builder) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Field& field = truth.fields()[i];
    if (field.name[0] == 'I') {
      // Growing gaps, as counters have them.
      const uint64_t value =
          values[i] < 8 ? values[i] : 8 * (values[i] - 7) * (values[i] - 7);
      builder.SetInt64(field.name, static_cast<int64_t>(value));
    } else if (values[i] == 0) {
      builder.SetBytes(field.name, absl::string_view());
    } else {
      builder.SetBytes(field.name,
                       absl::string_view(absl::StrFormat(
                           "%08x", static_cast<uint32_t>(
                                       MixHash(i * 0x100000001 + values[i])))));
    }
  }
}

const std::vector<Recipe>& Recipes() {
  static const auto* recipes = new std::vector<Recipe>{
      {"ctr", -1.2, CtrFields, EncodeCtr},
      {"census", -1.0, CensusFields, EncodeCensus},
      {"frappe", -0.7, FrappeFields, EncodeFrappe},
  };
  return *recipes;
}

// Writes one folder. Probabilities of its records go to `probabilities` when
// that is not null.
absl::StatusOr<int64_t> WritePart(const Recipe& recipe, const Truth& truth,
                                  const OutputOptions& output, int64_t records,
                                  uint64_t seed, const Progress& progress,
                                  std::vector<double>* probabilities) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto writer, DatasetWriter::Create(output));
  Random random(seed);
  ExampleBuilder builder;
  std::string record;
  for (int64_t i = 0; i < records; ++i) {
    const std::vector<uint64_t> values = truth.Draw(random);
    const double probability = truth.Probability(values);
    if (probabilities != nullptr) probabilities->push_back(probability);
    builder.Clear();
    recipe.encode(truth, values, random, builder);
    builder.SetInt64("label", random.Uniform() < probability ? 1 : 0);
    builder.SerializeTo(record);
    ELASTICDL_RETURN_IF_ERROR(writer->Write(record));
    if (progress && (i + 1) % kProgressEvery == 0) progress(i + 1, records);
  }
  ELASTICDL_RETURN_IF_ERROR(writer->Close());
  if (progress) progress(records, records);
  return writer->num_records();
}

absl::StatusOr<GenerateResult> Generate(const Recipe& recipe,
                                        const GenerateOptions& options) {
  const int64_t test_records = options.test_records >= 0
                                   ? options.test_records
                                   : std::max<int64_t>(1, options.records / 10);
  if (options.records < 1 || test_records < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "generate ", recipe.set, ": ", options.records, " records and ",
        test_records, " test records, expected at least 1"));
  }
  const Truth truth(recipe.fields(), recipe.bias, MixHash(options.seed));
  OutputOptions output = options.output;
  GenerateResult result;
  output.directory = JoinPath(options.output.directory, "train");
  ELASTICDL_ASSIGN_OR_RETURN(
      result.train_records,
      WritePart(recipe, truth, output, options.records,
                MixHash(options.seed + 1), options.progress, nullptr));
  output.directory = JoinPath(options.output.directory, "test");
  std::vector<double> probabilities;
  ELASTICDL_ASSIGN_OR_RETURN(
      result.test_records,
      WritePart(recipe, truth, output, test_records, MixHash(~options.seed),
                options.progress, &probabilities));
  for (const double p : probabilities) result.positives += p;
  result.positives /= static_cast<double>(probabilities.size());
  result.best_auc = ExpectedAuc(std::move(probabilities));
  return result;
}

}  // namespace

std::vector<std::string> GeneratableSets() {
  std::vector<std::string> names;
  for (const Recipe& recipe : Recipes()) names.emplace_back(recipe.set);
  return names;
}

absl::StatusOr<GenerateResult> GenerateDataset(const std::string& set,
                                               const GenerateOptions& options) {
  for (const Recipe& recipe : Recipes()) {
    if (set == recipe.set) return Generate(recipe, options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown data set '", set, "', expected one of ",
                   absl::StrJoin(GeneratableSets(), ", ")));
}

// Sum over pairs (i, j) of p_i (1 - p_j) that are ranked rightly, half for
// ties, over the sum of all with i != j.
double ExpectedAuc(std::vector<double> p) {
  std::sort(p.begin(), p.end());
  double negatives_below = 0;
  double right = 0;
  double positives = 0;
  double own = 0;
  for (size_t i = 0; i < p.size();) {
    size_t end = i;
    double tie_negatives = 0;
    double tie_positives = 0;
    double tie_own = 0;
    for (; end < p.size() && p[end] == p[i]; ++end) {
      tie_positives += p[end];
      tie_negatives += 1 - p[end];
      tie_own += p[end] * (1 - p[end]);
    }
    right += tie_positives * negatives_below +
             (tie_positives * tie_negatives - tie_own) / 2;
    negatives_below += tie_negatives;
    positives += tie_positives;
    own += tie_own;
    i = end;
  }
  const double all = positives * negatives_below - own;
  return all > 0 ? right / all : 0.5;
}

}  // namespace elasticdl::data
