#include "chart_frame.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "chart.h"

namespace elasticdl::experiment {
namespace {

// Colours of series: blue, orange, green, violet, amber, teal, pink, grey.
constexpr char kStyle[] = R"(
.chart { --ink: #18202f; --soft: #5d6b82; --grid: #e4e9f2; --ground: #ffffff;
  --c0: #2f66f0; --c1: #e2582b; --c2: #1f9d66; --c3: #8b5cf6; --c4: #d98e04;
  --c5: #0d9488; --c6: #c2439e; --c7: #7c889d;
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  .chart { --ink: #e6ebf4; --soft: #93a0b6; --grid: #263041; --ground: #151b24;
    --c0: #6d95ff; --c1: #ff8a5c; --c2: #3cc48a; --c3: #a988ff; --c4: #f0b444;
    --c5: #2cc4b4; --c6: #ea7fcb; --c7: #8b97ad; }
}
.chart text { fill: var(--soft); }
.chart .title { fill: var(--ink); font-size: 15px; font-weight: 650; }
.chart .name { fill: var(--ink); }
.chart .grid { stroke: var(--grid); stroke-width: 1; }
.chart .axis { stroke: var(--soft); stroke-width: 1; }
.chart .limit { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 4; }
.chart .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.chart .dashed { stroke-dasharray: 7 5; }
.chart .band { stroke: none; opacity: .16; }
.chart .whisker { stroke-width: 1.5; opacity: .8; }
.chart .end { text-anchor: end; } .chart .middle { text-anchor: middle; }
)";

}  // namespace

Scale::Scale(double from, double to, double begin, double end, bool log)
    : from_(from),
      to_(to > from ? to : from + 1),
      begin_(begin),
      end_(end),
      log_(log && from > 0) {}

double Scale::At(double value) const {
  const double share = log_ ? std::log(std::max(value, from_ / 1000) / from_) /
                                  std::log(to_ / from_)
                            : (value - from_) / (to_ - from_);
  return begin_ + share * (end_ - begin_);
}

std::vector<double> Scale::Ticks(int about) const {
  std::vector<double> ticks;
  if (log_) {
    // 1, 2, 5 in each power of ten, or only the powers if there are many.
    const bool many = std::log10(to_ / from_) > 2.5;
    for (double power = std::pow(10, std::floor(std::log10(from_)));
         power <= to_; power *= 10) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (many && digit > 1) continue;
        const double value = power * digit;
        if (value >= from_ * 0.999 && value <= to_ * 1.001) {
          ticks.push_back(value);
        }
      }
    }
    return ticks;
  }
  const double raw = (to_ - from_) / about;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double digit : {1.0, 2.0, 2.5, 5.0}) {
    if (digit * power >= raw) {
      step = digit * power;
      break;
    }
  }
  for (double value = std::ceil(from_ / step) * step;
       value <= to_ + step / 1000; value += step) {
    ticks.push_back(std::abs(value) < step / 1000 ? 0 : value);
  }
  return ticks;
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string Short(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1000) {
    std::string digits = absl::StrFormat("%.0f", value);
    for (int i = static_cast<int>(digits.size()) - 3; i > (value < 0 ? 1 : 0);
         i -= 3) {
      digits.insert(static_cast<size_t>(i), ",");
    }
    return digits;
  }
  return size >= 100 ? absl::StrFormat("%.0f", value)
                     : absl::StrFormat("%.3g", value);
}

std::string Tick(double value, bool percent) {
  if (percent) return absl::StrFormat("%.3g %%", value * 100);
  if (value >= 10000) return absl::StrFormat("%.4gk", value / 1000);
  return absl::StrFormat("%.4g", value);
}

std::string Begin(const std::string& title, double height) {
  return absl::StrFormat(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "
      "%.0f %.0f\" role=\"img\" aria-label=\"%s\">\n%s",
      kWidth, height, Escaped(title), TextAt(16, 26, "title", title));
}

std::string TextAt(double x, double y, const std::string& style,
                   const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n",
                         x, y, style, Escaped(text));
}

std::string LineFrom(double x1, double y1, double x2, double y2,
                     const std::string& style) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1,
      x2, y2, style);
}

int Legend(const std::vector<std::string>& names,
           const std::vector<bool>& dashed, std::string* out) {
  double x = 16;
  int line = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    // Letters are about 6.3 wide.
    const double width = 34 + 6.3 * static_cast<double>(names[i].size());
    if (x > 16 && x + width > kWidth - 10) {
      x = 16;
      ++line;
    }
    const double y = 46 + 17.0 * line;
    absl::StrAppend(
        out,
        LineFrom(x, y - 4, x + 18, y - 4,
                 absl::StrCat("class=\"line", dashed[i] ? " dashed" : "",
                              "\" stroke=\"var(--c", i % 8, ")\"")),
        TextAt(x + 24, y, "name", names[i]));
    x += width + 8;
  }
  return names.empty() ? 0 : line + 1;
}

std::string ChartStyle() { return kStyle; }

std::string SvgFile(const std::string& chart) {
  const size_t end = chart.find('>');
  return absl::StrCat(chart.substr(0, end + 1), "<style>", kStyle,
                      "</style><rect width=\"100%\" height=\"100%\" rx=\"10\" "
                      "fill=\"var(--ground)\"/>",
                      chart.substr(end + 1));
}

}  // namespace elasticdl::experiment
