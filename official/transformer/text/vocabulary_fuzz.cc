// The input is a vocabulary file and, behind the first byte 0, ids of 16 bits and at once a text: a vocabulary that can
// be read decodes any ids to UTF-8, and what it encodes comes back.
#include <cstring>
#include <vector>

#include "official/transformer/text/subtokenizer.h"
#include "official/transformer/text/unicode.h"
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace transformer = official::transformer;
  const absl::string_view input = official::fuzzing::AsBytes(data, size);
  const size_t end = input.find('\0');
  const official::fuzzing::MemoryFile file(input.substr(0, end));
  const auto subtokenizer = transformer::Subtokenizer::Load(file.path());
  OFFICIAL_CHECK(subtokenizer.ok() || absl::IsDataLoss(subtokenizer.status())) << subtokenizer.status();
  if (!subtokenizer.ok() || end == absl::string_view::npos) return 0;

  const absl::string_view text = input.substr(end + 1);
  std::vector<int16_t> numbers(text.size() / sizeof(int16_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(int16_t));
  std::vector<int32_t> ids(numbers.begin(), numbers.end());
  OFFICIAL_CHECK(transformer::FindInvalidUtf8(subtokenizer->Decode(ids)) == absl::string_view::npos);

  ids.clear();
  const absl::Status status = subtokenizer->Encode(text, &ids);
  OFFICIAL_CHECK(status.ok() || absl::IsDataLoss(status)) << status;
  OFFICIAL_CHECK(!status.ok() || subtokenizer->Decode(ids) == text);
  return 0;
}
