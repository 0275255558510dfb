// The input is a TFRecord file, read as it is and as compressed.
#include "utils/compute/core/check.h"
#include "utils/data/records/tf_record.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using official::data::Compression;
  using official::data::TFRecordReader;
  const official::fuzzing::MemoryFile file(official::fuzzing::AsBytes(data, size));
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    const auto reader = TFRecordReader::Open(file.path(), compression).value();
    std::string record;
    for (;;) {
      const absl::StatusOr<bool> more = reader->Next(&record);
      OFFICIAL_CHECK(more.ok() || absl::IsDataLoss(more.status())) << more.status();
      if (more.ok() ? !*more : !reader->can_go_on()) break;
    }
  }
  return 0;
}
