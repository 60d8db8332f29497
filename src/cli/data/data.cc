// Dispatch of `elasticdl data`.
#include "data/data.h"

#include "command.h"
#include "data/data_commands.h"

namespace elasticdl::cli {

int RunData(const std::vector<std::string>& args) {
  static const auto* commands = new std::vector<Command>{
      {"convert", "IDX, CSV or PNG grid to RecordIO of tf.Example.",
       RunDataConvert},
      {"fetch", "Get mnist, fashion-mnist or cifar10 and convert it.",
       RunDataFetch},
      {"generate", "Make click-through data with a known best AUC.",
       RunDataGenerate},
      {"info", "Count records, files, bytes and chunks.", RunDataInfo},
      {"head", "Show the first records.", RunDataHead},
      {"verify", "Check every chunk of RecordIO files.", RunDataVerify},
  };
  return Dispatch("elasticdl data", "Make, get and look into data sets.",
                  *commands, args);
}

}  // namespace elasticdl::cli
