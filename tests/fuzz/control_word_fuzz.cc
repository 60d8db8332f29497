// The control word of a step, with any floats in it: sums of members that have
// nothing in common but their size.
#include <cstring>
#include <vector>

#include "elasticdl/elastic/control_word.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace elastic = elasticdl::elastic;
  if (size == 0) return 0;
  const int world_size = 1 + data[0] % 16;
  std::vector<float> word(elastic::ControlWordSize(world_size));
  std::memcpy(word.data(), data + 1,
              std::min(size - 1, word.size() * sizeof(float)));
  const elastic::RoundSummary summary =
      elastic::ReadControlWord(word.data(), world_size);
  (void)elastic::CheckRound(word.data(), world_size, data[0]);
  ELASTICDL_CHECK(summary.records.size() == static_cast<size_t>(world_size));
  return 0;
}
