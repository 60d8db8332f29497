// A master's journal that was cut off or damaged: opened, or refused.
#include "fuzz.h"
#include "journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using elasticdl::master::Journal;
  const elasticdl::fuzz::MemoryFile file(elasticdl::fuzz::ToText(data, size));
  std::vector<elasticdl::v1::JournalRecord> first;
  auto journal = Journal::Open(file.path(), first);
  // One that lacks records takes no more.
  if (!journal.ok() || !(*journal)->complete()) return 0;
  // What was opened once, with a record more, opens again.
  elasticdl::v1::JournalRecord record;
  record.set_worker(7);
  ELASTICDL_CHECK((*journal)->Append(record).ok());
  journal->reset();
  std::vector<elasticdl::v1::JournalRecord> second;
  ELASTICDL_CHECK(Journal::Open(file.path(), second).ok());
  ELASTICDL_CHECK(second.size() == first.size() + 1);
  ELASTICDL_CHECK(second.back().worker() == 7);
  return 0;
}
