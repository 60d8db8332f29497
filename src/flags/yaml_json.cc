#include "elasticdl/flags/yaml_json.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::flags {
namespace {

using Json = nlohmann::json;

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

// Could `text` be a number of JSON?
bool LooksNumeric(absl::string_view text) {
  absl::ConsumePrefix(&text, "-");
  return !text.empty() && IsDigit(text.front());
}

// A plain scalar by the core schema.
Json PlainScalar(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (text.empty() || text == "~" || lower == "null") return nullptr;
  if (lower == "true") return true;
  if (lower == "false") return false;
  int64_t number = 0;
  if (LooksNumeric(text) && absl::SimpleAtoi(text, &number)) return number;
  double real = 0;
  if (LooksNumeric(text) && absl::SimpleAtod(text, &real)) return real;
  return text;
}

Json FromNode(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      // The tag of a quoted scalar is "!".
      return node.Tag() == "!" ? Json(node.Scalar())
                               : PlainScalar(node.Scalar());
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& one : node) list.push_back(FromNode(one));
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) {
        object[entry.first.Scalar()] = FromNode(entry.second);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

// Words that YAML 1.1 takes for booleans or nothing.
bool IsWordOfYaml(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word :
       {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}) {
    if (lower == word) return true;
  }
  return false;
}

bool IsPlain(const std::string& text) {
  if (text.empty() || IsWordOfYaml(text)) return false;
  const char first = text.front();
  if (!absl::ascii_isalpha(static_cast<unsigned char>(first)) && first != '/') {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("_./-", c);
  });
}

// A string of JSON is one of YAML as well.
std::string Quoted(const std::string& text) { return JsonText(Json(text)); }

std::string Scalar(const Json& value) {
  if (!value.is_string()) return JsonText(value);
  const std::string& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : Quoted(text);
}

// May it stand as a block of lines? Such a block keeps no end of line at its
// end, and its first line shows the indentation.
bool IsBlock(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (!absl::StrContains(text, '\n') || text.back() == '\n') return false;
  if (text.front() == ' ' || text.front() == '\n') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || static_cast<unsigned char>(c) >= ' ';
  });
}

void Write(const Json& value, size_t indent, std::string* out);

// A value behind "key:" or "-"; ends its line.
void WriteValue(const Json& value, size_t indent, bool in_list,
                std::string* out) {
  const std::string spaces(indent, ' ');
  if (IsBlock(value)) {
    out->append(" |-\n");
    for (absl::string_view line :
         absl::StrSplit(value.get_ref<const std::string&>(), '\n')) {
      absl::StrAppend(out, line.empty() ? "" : spaces, line, "\n");
    }
  } else if (value.is_structured() && !value.empty()) {
    if (in_list) {
      // The first key stands behind the dash.
      std::string body;
      Write(value, indent, &body);
      absl::StrAppend(out, " ", body.substr(indent));
    } else {
      out->append("\n");
      Write(value, indent, out);
    }
  } else {
    absl::StrAppend(out, " ",
                    value.is_structured() ? JsonText(value) : Scalar(value),
                    "\n");
  }
}

void Write(const Json& value, size_t indent, std::string* out) {
  const std::string spaces(indent, ' ');
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, one] : value.items()) {
      absl::StrAppend(out, spaces, IsPlain(key) ? key : Quoted(key), ":");
      // Lists stand below their key, as kubectl writes them.
      const bool list = one.is_array();
      WriteValue(one, list ? indent : indent + 2, false, out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (const Json& one : value) {
      absl::StrAppend(out, spaces, "-");
      WriteValue(one, indent + 2, true, out);
    }
  } else {
    absl::StrAppend(out, spaces,
                    value.is_structured() ? JsonText(value) : Scalar(value),
                    "\n");
  }
}

}  // namespace

absl::StatusOr<Json> JsonFromYaml(const std::string& text) {
  try {
    return FromNode(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", error.mark.line + 1, ", column ",
                     error.mark.column + 1, ": ", error.msg));
  }
}

std::string YamlFromJson(const Json& value) {
  std::string text;
  Write(value, 0, &text);
  return text;
}

std::string YamlDocuments(const std::vector<Json>& values) {
  std::string text;
  for (const Json& value : values) {
    absl::StrAppend(&text, "---\n", YamlFromJson(value));
  }
  return text;
}

}  // namespace elasticdl::flags
