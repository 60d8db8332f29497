// The encoding of a world's members in a Prepare. When one of 10,000 members
// dies, the others get the change, not the list: otherwise the master would
// send n members to n members.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// The master's end. Thread-compatible.
class MemberListWriter {
 public:
  // A Prepare in two forms. Messages are shared by all recipients.
  struct Encoded {
    int64_t generation = 0;
    std::shared_ptr<const v1::MasterMessage> whole;
    // For workers whose last Prepare was that of generation `base`. Null: there
    // was none before.
    std::shared_ptr<const v1::MasterMessage> change;
    int64_t base = 0;
  };

  // `message` is a Prepare with its `members`. The next one builds on it.
  Encoded Encode(v1::MasterMessage message);
  // The newest, whole, if it is of this generation; else null.
  std::shared_ptr<const v1::MasterMessage> Again(int64_t generation) const;

 private:
  using Member = std::pair<int64_t, std::string>;

  int64_t generation_ = 0;
  std::vector<Member> members_;
  std::shared_ptr<const v1::MasterMessage> newest_;
};

// The other end of one stream. Thread-compatible.
class MemberListReader {
 public:
  // Turns `list` into `members`; a Prepare that has no list stays as it is.
  // FAILED_PRECONDITION: it builds on a list that is not here, so ask for the
  // whole. INVALID_ARGUMENT: the list makes no sense.
  absl::Status Decode(v1::Prepare& prepare);

 private:
  int64_t generation_ = 0;
  // Of the Prepare of that generation.
  std::vector<v1::Member> members_;
};

}  // namespace elasticdl::rendezvous
