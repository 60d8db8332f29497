// --tensorboard_log_dir: curves of a job as TensorBoard's event files.
//
// One file per run of a job, DIR/<job>/events.out.tfevents.<seconds>.…: records
// of the TFRecord format, each a serialised tf.Event. Tags: train/loss,
// train/learning_rate, train/records_per_s, evaluation/<metric>,
// weights/<parameter>, gradients/<parameter>; the step is the model's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// One record of the TFRecord format: length, its masked CRC-32C, data, its
// masked CRC-32C.
std::string TfRecord(absl::string_view data);

// Thread-compatible. Each event reaches the kernel in one write; nothing is
// synced. Errors are the caller's to report; the writer stays usable.
class TensorBoard {
 public:
  struct TrainingPoint {
    int64_t step = 0;
    double loss = 0;
    double learning_rate = 0;
    double records_per_s = 0;
  };

  // `now` is wall-clock time. Creates the folder and the file. With an empty
  // `dir` everything is dropped.
  static absl::StatusOr<std::unique_ptr<TensorBoard>> Open(
      const std::string& dir, const std::string& job_name, absl::Time now);

  // Writes at most ten points per second: a curve cannot show more, and fast
  // jobs make thousands. Finish writes the newest of the omitted ones. If
  // several workers report a step, the first report counts.
  absl::Status Training(const TrainingPoint& point, absl::Time now);
  absl::Status Evaluation(int64_t step,
                          const std::map<std::string, double>& metrics,
                          absl::Time now);
  // For the pages "Histograms" and "Distributions". Those whose lists do not
  // fit together are left out: they come from workers.
  absl::Status Histograms(const v1::Histograms& histograms, absl::Time now);
  // Markdown for the page "Text", at step 0.
  absl::Status Text(const std::string& tag, absl::string_view markdown,
                    absl::Time now);
  // Rollback to `step`: points of later steps are void, and TensorBoard removes
  // them from the curves.
  absl::Status CutBack(int64_t step, absl::Time now);
  absl::Status Finish(absl::Time now);

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;
  TensorBoard() = default;
  absl::Status Write(int64_t step, const Scalars& scalars, absl::Time now);
  // `summary`: a serialised tf.Summary.
  absl::Status WriteSummary(int64_t step, absl::string_view summary,
                            absl::Time now);
  absl::Status WritePoint(const TrainingPoint& point, absl::Time now);
  absl::Status WriteStart(int64_t step, absl::Time now);

  Fd fd_;
  std::string path_;
  // The latest one written; below 0 before the first.
  int64_t last_step_ = -1;
  // Of all points, including omitted ones.
  int64_t newest_point_ = -1;
  int64_t newest_histograms_ = -1;
  absl::Time next_point_ = absl::InfinitePast();
  std::optional<TrainingPoint> left_out_;
};

}  // namespace elasticdl::master
