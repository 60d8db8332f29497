// --config files, YAML in general, and the grammars of flag values.
#include "config_file.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/yaml_json.h"
#include "fuzz.h"

namespace elasticdl::flags {
namespace {

void Run(absl::string_view bytes) {
  const std::string text(bytes);
  {
    const fuzz::MemoryFile file(bytes);
    static_cast<void>(ReadConfigFile(file.path()).ok());
  }
  const auto json = JsonFromYaml(text);
  if (json.ok()) {
    const auto again = JsonFromYaml(YamlFromJson(*json));
    ELASTICDL_CHECK(again.ok() && *again == *json);
  }
  const auto resources = ParseResources(text);
  if (resources.ok()) {
    const auto again = ParseResources(FormatResources(*resources));
    ELASTICDL_CHECK(again.ok() && *again == *resources);
  }
  static_cast<void>(ParseVolumes(text).ok());
  static_cast<void>(ParseEnvs(text).ok());
  static_cast<void>(ParseWorkerPriority(text).ok());
  static_cast<void>(ParseKeyValues(text, /*allow_commas=*/true).ok());
  static_cast<void>(ParseAuxParams(text).ok());
  static_cast<void>(ParseAddresses(text).ok());
  static_cast<void>(CheckImageName(text).ok());
  static_cast<void>(CheckClusterSpecJson(text).ok());
}

}  // namespace
}  // namespace elasticdl::flags

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::flags::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
