// A real master for benchmarks, and what it costs.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "simulated_fleet.h"

namespace elasticdl {

struct Master {
  pid_t pid = 0;
  std::string dir;
  int port = 0;
  std::string token;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// `pods`: --pod_backend.
inline Master StartMaster(const std::string& program, int workers,
                          const std::string& pods = "none") {
  Master master;
  char dir[] = "/tmp/simulated-master-XXXXXX";
  master.dir = mkdtemp(dir);
  const std::vector<std::string> arguments = {
      program,
      "--job_name=scale",
      absl::StrCat("--state_dir=", master.dir),
      absl::StrCat("--pod_backend=", pods),
      "--port=0",
      absl::StrCat("--num_workers=", workers),
      "--model_def=none.custom_model",
      "--training_data=synthetic:records=1000000000",
      "--progress=none",
      "--log_level=WARNING"};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  fflush(stdout);
  master.pid = fork();
  if (master.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(127);
    execv(program.c_str(), argv.data());
    perror(program.c_str());
    _exit(127);
  }
  const std::string job = absl::StrCat(master.dir, "/jobs/scale/");
  std::string address;
  while (address.empty()) {
    absl::SleepFor(absl::Milliseconds(20));
    address = ReadAll(job + "address");
    absl::StripAsciiWhitespace(&address);
    if (waitpid(master.pid, nullptr, WNOHANG) == master.pid) exit(1);
  }
  const std::string port = address.substr(address.rfind(':') + 1);
  if (!absl::SimpleAtoi(port, &master.port)) Die("no port in " + address);
  master.token =
      std::string(absl::StripAsciiWhitespace(ReadAll(job + "token")));
  return master;
}

// CPU time in seconds and memory in megabytes of a process.
inline double CpuSeconds(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string word;
  double ticks = 0;
  for (int i = 1; i <= 15 && in >> word; ++i) {
    if (i >= 14) ticks += atof(word.c_str());
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}
inline double Megabytes(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

inline void EndMaster(const Master& master) {
  kill(master.pid, SIGKILL);
  waitpid(master.pid, nullptr, 0);
  if (system(absl::StrCat("rm -rf ", master.dir).c_str()) != 0) {
    fprintf(stderr, "cannot remove %s\n", master.dir.c_str());
  }
}

}  // namespace elasticdl
