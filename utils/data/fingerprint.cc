#include "utils/data/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "utils/files/crc32c.h"

namespace official::data {

void Fingerprint::AddFile(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  if (num_files_++ == 0) first_file_ = std::string(name);
  last_file_ = std::string(name);
  digest_ = files::Crc32c(absl::StrCat(name, "\n"), digest_);
}

void Fingerprint::AddContent(const void* bytes, int64_t num_bytes) {
  constexpr int64_t kWhole = 1 << 20, kBlock = 1 << 12, kBlocks = 64;
  const absl::string_view all(static_cast<const char*>(bytes), static_cast<size_t>(num_bytes));
  digest_ = files::Crc32c(absl::StrCat(num_bytes, "\n"), digest_);
  if (num_bytes <= kWhole) {
    digest_ = files::Crc32c(all, digest_);
    return;
  }
  for (int64_t i = 0; i < kBlocks; ++i) {
    const int64_t begin = i * (num_bytes - kBlock) / (kBlocks - 1);
    digest_ = files::Crc32c(all.substr(static_cast<size_t>(begin), kBlock), digest_);
  }
}

std::string Fingerprint::Digest() const { return absl::StrCat(absl::Hex(digest_, absl::kZeroPad8)); }

std::string Fingerprint::ToString(int64_t num_examples) const {
  std::string text = absl::StrCat(num_examples, " examples");
  if (num_files_ == 1) absl::StrAppend(&text, " in ", first_file_);
  if (num_files_ > 1) absl::StrAppend(&text, " in ", num_files_, " files, ", first_file_, " to ", last_file_);
  return absl::StrCat(text, ", digest ", Digest());
}

}  // namespace official::data
