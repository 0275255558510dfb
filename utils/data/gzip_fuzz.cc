// The input is gzip data, read in pieces of a size that its own first byte chooses.
#include <vector>

#include "utils/compute/core/check.h"
#include "utils/data/gzip.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int64_t piece = size == 0 ? 1 : int64_t{1} << (data[0] % 17);
  const absl::string_view compressed = official::fuzzing::AsBytes(data, size).substr(size == 0 ? 0 : 1);
  official::data::GzipReader reader(compressed, "input");
  std::vector<char> buffer(piece);
  for (;;) {
    const absl::StatusOr<int64_t> read = reader.Read(piece, buffer.data());
    OFFICIAL_CHECK(read.ok() || absl::IsDataLoss(read.status())) << read.status();
    if (!read.ok() || *read == 0) return 0;
    OFFICIAL_CHECK(*read <= piece);
  }
}
