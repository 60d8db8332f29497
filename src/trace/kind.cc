#include "elasticdl/trace/kind.h"

#include <array>

namespace elasticdl::trace {
namespace {

struct Names {
  absl::string_view name;
  absl::string_view field;
  absl::string_view thread;
};

constexpr std::array<Names, kKinds> kNames = {{
    {"idle", "idle", "training"},
    {"data wait", "data_wait", "training"},
    {"feed wait", "feed_wait", "training"},
    {"forward", "forward", "training"},
    {"backward", "backward", "training"},
    {"communication", "communication", "training"},
    {"optimizer", "optimizer", "training"},
    {"enter world", "world", "training"},
    {"checkpoint copy", "checkpoint_copy", "training"},
    {"other", "other", "training"},
    {"evaluate", "evaluate", "training"},
    {"feed", "feed", "feed"},
    {"all-reduce", "all_reduce", "all-reduce"},
    {"checkpoint save", "checkpoint_save", "checkpoint"},
    {"pull", "pull", "servers"},
    {"push", "push", "servers"},
}};

const Names& Of(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

}  // namespace

absl::string_view KindName(Kind kind) { return Of(kind).name; }
absl::string_view KindField(Kind kind) { return Of(kind).field; }
absl::string_view KindThread(Kind kind) { return Of(kind).thread; }

}  // namespace elasticdl::trace
