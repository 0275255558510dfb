// The input is a serialized tf.Example.
#include <vector>

#include "utils/compute/core/check.h"
#include "utils/data/records/example.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto example = official::data::ExampleView::Parse(official::fuzzing::AsBytes(data, size));
  OFFICIAL_CHECK(example.ok() || absl::IsDataLoss(example.status())) << example.status();
  if (!example.ok()) return 0;
  std::vector<float> floats;
  std::vector<int64_t> integers;
  for (const char* name : {"image/encoded", "image/class/label", "image/object/bbox/xmin", ""}) {
    const absl::Status results[] = {example->Bytes(name).status(), example->Int64(name).status(),
                                    example->Floats(name, &floats), example->Int64s(name, &integers)};
    for (const absl::Status& status : results) OFFICIAL_CHECK(status.ok() || absl::IsDataLoss(status)) << status;
  }
  return 0;
}
