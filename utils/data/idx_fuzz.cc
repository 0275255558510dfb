// The input is an IDX file, plain or gzipped.
#include "utils/compute/core/check.h"
#include "utils/data/idx.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const official::fuzzing::MemoryFile file(official::fuzzing::AsBytes(data, size));
  const auto tensor = official::data::ReadIdx(file.path());
  OFFICIAL_CHECK(tensor.ok() || absl::IsDataLoss(tensor.status())) << tensor.status();
  return 0;
}
