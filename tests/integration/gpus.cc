#include "integration/gpus.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace elasticdl::test {

TestGpus ParseDevices(const std::string& text) {
  TestGpus gpus;
  gpus.why_none = absl::StrCat("elasticdl-worker --show_devices said: ", text);
  gpus.why_no_nccl = gpus.why_none;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const auto fact =
        nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!fact.is_object()) continue;
    const std::string name = fact.value("name", "");
    const std::string detail = fact.value("detail", "");
    const bool found = fact.value("state", "") == "ok";
    if (name == "GPUs of workers") {
      gpus.why_none = found ? "" : fact.value("advice", detail);
      // "cuda:0" or "cuda:0 to cuda:3".
      int last = -1;
      if (found &&
          absl::SimpleAtoi(detail.substr(detail.rfind(':') + 1), &last)) {
        gpus.count = last + 1;
      }
    }
    if (name == "NCCL plugin") gpus.why_no_nccl = found ? "" : detail;
  }
  return gpus;
}

TestGpus FindGpus(const std::string& preloaded, bool want_real,
                  const std::function<std::string()>& show_devices) {
  TestGpus gpus;
  if (absl::StrContains(preloaded, "test_device")) {
    // More than any test needs.
    gpus.count = 16;
    return gpus;
  }
  if (!want_real) {
    gpus.why_none = "the test device is not preloaded";
    return gpus;
  }
  gpus = ParseDevices(show_devices());
  gpus.real = true;
  return gpus;
}

}  // namespace elasticdl::test
