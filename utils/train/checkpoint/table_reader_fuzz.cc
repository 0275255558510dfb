// The input is the index of a checkpoint: a table, read as it is, and as the contents of a block whose checksum is
// right in a table that is right but for it.
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"
#include "utils/train/checkpoint/table_reader.h"
#include "utils/train/checkpoint/test_table.h"

namespace {

void Read(absl::string_view bytes) {
  const absl::Status status =
      official::train::ReadTable("input", bytes, [](absl::string_view, absl::string_view) { return absl::OkStatus(); });
  OFFICIAL_CHECK(status.ok() || absl::IsDataLoss(status)) << status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace table = official::train::test_table;
  Read(official::fuzzing::AsBytes(data, size));
  const std::string block = table::Seal(std::string(official::fuzzing::AsBytes(data, size)));
  Read(table::Table(block, table::Entry(0, "z", table::Handle(0, size))));  // as a block of entries
  Read(block + table::Footer(table::Handle(0, size)));                      // as the block of handles
  return 0;
}
