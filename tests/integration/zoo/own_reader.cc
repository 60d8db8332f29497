// The model of linear.cc with a data reader and a prediction processor of its
// own. The origin "made:N" has two shards of N records.
#include "linear.cc"

class MadeReader : public elasticdl::data::DataReader {
 public:
  explicit MadeReader(const std::string& origin) {
    if (origin.rfind("made:", 0) != 0) {
      throw std::invalid_argument("origin '" + origin + "' is not made:N");
    }
    size_ = std::stoll(origin.substr(5));
    metadata_.column_names = {"id", "x", "y"};
  }

  absl::StatusOr<std::vector<elasticdl::data::Shard>> CreateShards() override {
    return std::vector<elasticdl::data::Shard>{{"left", 0, size_},
                                               {"right", 0, size_}};
  }

  absl::StatusOr<elasticdl::data::RecordBatch> Read(const std::string& name,
                                                    int64_t begin,
                                                    int64_t end) override {
    elasticdl::data::RecordBatch batch;
    for (int64_t i = begin; i < end; ++i) {
      const double x = static_cast<double>(i) / static_cast<double>(size_) -
                       (name == "left" ? 1.0 : 0.0);
      auto line = std::make_shared<const std::string>(
          std::to_string(i) + "," + std::to_string(x) + "," +
          std::to_string(3 * x - 1));
      batch.records().emplace_back(*line);
      batch.Hold(std::move(line));
    }
    return batch;
  }

  const elasticdl::Metadata& metadata() const override { return metadata_; }

 private:
  int64_t size_ = 0;
  elasticdl::Metadata metadata_;
};

std::unique_ptr<elasticdl::data::DataReader> custom_data_reader(
    const std::string& origin) {
  return std::make_unique<MadeReader>(origin);
}

// Appends one line per prediction to a file.
class LineWriter {
 public:
  explicit LineWriter(const std::string& path) : out_(path, std::ios::app) {}

  void process(const torch::Tensor& predictions, int64_t worker_id) {
    for (int64_t i = 0; i < predictions.size(0); ++i) {
      out_ << worker_id << "," << predictions[i].item<float>() << "\n";
    }
    out_.flush();
  }

 private:
  std::ofstream out_;
};

struct PredictionOutputsProcessor : LineWriter {
  explicit PredictionOutputsProcessor(const std::string& output_dir)
      : LineWriter(output_dir + "/lines") {}
};

// --prediction_outputs_processor=OwnPlace: the parameter says where.
struct OwnPlace : LineWriter {
  explicit OwnPlace(const elasticdl::Params& params)
      : LineWriter(params.Get("predictions", "")) {}
};
