#include "zoo/docker_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/docker/progress.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::cli {
namespace {

void WriteOut(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  // Show each step at once, in a pipe too.
  std::fflush(stdout);
}

// While it exists, Ctrl-C ends this program at once, even if signals are
// handled otherwise: nothing has been submitted yet, and the engine stops its
// work when the connection closes.
class InterruptsEndProgram {
 public:
  InterruptsEndProgram() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_UNBLOCK, &signals, &before_);
  }
  ~InterruptsEndProgram() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InterruptsEndProgram(const InterruptsEndProgram&) = delete;
  InterruptsEndProgram& operator=(const InterruptsEndProgram&) = delete;

 private:
  sigset_t before_;
};

docker::ProgressDisplay NewDisplay() {
  return docker::ProgressDisplay(isatty(STDOUT_FILENO) == 1, WriteOut);
}

}  // namespace

docker::EngineOptions EngineOptionsFromEnvironment() {
  docker::EngineOptions options;
  options.host = flags::GetEnv("DOCKER_HOST");
  // Any value except the empty one means yes, as in the docker program.
  options.tls_verify = !flags::GetEnv("DOCKER_TLS_VERIFY").empty();
  options.cert_path = flags::GetEnv("DOCKER_CERT_PATH");
  options.config_dir = flags::GetEnv("DOCKER_CONFIG");
  if (options.config_dir.empty()) {
    options.config_dir = JoinPath(flags::HomeDir(), ".docker");
  }
  options.path = flags::GetEnv("PATH");
  return options;
}

absl::Status BuildImage(docker::Engine& engine,
                        const docker::BuildOptions& options,
                        const docker::BuildContext& context) {
  const InterruptsEndProgram interrupts;
  docker::ProgressDisplay display = NewDisplay();
  WriteOut(absl::StrCat("Sending ", Count(context.num_files, "file"), ", ",
                        docker::FormatSize(context.bytes), "\n"));
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::string id,
      engine.Build(options, context, [&](const docker::Progress& progress) {
        display.Show(progress);
      }));
  WriteOut(absl::StrCat("Built ", options.image, " (", id, ")\n"));
  return absl::OkStatus();
}

absl::Status PushImage(docker::Engine& engine, const std::string& image) {
  const InterruptsEndProgram interrupts;
  docker::ProgressDisplay display = NewDisplay();
  ELASTICDL_RETURN_IF_ERROR(engine.Push(
      image,
      [&](const docker::Progress& progress) { display.Show(progress); }));
  WriteOut(absl::StrCat("Pushed ", image, "\n"));
  return absl::OkStatus();
}

}  // namespace elasticdl::cli
