// `elasticdl top` as lines of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "top/model.h"

namespace elasticdl::cli {

struct TopView {
  int columns = 80;
  int rows = 24;
  // Escape sequences for colors.
  bool color = false;
  // Block characters; else ASCII.
  bool unicode = true;
  // How many seconds the lanes show.
  double window = 300;
  // Which pod is chosen, and the first that is shown.
  size_t chosen = 0;
  size_t first = 0;
  // The last line: keys, or a question.
  std::string footer;
};

// Exactly `rows` lines of at most `columns` characters (escape sequences do not
// count). Pure; control characters of names are replaced.
std::vector<std::string> RenderTop(const TopModel& model, const TopView& view);
// The same for the end of a log.
std::vector<std::string> RenderLog(const std::string& title,
                                   const std::string& log, const TopView& view);
// How many pods fit.
size_t PodRows(const TopView& view);
// Whether the environment asks for no colors (NO_COLOR) and has UTF-8 (LC_ALL,
// LC_CTYPE, LANG), by the values of these variables.
bool WantsColor(const std::string& no_color, const std::string& term);
bool HasUtf8(const std::string& lc_all, const std::string& lc_ctype,
             const std::string& lang);

}  // namespace elasticdl::cli
