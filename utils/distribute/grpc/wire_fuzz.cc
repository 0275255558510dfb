// What comes from the network: a message of strings, a hello, and a stream of messages. The first byte says which.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "utils/compute/core/check.h"
#include "utils/distribute/grpc/wire.h"

namespace {

using official::distribute::FrameReader;

// Messages of the lengths that the bytes in front of them say.
void ReadFrames(absl::string_view bytes) {
  FrameReader reader;
  while (!bytes.empty()) {
    const size_t size = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    const auto taken =
        reader.Take({bytes.substr(0, size / 2), bytes.substr(std::min(size / 2, bytes.size()), size - size / 2)});
    if (!taken.ok()) return;
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) {
    const auto strings = official::distribute::UnpackStrings(bytes);
    OFFICIAL_CHECK(!strings.ok() || official::distribute::PackStrings(*strings) == bytes);
  } else if (data[0] % 3 == 1) {
    OFFICIAL_CHECK(!official::distribute::UnpackHello(bytes, "key").ok());  // nobody guesses the proof
  } else {
    ReadFrames(bytes);
  }
  return 0;
}
