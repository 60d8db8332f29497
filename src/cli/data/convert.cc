// `elasticdl data convert`.
#include "elasticdl/data/convert.h"

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/data_commands.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::cli {
namespace {

struct Arguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string format = "auto";
  std::string labels;
  std::string compressor = "snappy";
  std::string image_size;
  std::string image_type = "float";
  std::string label_column;
  std::string header = "auto";
  std::string separator = ",";
  bool image_per_row = false;
  int64_t records_per_file = 4096;
  int64_t max_chunk_bytes = 1 << 20;
};

void DeclareInput(Arguments& a, flags::FlagSet& flags) {
  const std::string group = "Input";
  flags.AddPositional("INPUT", &a.inputs, 1,
                      "IDX images, a CSV file or folder, or PNG pictures");
  flags.Add("format", &a.format,
            flags::Info(group, "What INPUT is; auto goes by its name.")
                .Choices({"auto", "idx", "csv", "png"}));
  flags.Add(
      "labels", &a.labels,
      flags::Info(group,
                  "Labels: an IDX file, or integers as text or JSON for PNG; "
                  "default for IDX: the usual name beside the images.")
          .Value("FILE"));
  flags.Add(
      "label_column", &a.label_column,
      flags::Info(group,
                  "CSV: name or number of the column that becomes 'label'."));
  flags.Add("header", &a.header,
            flags::Info(group, "CSV: is the first line a header?")
                .Choices({"auto", "true", "false"}));
  flags.Add("sep", &a.separator,
            flags::Info(group, "CSV: character between the fields."));
  flags.Add(
      "image_size", &a.image_size,
      flags::Info(group, "PNG: size of one image.").Value("WIDTHxHEIGHT"));
  flags.Add("image_per_row", &a.image_per_row,
            flags::Info(group, "PNG: each row of the picture is one image."));
}

void DeclareOutput(Arguments& a, flags::FlagSet& flags) {
  const std::string group = "Output";
  flags.Add(
      "output", &a.output,
      flags::Info(group, "Folder for the files data-00000, data-00001, ...")
          .Value("DIR")
          .Required());
  flags.Add(
      "image_type", &a.image_type,
      flags::Info(group,
                  "Store images as a list of floats (0 to 255) or as bytes.")
          .Choices({"float", "bytes"}));
  flags.Add("compressor", &a.compressor,
            flags::Info(group, "Compression of the chunks.")
                .Choices({"none", "snappy", "gzip"}));
  flags.Add("records_per_file", &a.records_per_file,
            flags::Info(group, "Records in each file.").Min(1));
  flags.Add(
      "max_chunk_bytes", &a.max_chunk_bytes,
      flags::Info(group, "Record bytes in each chunk.").Min(1).Max(1 << 30));
}

std::string GuessFormat(const std::string& input) {
  if (absl::EndsWithIgnoreCase(input, ".png")) return "png";
  return absl::StrContains(input, "idx") ? "idx" : "csv";
}

absl::Status ParseSize(const std::string& text, data::PngConvertOptions& png) {
  const std::vector<std::string> sides = absl::StrSplit(text, 'x');
  if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &png.image_width) ||
      !absl::SimpleAtoi(sides[1], &png.image_height) || png.image_width < 1 ||
      png.image_height < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--image_size: '", text, "' is not a size, expected e.g. 32x32"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Convert(const Arguments& a,
                                const data::ConvertOptions& options) {
  const std::string format =
      a.format == "auto" ? GuessFormat(a.inputs[0]) : a.format;
  if (format == "png") {
    data::PngConvertOptions png;
    ELASTICDL_RETURN_IF_ERROR(ParseSize(a.image_size, png));
    png.image_per_row = a.image_per_row;
    return data::ConvertPngGrid(a.inputs, a.labels, png, options);
  }
  if (a.inputs.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("one INPUT expected, not ",
                                                   a.inputs.size(),
                                                   " (labels go to --labels)"));
  }
  if (format == "idx") {
    return data::ConvertIdx(a.inputs[0], a.labels, options);
  }
  if (a.separator.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sep: '", a.separator, "' is not one character"));
  }
  data::CsvConvertOptions csv;
  csv.header = a.header;
  csv.separator = a.separator[0];
  csv.label_column = a.label_column;
  return data::ConvertCsv(a.inputs[0], csv, options);
}

}  // namespace

int RunDataConvert(const std::vector<std::string>& args) {
  Arguments a;
  flags::FlagSet flags("elasticdl data convert",
                       "Convert IDX, CSV or PNG to RecordIO of tf.Example.");
  DeclareInput(a, flags);
  DeclareOutput(a, flags);
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  ProgressBar bar("converting", "records");
  data::ConvertOptions options;
  options.output.directory = a.output;
  options.output.records_per_file = a.records_per_file;
  options.output.file.max_chunk_bytes =
      static_cast<uint64_t>(a.max_chunk_bytes);
  options.images_as_bytes = a.image_type == "bytes";
  options.progress = [&bar](int64_t done, int64_t total) {
    bar.Update(done, total);
  };
  const auto compressor = data::ParseCompressor(a.compressor);
  if (!compressor.ok()) return DataFailed(compressor.status());
  options.output.file.compressor = *compressor;
  const auto records = Convert(a, options);
  bar.Finish();
  if (!records.ok()) return DataFailed(records.status());
  std::cout << Count(*records, "record") << " written to " << a.output << "\n";
  return 0;
}

}  // namespace elasticdl::cli
