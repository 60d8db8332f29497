#include "open.h"

#include <poll.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {
namespace {

constexpr char kOpenGroup[] = "Options";
constexpr char kOpener[] = "xdg-open";
// It starts a browser and returns, or is one and stays. What goes wrong does so
// at once.
constexpr int kOpenerMilliseconds = 2000;

// Without a screen, xdg-open would look for a browser of text.
bool HasScreen() {
  return !flags::GetEnv("DISPLAY").empty() ||
         !flags::GetEnv("WAYLAND_DISPLAY").empty() ||
         !flags::GetEnv("BROWSER").empty();
}

// Everybody on this machine sees the arguments of processes. So the browser is
// given a file that only its owner can read, and that leads to the page.
absl::StatusOr<std::string> WriteLink(const std::string& dir,
                                      const std::string& job,
                                      const std::string& url) {
  const std::string safe = absl::StrReplaceAll(
      url, {{"&", "&amp;"}, {"\"", "&quot;"}, {"<", "&lt;"}});
  const std::string path = JoinPath(dir, absl::StrCat("open-", job, ".html"));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir));
  ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(
      path,
      absl::StrCat("<!doctype html><meta charset=\"utf-8\">"
                   "<meta name=\"referrer\" content=\"no-referrer\">"
                   "<meta http-equiv=\"refresh\" content=\"0; url=",
                   safe, "\"><title>ElasticDL</title><a href=\"", safe,
                   "\">The page of the job</a>\n"),
      0600));
  return path;
}

// False: there is none, or it does not want to.
bool StartBrowser(const std::string& file) {
  process::Options options;
  options.argv = {kOpener, file};
  options.environment = flags::Environment();
  // The browser stays when this command ends.
  options.die_with_parent = false;
  const absl::StatusOr<process::Process> opener = process::Start(options);
  if (!opener.ok()) return false;
  pollfd ended = {opener->pidfd.get(), POLLIN, 0};
  if (poll(&ended, 1, kOpenerMilliseconds) != 1) return true;
  int status = 0;
  return waitpid(opener->pid, &status, 0) == opener->pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace

void ForwardPage(const JobPage& page, JobHandle& job) {
  if (!page.forwarded) return;
  std::fflush(stdout);
  std::fprintf(stderr,
               "the page is forwarded through the API server until the job "
               "ends; Ctrl-C ends only that\n");
  job.WaitEnd(absl::InfiniteDuration());
  const JobEnd end = job.End();
  std::fprintf(stderr, "job %s %s%s%s\n", job.name().c_str(), end.state.c_str(),
               end.reason.empty() ? "" : ": ", end.reason.c_str());
}

int OpenCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set(
      "elasticdl open",
      "Opens the page of a job in a browser and prints its address. The page "
      "of a job on a cluster is forwarded through the API server until Ctrl-C "
      "or the job's end.");
  JobChoice choice;
  choice.AddTo(&set);
  int64_t port = 0;
  set.Add("port", &port,
          flags::Info(kOpenGroup,
                      "On a cluster: the port of this machine on which the "
                      "page is then; 0: a free one.")
              .Min(0)
              .Max(65535));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = find(choice);
  if (!job.ok()) return Fail(set, job.status());
  const auto page = (*job)->OpenPage(static_cast<int>(port));
  if (!page.ok()) return Fail(set, page.status());
  std::printf("%s\n", page->url.c_str());
  std::fflush(stdout);
  if (HasScreen()) {
    const auto link = WriteLink(choice.state_dir, (*job)->name(), page->url);
    // The address is printed already, and some browsers may not read files of
    // hidden folders.
    if (!link.ok() || !StartBrowser(*link)) {
      std::fprintf(stderr, "%s did not start a browser%s%s: open the address\n",
                   kOpener, link.ok() ? "" : ": ",
                   std::string(link.status().message()).c_str());
    }
  } else {
    std::fprintf(stderr, "no screen here: open the address in a browser\n");
  }
  ForwardPage(*page, **job);
  return 0;
}

}  // namespace elasticdl::cli
