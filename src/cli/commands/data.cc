// Dispatch of `elasticdl data`.
#include "commands/data.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "commands/data_commands.h"
#include "suggest.h"

namespace elasticdl::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

constexpr Command kCommands[] = {
    {"convert", "IDX, CSV or PNG grid to RecordIO of tf.Example",
     RunDataConvert},
    {"fetch", "get mnist, fashion-mnist or cifar10 and convert it",
     RunDataFetch},
    {"generate", "make click-through data with a known best AUC",
     RunDataGenerate},
    {"info", "records, files, bytes, chunks, compressor", RunDataInfo},
    {"head", "show the first records", RunDataHead},
    {"verify", "check every chunk of RecordIO files", RunDataVerify},
};

std::string Help() {
  std::string help =
      "usage: elasticdl data COMMAND [ARGUMENTS]\n\n"
      "Make, get and look into data sets.\n\nCommands:\n";
  for (const Command& command : kCommands) {
    absl::StrAppend(&help, "  ", command.name,
                    std::string(10 - std::string(command.name).size(), ' '),
                    command.summary, "\n");
  }
  return help + "\nelasticdl data COMMAND --help shows its flags.\n";
}

}  // namespace

int RunData(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::cerr << Help();
    return 2;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    std::cout << Help();
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
    if (args[0] == command.name) {
      return command.run({args.begin() + 1, args.end()});
    }
  }
  const std::string nearest = Nearest(args[0], names);
  std::cerr << "elasticdl data: unknown command '" << args[0] << "'"
            << (nearest.empty() ? "" : ", did you mean '" + nearest + "'?")
            << "\n";
  return 2;
}

}  // namespace elasticdl::cli
