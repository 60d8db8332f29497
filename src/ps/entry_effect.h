// The effects of an entry that are not in the entry itself; for audits.
#pragma once

#include <vector>

namespace elasticdl::ps {

struct EntryEffect {
  // A push that the server had already: only buckets that came from another
  // server since then have got it.
  bool catch_up = false;
  // A push: with `catch_up` the buckets that have got it, otherwise those that
  // had it already. A map: the buckets that go, or of the first map those that
  // are here.
  std::vector<int> buckets;
};

}  // namespace elasticdl::ps
