// The charts.
#include "chart.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "chart_frame.h"

namespace elasticdl::experiment {
namespace {

constexpr double kLeft = 64;
constexpr double kRight = 22;
constexpr double kBottom = 46;

std::string Color(size_t series) {
  return absl::StrCat("var(--c", series % 8, ")");
}

bool HasInterval(const Point& point) { return point.low <= point.high; }

// The frame of a LineChart, and its scales. Thread-compatible.
class LinePlot {
 public:
  explicit LinePlot(const LineChart& chart)
      : chart_(chart), out_(Begin(chart.title)), top_(DrawLegend()) {}

  std::string Finish() {
    const double bottom = kHeight - kBottom;
    if (!FindRange()) {
      absl::StrAppend(
          &out_, TextAt(kWidth / 2, kHeight / 2, "middle", "no results yet"),
          "</svg>\n");
      return out_;
    }
    const Scale x(x_from_, x_to_, kLeft, kWidth - kRight, chart_.log_x);
    const Scale y(y_from_, y_to_, bottom, top_, false);
    DrawAxes(x, y);
    for (size_t i = 0; i < chart_.series.size(); ++i) {
      DrawSeries(chart_.series[i], i, x, y);
    }
    return out_ + "</svg>\n";
  }

 private:
  double DrawLegend() {
    std::vector<std::string> names;
    std::vector<bool> dashed;
    for (const Series& series : chart_.series) {
      names.push_back(series.name.empty() ? "all" : series.name);
      dashed.push_back(series.model);
    }
    if (names.size() == 1 && chart_.series[0].name.empty()) return 46;
    return 46 + 17.0 * Legend(names, dashed, &out_);
  }

  bool FindRange() {
    bool any = false;
    for (const Series& series : chart_.series) {
      for (const Point& point : series.points) {
        const double low = HasInterval(point) ? point.low : point.y;
        const double high = HasInterval(point) ? point.high : point.y;
        x_from_ = any ? std::min(x_from_, point.x) : point.x;
        x_to_ = any ? std::max(x_to_, point.x) : point.x;
        y_from_ = any ? std::min(y_from_, low) : low;
        y_to_ = any ? std::max(y_to_, high) : high;
        any = true;
      }
    }
    // Lengths and shares are judged from zero.
    y_from_ = std::min(0.0, std::max(y_from_, -y_to_ / 10));
    if (chart_.percent) y_to_ = std::max(y_to_, 1.0);
    y_to_ = y_to_ > 0 ? y_to_ * 1.05 : 1;
    if (chart_.log_x) {
      x_from_ = std::max(x_from_, 1e-6) / 1.15;
      x_to_ = x_to_ * 1.15;
    } else {
      const double margin = std::max((x_to_ - x_from_) * 0.04, 0.05);
      x_from_ -= margin;
      x_to_ += margin;
    }
    return any;
  }

  void DrawAxes(const Scale& x, const Scale& y) {
    const double bottom = kHeight - kBottom;
    for (const double tick : y.Ticks(5)) {
      absl::StrAppend(
          &out_,
          LineFrom(kLeft, y.At(tick), kWidth - kRight, y.At(tick),
                   "class=\"grid\""),
          TextAt(kLeft - 8, y.At(tick) + 4, "end", Tick(tick, chart_.percent)));
    }
    const std::vector<double> ticks =
        chart_.x_ticks.empty() ? x.Ticks(7) : chart_.x_ticks;
    for (const double tick : ticks) {
      absl::StrAppend(
          &out_,
          LineFrom(x.At(tick), bottom, x.At(tick), bottom + 4,
                   "class=\"axis\""),
          TextAt(x.At(tick), bottom + 18, "middle", Tick(tick, false)));
    }
    absl::StrAppend(
        &out_,
        LineFrom(kLeft, y.At(0), kWidth - kRight, y.At(0), "class=\"axis\""),
        TextAt((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle",
               chart_.x_label),
        absl::StrFormat("<text class=\"middle\" transform=\"translate(14 %.1f) "
                        "rotate(-90)\">%s</text>\n",
                        (top_ + bottom) / 2, Escaped(chart_.y_label)));
  }

  std::string Path(const Series& series, const Scale& x, const Scale& y) const {
    std::string path;
    double before = 0;
    for (size_t i = 0; i < series.points.size(); ++i) {
      const double at = x.At(series.points[i].x);
      const double height = y.At(series.points[i].y);
      if (chart_.steps && i > 0) {
        absl::StrAppendFormat(&path, "L%.1f %.1f", at, before);
      }
      absl::StrAppendFormat(&path, "%c%.1f %.1f", i == 0 ? 'M' : 'L', at,
                            height);
      before = height;
    }
    return path;
  }

  void DrawSeries(const Series& series, size_t number, const Scale& x,
                  const Scale& y) {
    const std::string color = Color(number);
    absl::StrAppendFormat(
        &out_, "<path class=\"line%s\" stroke=\"%s\" d=\"%s\"/>\n",
        series.model ? " dashed" : "", color, Path(series, x, y));
    if (chart_.steps || series.model) return;
    for (const Point& point : series.points) {
      const double at = x.At(point.x);
      std::string tip = absl::StrCat(
          series.name, series.name.empty() ? "" : ", ", chart_.x_label, " ",
          Short(point.x), ": ", Value(point.y));
      if (HasInterval(point)) {
        absl::StrAppend(&tip, " (", Value(point.low), " to ", Value(point.high),
                        ")");
        DrawWhisker(at, y.At(point.low), y.At(point.high), color);
      }
      absl::StrAppendFormat(&out_,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" "
                            "fill=\"%s\"><title>%s</title></circle>\n",
                            at, y.At(point.y), color, Escaped(tip));
    }
  }

  void DrawWhisker(double at, double low, double high,
                   const std::string& color) {
    const std::string style =
        absl::StrCat("class=\"whisker\" stroke=\"", color, "\"");
    absl::StrAppend(&out_, LineFrom(at, low, at, high, style),
                    LineFrom(at - 4, low, at + 4, low, style),
                    LineFrom(at - 4, high, at + 4, high, style));
  }

  std::string Value(double value) const {
    return chart_.percent ? Tick(value, true) : Short(value);
  }

  const LineChart& chart_;
  std::string out_;
  const double top_;
  double x_from_ = 0;
  double x_to_ = 1;
  double y_from_ = 0;
  double y_to_ = 1;
};

// How many workers a job has at `at`.
int64_t WorkersAt(const SlotChart& chart, const std::string& job, double at) {
  int64_t workers = 0;
  for (const TimelinePoint& point : chart.timeline) {
    if (point.job == job && point.at <= at) workers = point.workers;
  }
  return workers;
}

}  // namespace

std::string Draw(const LineChart& chart) { return LinePlot(chart).Finish(); }

std::string Draw(const BarChart& chart) {
  constexpr double kRow = 30;
  double most = chart.percent ? 1 : 0;
  size_t letters = 4;
  for (const Bar& bar : chart.bars) {
    most = std::max({most, bar.value, bar.low <= bar.high ? bar.high : 0});
    letters = std::max(letters, bar.label.size());
  }
  const double left = std::min(300.0, 26 + 6.3 * static_cast<double>(letters));
  const double height =
      62 + kRow * static_cast<double>(std::max<size_t>(1, chart.bars.size()));
  std::string out = Begin(chart.title, height);
  const Scale x(0, most > 0 ? most : 1, left, kWidth - 86, false);
  double y = 44;
  for (const Bar& bar : chart.bars) {
    const std::string value =
        chart.percent ? Tick(std::round(bar.value * 1000) / 1000, true)
                      : absl::StrCat(Short(bar.value), " ", chart.unit);
    const std::string color = Color(static_cast<size_t>(bar.color));
    absl::StrAppend(&out, TextAt(left - 8, y + 15, "name end", bar.label));
    absl::StrAppendFormat(
        &out,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"4\" "
        "fill=\"%s\"/>\n",
        left, y, std::max(1.0, x.At(bar.value) - left), color);
    double end = x.At(bar.value);
    if (bar.low < bar.high) {
      end = std::max(end, x.At(bar.high));
      absl::StrAppend(&out, LineFrom(x.At(std::max(0.0, bar.low)), y + 10,
                                     x.At(bar.high), y + 10, "class=\"axis\""));
    }
    absl::StrAppend(&out, TextAt(end + 8, y + 15, "", value));
    y += kRow;
  }
  return out + "</svg>\n";
}

std::string Draw(const SlotChart& chart) {
  std::string out = Begin(chart.title);
  const double top =
      46 + 17.0 * Legend(chart.jobs,
                         std::vector<bool>(chart.jobs.size(), false), &out);
  const double bottom = kHeight - kBottom;
  const Scale x(0, chart.seconds, kLeft, kWidth - kRight, false);
  const Scale y(0, static_cast<double>(chart.slots) * 1.06, bottom, top, false);
  std::vector<double> times = {0, chart.seconds};
  for (const TimelinePoint& point : chart.timeline) times.push_back(point.at);
  std::sort(times.begin(), times.end());
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    const double from = std::max(0.0, times[i]);
    const double to = std::min(chart.seconds, times[i + 1]);
    if (to <= from) continue;
    int64_t below = 0;
    for (size_t job = 0; job < chart.jobs.size(); ++job) {
      const int64_t workers = WorkersAt(chart, chart.jobs[job], from);
      if (workers == 0) continue;
      const double high = y.At(static_cast<double>(below + workers));
      // A little wider than its time, so that neighbours leave no gap.
      absl::StrAppendFormat(
          &out,
          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
          "fill=\"%s\"><title>%s: %d</title></rect>\n",
          x.At(from), high, x.At(to) - x.At(from) + 0.3,
          y.At(static_cast<double>(below)) - high, Color(job),
          Escaped(chart.jobs[job]), workers);
      below += workers;
    }
  }
  for (const double tick :
       y.Ticks(static_cast<int>(std::min<int64_t>(chart.slots, 6)))) {
    if (tick != std::floor(tick)) continue;
    absl::StrAppend(
        &out, TextAt(kLeft - 8, y.At(tick) + 4, "end", Tick(tick, false)));
  }
  for (const double tick : x.Ticks(7)) {
    absl::StrAppend(
        &out, TextAt(x.At(tick), bottom + 18, "middle", Tick(tick, false)));
  }
  const double limit = y.At(static_cast<double>(chart.slots));
  absl::StrAppend(
      &out, LineFrom(kLeft, limit, kWidth - kRight, limit, "class=\"limit\""),
      LineFrom(kLeft, bottom, kWidth - kRight, bottom, "class=\"axis\""),
      TextAt((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "seconds"),
      absl::StrFormat("<text class=\"middle\" transform=\"translate(14 %.1f) "
                      "rotate(-90)\">slots in use</text>\n",
                      (top + bottom) / 2));
  return out + "</svg>\n";
}

}  // namespace elasticdl::experiment
