// elasticdl-sentinel: the first process of a pod, which starts a worker or a
// server and closes its connections as soon as it is killed.
#include <iostream>
#include <string>
#include <vector>

#include "elasticdl/common/log.h"
#include "elasticdl/sentinel.h"

namespace elasticdl::programs {
namespace {

constexpr char kUsage[] =
    "elasticdl-sentinel PROGRAM [ARGUMENT...]: runs a worker or a parameter\n"
    "server as the first process of a pod. Forwards signals to it, waits for\n"
    "processes that it leaves behind, closes its connections as soon as it is\n"
    "killed, and exits with its exit code, or 128 + the signal that ended "
    "it.\n";

int Main(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help") {
    (args.empty() ? std::cerr : std::cout) << kUsage;
    return args.empty() ? 2 : 0;
  }
  InitLog("sentinel", LogLevel::kInfo);
  const absl::StatusOr<int> code = process::RunSentinel(args);
  if (code.ok()) return *code;
  std::cerr << "elasticdl-sentinel: " << code.status().message() << "\n";
  // As shells say that a program was not found, or could not be executed.
  return absl::IsNotFound(code.status()) ? 127 : 126;
}

}  // namespace
}  // namespace elasticdl::programs

int main(int argc, char** argv) {
  return elasticdl::programs::Main({argv + 1, argv + argc});
}
