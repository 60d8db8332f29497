#include "tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

constexpr absl::Duration kPointSpacing = absl::Milliseconds(100);
// TensorFlow's own histograms have about 1,500.
constexpr int kMaxBins = 2000;

// The few fields of tf.Event, tf.Summary and tf.SessionLog that curves need,
// encoded by hand: the messages are large and belong to TensorFlow.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kEventSessionLog = 7;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimpleValue = 2;
constexpr uint32_t kValueHistogram = 5;
constexpr uint32_t kValueTensor = 8;
constexpr uint32_t kValueMetadata = 9;
constexpr uint32_t kHistogramMin = 1;
constexpr uint32_t kHistogramMax = 2;
constexpr uint32_t kHistogramNum = 3;
constexpr uint32_t kHistogramSum = 4;
constexpr uint32_t kHistogramSumSquares = 5;
constexpr uint32_t kHistogramLimits = 6;
constexpr uint32_t kHistogramCounts = 7;
constexpr uint32_t kMetadataPlugin = 1;
constexpr uint32_t kPluginName = 1;
constexpr uint32_t kTensorType = 1;
constexpr uint32_t kTensorShape = 2;
constexpr uint32_t kTensorStrings = 8;
constexpr uint64_t kTypeString = 7;
constexpr uint32_t kSessionLogStatus = 1;
constexpr uint64_t kSessionLogStart = 1;
// With this version, the start of a session makes TensorBoard drop events of
// its step and later ones.
constexpr char kFileVersion[] = "brain.Event:2";

// Protocol Buffers' wire types.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
}

template <typename T>
void PutFixed(T value, std::string& out) {
  // Little-endian hosts only, like the rest of the formats.
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutTag(uint32_t field, uint32_t wire_type, std::string& out) {
  PutVarint(field << 3 | wire_type, out);
}

void PutBytes(uint32_t field, absl::string_view data, std::string& out) {
  PutTag(field, kBytes, out);
  PutVarint(data.size(), out);
  absl::StrAppend(&out, data);
}

// An event without its content.
std::string EventHead(int64_t step, absl::Time now) {
  std::string event;
  PutTag(kEventWallTime, kFixed64, event);
  PutFixed(absl::ToDoubleSeconds(now - absl::UnixEpoch()), event);
  PutTag(kEventStep, kVarint, event);
  PutVarint(static_cast<uint64_t>(step), event);
  return event;
}

void PutDouble(uint32_t field, double value, std::string& out) {
  PutTag(field, kFixed64, out);
  PutFixed(value, out);
}

void PutDoubles(uint32_t field,
                const google::protobuf::RepeatedField<double>& values,
                std::string& out) {
  std::string packed;
  for (const double value : values) PutFixed(value, packed);
  PutBytes(field, packed, out);
}

// Tags are UTF-8, or no reader takes the file; names may be anything.
std::string TagOf(absl::string_view folder, const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  return absl::StrCat(folder, plain ? name : absl::CHexEscape(name));
}

// Appends a tf.Summary.Value with a tf.HistogramProto.
void PutHistogram(absl::string_view folder, const v1::Histogram& histogram,
                  std::string& summary) {
  if (histogram.num() <= 0 || histogram.limits().empty() ||
      histogram.limits_size() != histogram.counts_size() ||
      histogram.limits_size() > kMaxBins ||
      !std::is_sorted(histogram.limits().begin(), histogram.limits().end())) {
    return;
  }
  std::string histo;
  PutDouble(kHistogramMin, histogram.min(), histo);
  PutDouble(kHistogramMax, histogram.max(), histo);
  PutDouble(kHistogramNum, static_cast<double>(histogram.num()), histo);
  PutDouble(kHistogramSum, histogram.sum(), histo);
  PutDouble(kHistogramSumSquares, histogram.sum_squares(), histo);
  PutDoubles(kHistogramLimits, histogram.limits(), histo);
  PutDoubles(kHistogramCounts, histogram.counts(), histo);
  std::string value;
  PutBytes(kValueTag, TagOf(folder, histogram.name()), value);
  PutBytes(kValueHistogram, histo, value);
  PutBytes(kSummaryValue, value, summary);
}

std::string FileName(absl::Time now) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  // TensorBoard recognizes files by "tfevents" and reads them in this order.
  return absl::StrCat("events.out.tfevents.", absl::ToUnixSeconds(now), ".",
                      host, ".", getpid(), ".elasticdl");
}

}  // namespace

std::string TfRecord(absl::string_view data) {
  std::string record;
  PutFixed(static_cast<uint64_t>(data.size()), record);
  PutFixed(MaskCrc32c(Crc32c(record)), record);
  absl::StrAppend(&record, data);
  PutFixed(MaskCrc32c(Crc32c(data)), record);
  return record;
}

absl::StatusOr<std::unique_ptr<TensorBoard>> TensorBoard::Open(
    const std::string& dir, const std::string& job_name, absl::Time now) {
  std::unique_ptr<TensorBoard> board(new TensorBoard());
  if (dir.empty()) return board;
  const std::string folder = JoinPath(dir, job_name);
  ELASTICDL_RETURN_IF_ERROR(
      Annotate(MakeDirectories(folder), "--tensorboard_log_dir"));
  board->path_ = JoinPath(folder, FileName(now));
  board->fd_.Reset(open(board->path_.c_str(),
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!board->fd_.valid()) {
    return ErrnoToStatus(
        errno, absl::StrCat("--tensorboard_log_dir: create ", board->path_));
  }
  std::string event = EventHead(0, now);
  PutBytes(kEventFileVersion, kFileVersion, event);
  ELASTICDL_RETURN_IF_ERROR(
      Annotate(WriteAll(board->fd_.get(), TfRecord(event), board->path_),
               "--tensorboard_log_dir"));
  return board;
}

absl::Status TensorBoard::Write(int64_t step, const Scalars& scalars,
                                absl::Time now) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    PutBytes(kValueTag, tag, value);
    PutTag(kValueSimpleValue, kFixed32, value);
    PutFixed(static_cast<float>(number), value);
    PutBytes(kSummaryValue, value, summary);
  }
  return WriteSummary(step, summary, now);
}

absl::Status TensorBoard::WriteSummary(int64_t step, absl::string_view summary,
                                       absl::Time now) {
  if (!fd_.valid()) return absl::OkStatus();
  // An earlier run of this job may have reached a later step.
  if (last_step_ < 0) ELASTICDL_RETURN_IF_ERROR(WriteStart(step, now));
  last_step_ = std::max(last_step_, step);
  std::string event = EventHead(step, now);
  PutBytes(kEventSummary, summary, event);
  return WriteAll(fd_.get(), TfRecord(event), path_);
}

absl::Status TensorBoard::WriteStart(int64_t step, absl::Time now) {
  std::string log;
  PutTag(kSessionLogStatus, kVarint, log);
  PutVarint(kSessionLogStart, log);
  std::string event = EventHead(step, now);
  PutBytes(kEventSessionLog, log, event);
  return WriteAll(fd_.get(), TfRecord(event), path_);
}

absl::Status TensorBoard::WritePoint(const TrainingPoint& point,
                                     absl::Time now) {
  return Write(point.step,
               {{"train/loss", point.loss},
                {"train/learning_rate", point.learning_rate},
                {"train/records_per_s", point.records_per_s}},
               now);
}

absl::Status TensorBoard::Training(const TrainingPoint& point, absl::Time now) {
  if (point.step <= newest_point_) return absl::OkStatus();
  newest_point_ = point.step;
  // Not simply now < next_point_: the wall clock may be set back.
  if (now < next_point_ && now >= next_point_ - kPointSpacing) {
    left_out_ = point;
    return absl::OkStatus();
  }
  next_point_ = now + kPointSpacing;
  left_out_.reset();
  return WritePoint(point, now);
}

absl::Status TensorBoard::Evaluation(
    int64_t step, const std::map<std::string, double>& metrics,
    absl::Time now) {
  Scalars scalars;
  for (const auto& [name, value] : metrics) {
    scalars.emplace_back(absl::StrCat("evaluation/", name), value);
  }
  return Write(step, scalars, now);
}

absl::Status TensorBoard::Histograms(const v1::Histograms& histograms,
                                     absl::Time now) {
  // A step that is done again after a world change has been told before.
  if (!fd_.valid() || histograms.step() <= newest_histograms_) {
    return absl::OkStatus();
  }
  std::string summary;
  for (const v1::Histogram& histogram : histograms.weights()) {
    PutHistogram("weights/", histogram, summary);
  }
  for (const v1::Histogram& histogram : histograms.gradients()) {
    PutHistogram("gradients/", histogram, summary);
  }
  if (summary.empty()) return absl::OkStatus();
  newest_histograms_ = histograms.step();
  return WriteSummary(histograms.step(), summary, now);
}

absl::Status TensorBoard::Text(const std::string& tag,
                               absl::string_view markdown, absl::Time now) {
  if (!fd_.valid()) return absl::OkStatus();
  std::string plugin;
  PutBytes(kPluginName, "text", plugin);
  std::string metadata;
  PutBytes(kMetadataPlugin, plugin, metadata);
  std::string tensor;
  PutTag(kTensorType, kVarint, tensor);
  PutVarint(kTypeString, tensor);
  // A shape without dimensions: one string.
  PutBytes(kTensorShape, "", tensor);
  PutBytes(kTensorStrings, markdown, tensor);
  std::string value;
  PutBytes(kValueTag, tag, value);
  PutBytes(kValueTensor, tensor, value);
  PutBytes(kValueMetadata, metadata, value);
  std::string summary;
  PutBytes(kSummaryValue, value, summary);
  std::string event = EventHead(0, now);
  PutBytes(kEventSummary, summary, event);
  return WriteAll(fd_.get(), TfRecord(event), path_);
}

absl::Status TensorBoard::CutBack(int64_t step, absl::Time now) {
  if (left_out_.has_value() && left_out_->step > step) left_out_.reset();
  newest_point_ = std::min(newest_point_, step);
  newest_histograms_ = std::min(newest_histograms_, step);
  if (!fd_.valid() || last_step_ <= step) return absl::OkStatus();
  last_step_ = step;
  return WriteStart(step + 1, now);
}

absl::Status TensorBoard::Finish(absl::Time now) {
  if (!left_out_.has_value()) return absl::OkStatus();
  const TrainingPoint point = *left_out_;
  left_out_.reset();
  return WritePoint(point, now);
}

}  // namespace elasticdl::master
