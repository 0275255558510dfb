// The input is a PNG image.
#include "utils/compute/core/check.h"
#include "utils/data/png.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const official::fuzzing::MemoryFile file(official::fuzzing::AsBytes(data, size));
  const auto image = official::data::ReadPng(file.path());
  OFFICIAL_CHECK(image.ok() || absl::IsDataLoss(image.status())) << image.status();
  return 0;
}
