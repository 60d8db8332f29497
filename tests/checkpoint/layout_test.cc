// File names and the manifest.
#include "layout.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint::internal {
namespace {

Manifest Example() {
  Manifest manifest;
  manifest.version = 120;
  manifest.optimizer = "Adam(lr=0.001)";
  manifest.optimizer_step = 119;
  manifest.signature = "0123456789abcdef";
  manifest.created = absl::FromUnixSeconds(1700000000);
  manifest.files = {{"variables-0-of-1.ckpt", 1234, 0xdeadbeef},
                    {"ledger.pb", 0, 0}};
  return manifest;
}

TEST(LayoutTest, VersionNames) {
  EXPECT_EQ(VersionName(120), "version-120");
  EXPECT_EQ(ParseVersionName("version-120"), 120);
  for (const char* bad : {"version-", "version--1", "version-01", "version-1x",
                          "Version-1", ".tmp-version-1", "version- 1"}) {
    EXPECT_FALSE(ParseVersionName(bad).has_value()) << bad;
  }
}

TEST(LayoutTest, ShardNames) {
  EXPECT_EQ(FormatShardName("variables", 0, 2), "variables-0-of-2.ckpt");
  const std::optional<ShardName> shard =
      ParseShardName("optimizer-1-of-12.ckpt");
  ASSERT_TRUE(shard.has_value());
  EXPECT_EQ(shard->kind, "optimizer");
  EXPECT_EQ(shard->index, 1);
  EXPECT_EQ(shard->count, 12);
  for (const char* bad :
       {"variables-2-of-2.ckpt", "variables-0-of-2", "variables-0-2.ckpt",
        "other-0-of-1.ckpt", "variables--1-of-2.ckpt", ".ckpt"}) {
    EXPECT_FALSE(ParseShardName(bad).has_value()) << bad;
  }
}

TEST(LayoutTest, ManifestRoundTrips) {
  const std::string text = FormatManifest(Example());
  const absl::StatusOr<Manifest> read = ParseManifest(text, "m");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->version, 120);
  EXPECT_EQ(read->optimizer, "Adam(lr=0.001)");
  EXPECT_EQ(read->optimizer_step, 119);
  EXPECT_EQ(read->created, absl::FromUnixSeconds(1700000000));
  ASSERT_EQ(read->files.size(), 2u);
  EXPECT_EQ(read->files[0].crc32c, 0xdeadbeefu);
  EXPECT_EQ(FormatManifest(*read), text);
}

TEST(LayoutTest, ManifestNoticesEveryChange) {
  const std::string text = FormatManifest(Example());
  // The newline at the end is not part of it.
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    for (const char c : {'0', 'x', '\0', '\xff'}) {
      std::string changed = text;
      if (changed[i] == c) continue;
      changed[i] = c;
      EXPECT_EQ(ParseManifest(changed, "m").status().code(),
                absl::StatusCode::kDataLoss)
          << "offset " << i;
    }
    EXPECT_EQ(ParseManifest(text.substr(0, i), "m").status().code(),
              absl::StatusCode::kDataLoss)
        << "length " << i;
  }
}

TEST(LayoutTest, ManifestMayNotLeadOutOfItsFolder) {
  for (const char* name : {"../secret", "/etc/passwd", "..", ".", ""}) {
    Manifest manifest = Example();
    manifest.files[0].name = name;
    EXPECT_FALSE(ParseManifest(FormatManifest(manifest), "m").ok()) << name;
  }
}

TEST(LayoutTest, ManifestWithStrangeBytesDoesNotThrow) {
  Manifest manifest = Example();
  manifest.optimizer = "\xff\xfe";
  EXPECT_TRUE(ParseManifest(FormatManifest(manifest), "m").ok());
}

TEST(LayoutTest, SignatureKnowsNamesTypesAndShapesInAnyOrder) {
  const NamedTensor a{"a", v1::DT_FLOAT, {2, 3}, {}};
  const NamedTensor b{"b", v1::DT_FLOAT, {4}, {}};
  NamedTensor b_int = b;
  b_int.dtype = v1::DT_INT32;
  NamedTensor b_long = b;
  b_long.shape = {5};
  const std::string signature = ModelSignature({a, b});
  EXPECT_EQ(signature.size(), 16u);
  EXPECT_EQ(ModelSignature({b, a}), signature);
  EXPECT_NE(ModelSignature({a, b_int}), signature);
  EXPECT_NE(ModelSignature({a, b_long}), signature);
  EXPECT_NE(ModelSignature({a}), signature);
}

}  // namespace
}  // namespace elasticdl::checkpoint::internal
