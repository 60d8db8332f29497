// A name for the host that is equal exactly where memory can be shared.
#include <sys/stat.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/offer.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/secret.h"

namespace elasticdl::collective {
namespace {

// Device and file number; "?" when there is no such file.
std::string FileIdentity(const char* path) {
  struct stat file;
  if (stat(path, &file) != 0) return "?";
  return absl::StrCat(file.st_dev, ".", file.st_ino);
}

}  // namespace

std::string LocalHost() {
  // The boot id distinguishes machines; the process namespace and /dev/shm
  // distinguish containers on one machine.
  const absl::StatusOr<std::string> boot =
      ReadFile("/proc/sys/kernel/random/boot_id");
  // Without a boot id, share memory with nobody.
  if (!boot.ok()) return absl::BytesToHexString(RandomBytes(16));
  return absl::StrCat(absl::StripAsciiWhitespace(*boot), "/",
                      FileIdentity("/proc/self/ns/pid"), "/",
                      FileIdentity("/dev/shm"));
}

}  // namespace elasticdl::collective
