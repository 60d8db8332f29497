#include "top/render.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace elasticdl::cli {
namespace {

constexpr size_t kHeadLines = 5;
constexpr size_t kFootLines = 1;
// Of the table, before the lane.
constexpr int kTableColumns = 48;

constexpr char kReset[] = "\x1b[0m";
constexpr char kReverse[] = "\x1b[7m";
constexpr char kRed[] = "\x1b[31m";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kYellow[] = "\x1b[33m";
constexpr char kBlue[] = "\x1b[34m";
constexpr char kMagenta[] = "\x1b[35m";
constexpr char kCyan[] = "\x1b[36m";
constexpr char kDim[] = "\x1b[2m";

std::string Clean(absl::string_view text) {
  std::string clean;
  for (const char c : text) {
    // Bytes of UTF-8 could be of any width: names are ASCII as a rule.
    clean += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  }
  return clean;
}

// Cuts or fills ASCII text.
std::string Fit(std::string text, int columns) {
  text.resize(static_cast<size_t>(std::max(0, columns)), ' ');
  return text;
}

std::string Short(double value) {
  if (value < 0 || !std::isfinite(value)) return "-";
  // Of a slow job 0.0 would say nothing.
  if (value > 0 && value < 0.1) return absl::StrFormat("%.2f", value);
  if (value < 10) return absl::StrFormat("%.1f", value);
  if (value < 1000) return absl::StrFormat("%.0f", value);
  if (value < 999950) return absl::StrFormat("%.1fk", value / 1e3);
  if (value < 999.95e6) return absl::StrFormat("%.1fM", value / 1e6);
  return absl::StrFormat("%.1fG", value / 1e9);
}

std::string Duration(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
  }
  return absl::StrFormat("%d:%02d", s / 60, s % 60);
}

std::string Paint(const TopView& view, const char* color,
                  const std::string& text) {
  return view.color ? absl::StrCat(color, text, kReset) : text;
}

std::string Title(const TopModel& model, const TopView& view) {
  const double total = model.Number("records_total");
  const double done = model.Number("records_done");
  std::string text = absl::StrCat(" ", Clean(model.Text("job")), "  ",
                                  Clean(model.Text("state")), "  ",
                                  Duration(model.now() - model.begin()));
  if (total > 0) {
    const double share = std::clamp(done / total, 0.0, 1.0);
    std::string bar(20, '.');
    std::fill_n(bar.begin(), static_cast<int>(share * 20), '#');
    absl::StrAppendFormat(&text, "  [%s] %3d %%", bar,
                          static_cast<int>(share * 100));
    const double rate = model.Number("records_per_s");
    if (rate > 0 && model.Text("state") == "running") {
      absl::StrAppend(&text, "  ", Duration((total - done) / rate), " to go");
    }
  }
  return Paint(view, kReverse, Fit(text, view.columns));
}

std::string Numbers(const TopModel& model, const TopView& view) {
  std::string text;
  if (model.Text("state") == "running" && model.Number("step") == 0 &&
      model.Number("workers") == 0) {
    // There is neither a speed nor a loss yet.
    text = " starting workers (they compile or load the model)";
  } else {
    text = absl::StrFormat(" step %.0f  epoch %.0f", model.Number("step"),
                           model.Number("epoch"));
    if (const double epochs = model.Number("num_epochs"); epochs > 0) {
      absl::StrAppendFormat(&text, "/%.0f", epochs);
    }
    absl::StrAppendFormat(&text, "  %s records/s",
                          Short(model.Number("records_per_s")));
    if (model.Has("loss")) {
      absl::StrAppendFormat(&text, "  loss %.4g", model.Number("loss"));
    }
  }
  absl::StrAppendFormat(&text, "  workers %.0f/%.0f", model.Number("workers"),
                        model.Number("target_workers"));
  return Fit(text, view.columns);
}

std::string Losses(const TopModel& model, const TopView& view) {
  return Fit(absl::StrFormat(
                 " generation %.0f  joined %.0f  lost %.0f  paused %.0f ms in "
                 "all, %.0f ms at most",
                 model.Number("generation"), model.Total("joined"),
                 model.Total("lost"), model.Total("pause_ms"),
                 model.Total("longest_pause_ms")),
             view.columns);
}

std::string StepLine(const TopModel& model, const TopView& view) {
  const double whole = model.StepTime("step_ms");
  if (whole <= 0) return Fit(" step time: not known yet", view.columns);
  std::string text = absl::StrFormat(" step %.3g ms:", whole);
  // First: on 80 columns, the shares may not all have room.
  if (model.slowest() >= 0) {
    absl::StrAppend(&text, " slowest worker ", model.slowest(), ";");
  }
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"data", "data_wait_ms"},     {"feed", "feed_wait_ms"},
      {"forward", "forward_ms"},    {"backward", "backward_ms"},
      {"comm", "communication_ms"}, {"optim", "optimizer_ms"},
      {"other", "other_ms"}};
  for (const auto& [name, field] : kParts) {
    const double share = 100 * model.StepTime(field) / whole;
    if (share >= 0.5) absl::StrAppendFormat(&text, " %s %.0f%%", name, share);
  }
  return Fit(text, view.columns);
}

struct Cell {
  const char* block;
  char plain;
  const char* color;
};

Cell CellOf(const std::string& state, bool lost) {
  if (lost) return {"x", 'x', kRed};
  if (state == "training" || state == "working") return {"█", '#', kGreen};
  if (state == "serving") return {"▓", '=', kBlue};
  if (state == "evaluating") return {"▆", 'e', kMagenta};
  if (state == "saving") return {"▅", 's', kCyan};
  if (state == "silent") return {"!", '!', kYellow};
  if (state == "joining") return {"▒", '+', kYellow};
  if (state == "starting") return {"░", '.', kDim};
  return {" ", ' ', ""};
}

// What most of the time from `begin` to `end` was.
Cell CellAt(const std::vector<TopModel::Span>& spans, double begin,
            double end) {
  Cell cell = CellOf("", false);
  double longest = 0;
  for (const TopModel::Span& span : spans) {
    if (span.begin >= end || (span.end >= 0 && span.end < begin)) continue;
    // A loss is a mark where it happened.
    if (span.lost && span.end >= begin && span.end < end) {
      return CellOf(span.state, /*lost=*/true);
    }
    const double until = span.end >= 0 ? std::min(span.end, end) : end;
    const double overlap = until - std::max(span.begin, begin);
    if (overlap < longest) continue;
    longest = overlap;
    cell = CellOf(span.state, /*lost=*/false);
  }
  return cell;
}

// The last `window` seconds of a row.
std::string Lane(const TopModel& model, const TopModel::Pod& pod,
                 const TopView& view, int columns) {
  const std::vector<TopModel::Span> spans = model.SpansOf(pod);
  std::string text;
  const char* color = "";
  for (int i = 0; i < columns; ++i) {
    const double begin = model.now() - view.window * (columns - i) /
                                           static_cast<double>(columns);
    const double end = begin + view.window / columns;
    const Cell cell = CellAt(spans, begin, end);
    if (view.color && cell.color != color) {
      absl::StrAppend(&text, *color != '\0' ? kReset : "", cell.color);
      color = cell.color;
    }
    text += view.unicode ? std::string(cell.block) : std::string(1, cell.plain);
  }
  if (*color != '\0') text += kReset;
  return text;
}

std::string PodLine(const TopModel& model, const TopModel::Pod& pod,
                    const TopView& view, bool chosen) {
  const std::string table = absl::StrFormat(
      "%s%-7s %-10s %7s %6s %6s %4s ", chosen ? ">" : " ",
      absl::StrCat(pod.server ? "ps " : "", pod.id),
      Clean(pod.state).substr(0, 10),
      pod.server ? Short(pod.rows) : Short(pod.records_per_s),
      pod.step_ms > 0 ? absl::StrFormat("%.3g", pod.step_ms) : "-",
      Short(pod.memory_bytes),
      pod.cpu_cores >= 0 ? absl::StrFormat("%.1f", pod.cpu_cores) : "-");
  const int lane = view.columns - kTableColumns;
  std::string line = Fit(table, lane > 8 ? kTableColumns : view.columns);
  if (chosen) line = Paint(view, kReverse, line);
  if (lane > 8) line += Lane(model, pod, view, lane);
  return line;
}

}  // namespace

size_t PodRows(const TopView& view) {
  const int rows =
      view.rows - static_cast<int>(kHeadLines) - static_cast<int>(kFootLines);
  return static_cast<size_t>(std::max(1, rows));
}

std::vector<std::string> RenderTop(const TopModel& model, const TopView& view) {
  std::vector<std::string> lines = {Title(model, view), Numbers(model, view),
                                    Losses(model, view), StepLine(model, view)};
  const int lane = view.columns - kTableColumns;
  std::string head =
      Fit(absl::StrFormat(" %-7s %-10s %7s %6s %6s %4s ", "WORKER", "STATE",
                          "REC/S", "STEPms", "MEMORY", "CPU"),
          lane > 8 ? kTableColumns : view.columns);
  if (lane > 8) {
    head += Fit(absl::StrCat("LAST ", Duration(view.window)), lane);
  }
  lines.push_back(Paint(view, kDim, head));
  const std::vector<TopModel::Pod>& pods = model.pods();
  for (size_t i = view.first; i < pods.size() && i < view.first + PodRows(view);
       ++i) {
    lines.push_back(PodLine(model, pods[i], view, i == view.chosen));
  }
  const auto rows = static_cast<size_t>(std::max(1, view.rows));
  lines.resize(rows, Fit("", view.columns));
  if (rows > kHeadLines) lines.back() = Fit(view.footer, view.columns);
  return lines;
}

std::vector<std::string> RenderLog(const std::string& title,
                                   const std::string& log,
                                   const TopView& view) {
  const std::vector<std::string> all =
      absl::StrSplit(log, '\n', absl::SkipEmpty());
  const auto rows = static_cast<size_t>(std::max(3, view.rows));
  std::vector<std::string> lines = {Paint(
      view, kReverse, Fit(absl::StrCat(" ", Clean(title)), view.columns))};
  const size_t room = rows - 2;
  const size_t first = all.size() > room ? all.size() - room : 0;
  for (size_t i = first; i < all.size(); ++i) {
    lines.push_back(Fit(Clean(all[i]), view.columns));
  }
  lines.resize(rows - 1, Fit("", view.columns));
  lines.push_back(Fit(view.footer, view.columns));
  return lines;
}

bool WantsColor(const std::string& no_color, const std::string& term) {
  return no_color.empty() && !term.empty() && term != "dumb";
}

bool HasUtf8(const std::string& lc_all, const std::string& lc_ctype,
             const std::string& lang) {
  const std::string& locale = !lc_all.empty()     ? lc_all
                              : !lc_ctype.empty() ? lc_ctype
                                                  : lang;
  const std::string upper = absl::AsciiStrToUpper(locale);
  return absl::StrContains(upper, "UTF-8") || absl::StrContains(upper, "UTF8");
}

}  // namespace elasticdl::cli
