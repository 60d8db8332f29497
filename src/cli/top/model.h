// What `elasticdl top` shows: the merged responses of /api/v1/update.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// Thread-compatible; pure.
class TopModel {
 public:
  struct Span {
    int64_t row = 0;
    bool server = false;
    int64_t member = 0;
    std::string state;
    double begin = 0;
    // Below 0: goes on.
    double end = -1;
    bool lost = false;
  };
  struct Pod {
    std::string name;
    bool server = false;
    int64_t id = 0;
    int64_t pid = 0;
    // As the master says, or what the lane says of one that runs.
    std::string state;
    // Below 0: not known.
    double memory_bytes = -1;
    double cpu_cores = -1;
    double records_per_s = -1;
    double step_ms = -1;
    double rows = -1;
  };

  // One answer. INVALID_ARGUMENT: not one.
  absl::Status Add(const std::string& json);

  // For `since` of the next request.
  int64_t cursor() const { return cursor_; }
  double begin() const { return begin_; }
  double now() const { return now_; }
  std::string Text(const char* field) const;
  // 0 if it is not there.
  double Number(const char* field) const;
  bool Has(const char* field) const { return numbers_.count(field) > 0; }
  // Of the totals and of the step time; 0 if it is not there.
  double Total(const char* field) const;
  double StepTime(const char* field) const;
  // Below 0: nobody is slower than the others.
  int64_t slowest() const;
  const std::vector<Pod>& pods() const { return pods_; }
  std::vector<Span> SpansOf(const Pod& pod) const;

 private:
  void TakePods();

  int64_t cursor_ = 0;
  double begin_ = 0;
  double now_ = 0;
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> numbers_;
  std::map<std::string, double> totals_;
  std::map<std::string, double> step_time_;
  int64_t slowest_ = -1;
  std::vector<Pod> pods_;
  std::map<int64_t, Span> spans_;
};

}  // namespace elasticdl::cli
