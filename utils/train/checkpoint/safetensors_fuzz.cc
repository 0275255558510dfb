// The input is a safetensors file, read as it is, and once more as a header whose size is right, up to the first zero
// byte, before the rest as data.
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"
#include "utils/train/checkpoint/safetensors.h"

namespace {

using official::train::SafetensorsReader;

void Read(absl::string_view bytes) {
  const official::fuzzing::MemoryFile file(bytes);
  const auto reader = SafetensorsReader::Open(file.path());
  OFFICIAL_CHECK(reader.ok() || absl::IsDataLoss(reader.status())) << reader.status();
  if (!reader.ok()) return;
  int64_t num_bytes = 0;
  for (const auto& tensor : (*reader)->ListTensors()) {
    num_bytes += tensor.file.empty() ? 0 : tensor.num_bytes;
    const absl::Status verified = (*reader)->Verify(tensor.name);
    OFFICIAL_CHECK(verified.ok()) << verified;
    const auto value = (*reader)->Read(tensor.name);
    OFFICIAL_CHECK(value.ok() || absl::IsDataLoss(value.status()) || absl::IsUnimplemented(value.status()))
        << value.status();
    OFFICIAL_CHECK(!value.ok() || (value->shape() == tensor.shape && value->num_bytes() == tensor.num_bytes));
  }
  OFFICIAL_CHECK(num_bytes <= static_cast<int64_t>(bytes.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes = official::fuzzing::AsBytes(data, size);
  Read(bytes);
  const absl::string_view header = bytes.substr(0, bytes.find('\0'));
  std::string sized;
  for (int i = 0; i < 8; ++i) sized.push_back(static_cast<char>(header.size() >> (8 * i)));
  absl::string_view rest = bytes.substr(header.size());
  Read(absl::StrCat(sized, header, rest.empty() ? rest : rest.substr(1)));
  return 0;
}
