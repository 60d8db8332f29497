// --output of a model whose table has a row for any id: files of rows with an
// index, with the values of the last checkpoint.
#include <torch/torch.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Rows = std::map<int64_t, std::vector<float>>;

Rows RowsInCheckpoint(const std::string& path, const std::string& table) {
  Rows rows;
  const auto folder = checkpoint::Resolve(path);
  EXPECT_TRUE(folder.ok()) << folder.status();
  const auto loaded = checkpoint::Load(*folder);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  for (const checkpoint::EmbeddingRows& part : loaded->embedding_tables) {
    EXPECT_EQ(part.name, table);
    if (part.ids.empty()) continue;
    const size_t dim = part.rows.bytes.size() / sizeof(float) / part.ids.size();
    for (size_t r = 0; r < part.ids.size(); ++r) {
      std::vector<float>& row = rows[part.ids[r]];
      row.resize(dim);
      std::memcpy(row.data(), part.rows.bytes.data() + r * dim * sizeof(float),
                  dim * sizeof(float));
    }
  }
  return rows;
}

// As a program of the user would read them: by the index alone.
Rows RowsInExport(const std::string& folder, const std::string& name) {
  Rows rows;
  const Json index = Json::parse(Contents(folder + "/index.json"));
  EXPECT_THAT(index.at("tables"), SizeIs(1));
  const Json& table = index.at("tables").at(0);
  EXPECT_EQ(table.at("table"), name);
  EXPECT_EQ(table.at("dtype"), "float32");
  const int64_t dim = table.at("dim");
  int64_t total = 0;
  for (const Json& file : table.at("files")) {
    const std::string bytes =
        Contents(folder + "/" + file.at("file").get<std::string>());
    const auto part =
        torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()))
            .toGenericDict();
    const torch::Tensor ids = part.at("ids").toTensor();
    const torch::Tensor values = part.at("rows").toTensor();
    EXPECT_EQ(ids.scalar_type(), torch::kLong);
    EXPECT_EQ(values.scalar_type(), torch::kFloat);
    const int64_t count = file.at("rows");
    EXPECT_EQ(ids.sizes(), torch::IntArrayRef({count}));
    EXPECT_EQ(values.sizes(), torch::IntArrayRef({count, dim}));
    for (int64_t r = 0; r < count; ++r) {
      const float* row = values[r].data_ptr<float>();
      const bool is_new =
          rows.emplace(ids[r].item<int64_t>(),
                       std::vector<float>(row, row + values.size(1)))
              .second;
      EXPECT_TRUE(is_new) << "row " << ids[r].item<int64_t>() << " twice";
    }
    total += count;
  }
  EXPECT_EQ(table.at("rows"), total);
  return rows;
}

class PsExportTest : public JobTest {
 protected:
  std::unique_ptr<Job> TrainRows(const std::string& name, const Flags& more) {
    Flags flags = {"--distribution_strategy=ParameterServerStrategy",
                   "--model_def=rows.custom_model",
                   "--num_ps_pods=2",
                   "--num_workers=2",
                   "--use_async",
                   "--num_epochs=2",
                   "--checkpoint_dir=" + Path(name + "-saved"),
                   "--output=" + Path("out")};
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
};

TEST_F(PsExportTest, RowsOfAnyIdAreInFilesWithAnIndex) {
  const auto job = TrainRows("rows", {});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(List(Path("out")),
              ElementsAre("model.pt", "state_dict.pt", "tables"));
  const std::string folder = Path("out/tables");
  EXPECT_THAT(List(folder), ElementsAre("index.json", "user.embeddings-0.pt"));
  const Rows rows = RowsInExport(folder, "user.embeddings");
  EXPECT_THAT(rows, SizeIs(50));
  EXPECT_EQ(rows, RowsInCheckpoint(Path("rows-saved"), "user.embeddings"));
  // It was trained.
  EXPECT_NE(rows.at(0), (std::vector<float>{0.5, 0.5}));
  // The other file has the rest.
  const std::string bytes = Contents(Path("out/state_dict.pt"));
  const auto state =
      torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()))
          .toGenericDict();
  EXPECT_EQ(state.size(), 1u);
  EXPECT_TRUE(state.contains("weight"));

  const std::vector<Json> told = job->Events("exported_rows");
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].at("folder"), folder);
  EXPECT_EQ(told[0].at("tables"), 1);
  EXPECT_EQ(told[0].at("files"), 1);
  EXPECT_EQ(told[0].at("rows"), 50);
  EXPECT_THAT(job->process().err() + job->process().out(),
              HasSubstr("the rows of 1 table without input_dim are in files of "
                        "their own, not in model.pt: 50 rows in 1 file of " +
                        folder + ", listed in index.json"));
}

// The worker that exports dies when it has written the files and before it has
// reported: the next one writes them again.
TEST_F(PsExportTest, AWorkerDiesAfterTheRows) {
  const auto job = TrainRows("dies", {"--failpoints=0:worker.exported=kill@1;"
                                      "1:worker.exported=kill@1"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("worker_lost"), Not(IsEmpty()));
  EXPECT_EQ(RowsInExport(Path("out/tables"), "user.embeddings"),
            RowsInCheckpoint(Path("dies-saved"), "user.embeddings"));
  EXPECT_THAT(job->Events("exported_rows"), SizeIs(1));
}

// A model that is whole in one file leaves no rows of an earlier export.
TEST_F(PsExportTest, AnEarlierExportIsReplaced) {
  ASSERT_TRUE(MakeDirectories(Path("out/tables")).ok());
  ASSERT_TRUE(WriteFileAtomic(Path("out/tables/index.json"), "{}").ok());
  const auto job = Train(
      "whole", {"--distribution_strategy=ParameterServerStrategy",
                "--num_ps_pods=1", "--num_workers=1",
                "--model_def=layers.custom_model", "--output=" + Path("out")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(List(Path("out")), ElementsAre("model.pt", "state_dict.pt"));
  EXPECT_THAT(job->Events("exported_rows"), IsEmpty());
}

}  // namespace
}  // namespace elasticdl::test
