// What happened to a part of the model that has a backup (--ps_backup).
#pragma once

#include <cstdint>
#include <string>

namespace elasticdl::master {

struct PartChange {
  enum class Kind {
    // Another server is its primary now.
    kTakeover,
    // The backup has everything that is acknowledged.
    kCurrent,
    // The primary goes on alone.
    kBackupLost,
  };
  Kind kind = Kind::kTakeover;
  int part = 0;
  // Of the primary.
  int server = 0;
  int64_t term = 0;
  // kCurrent: of the backup.
  int backup = -1;
  // kCurrent: every part has a current backup now.
  bool all_current = false;
  // For people.
  std::string text;
};

}  // namespace elasticdl::master
