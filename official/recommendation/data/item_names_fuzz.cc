// The input is a list of items and their names.
#include "absl/strings/ascii.h"
#include "official/recommendation/data/item_names.h"
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const official::fuzzing::MemoryFile file(official::fuzzing::AsBytes(data, size));
  const auto names = official::recommendation::ReadItemNames(file.path());
  OFFICIAL_CHECK(names.ok() || absl::IsDataLoss(names.status())) << names.status();
  if (!names.ok()) return 0;
  for (const auto& [item, name] : *names) {
    OFFICIAL_CHECK(item >= 1);
    for (const unsigned char c : name) OFFICIAL_CHECK(!absl::ascii_iscntrl(c));
  }
  return 0;
}
