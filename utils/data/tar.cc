#include "utils/data/tar.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

// Source: POSIX pax interchange format, "ustar"; what is read here is the same in all versions of tar.
constexpr int64_t kBlockBytes = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<TarReader>> TarReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  const int64_t size = file->size();
  char magic[2];
  if (size < 2) return absl::DataLossError(absl::StrCat(path, " is not a gzip file"));
  RETURN_IF_ERROR(file->Read(0, sizeof(magic), magic));
  if (!IsGzip(absl::string_view(magic, sizeof(magic)))) {
    return absl::DataLossError(absl::StrCat(path, " is not a gzip file"));
  }
  if (size > kMaxGzipBytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes, at most %d can be read", path, size, kMaxGzipBytes));
  }
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->fd(), 0);
  if (mapped == MAP_FAILED) return files::ErrnoStatus(errno, "map", path);
  return std::unique_ptr<TarReader>(new TarReader(path, absl::string_view(static_cast<char*>(mapped), size)));
}

TarReader::~TarReader() { munmap(const_cast<char*>(mapped_.data()), mapped_.size()); }

absl::Status TarReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrFormat("%s is not a readable tar archive: %s", path_, what));
}

absl::StatusOr<TarMember> TarReader::Next() {
  if (has_content_) RETURN_IF_ERROR(ReadContent(""));
  char block[kBlockBytes];
  ASSIGN_OR_RETURN(const int64_t got, gzip_.Read(sizeof(block), block));
  if (got < kBlockBytes) return Damaged("it is cut");
  const std::string size(block + 124, strnlen(block + 124, 12));
  member_ = {.name = std::string(block, strnlen(block, 100)), .is_file = block[156] == '0' || block[156] == '\0'};
  for (const char digit : absl::StripAsciiWhitespace(size)) {
    if (digit < '0' || digit > '7') return Damaged(absl::StrCat("the size of ", member_.name, " is not a number"));
    member_.num_bytes = member_.num_bytes * 8 + (digit - '0');
  }
  has_content_ = true;
  return member_;
}

absl::Status TarReader::Extract(const std::string& to) { return ReadContent(to); }

absl::Status TarReader::ReadContent(const std::string& to) {
  has_content_ = false;
  std::unique_ptr<files::AtomicFile> file;
  if (!to.empty()) {
    ASSIGN_OR_RETURN(file, files::AtomicFile::Create(to));
  }
  std::string buffer;
  constexpr int64_t kBufferBytes = 1 << 20;
  const int64_t padded = (member_.num_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  for (int64_t done = 0; done < padded; done += static_cast<int64_t>(buffer.size())) {
    buffer.resize(std::min(kBufferBytes, padded - done));
    ASSIGN_OR_RETURN(const int64_t got, gzip_.Read(buffer.size(), buffer.data()));
    if (got < static_cast<int64_t>(buffer.size())) return Damaged(absl::StrCat(member_.name, " is cut"));
    const int64_t content = std::min<int64_t>(got, member_.num_bytes - done);
    if (file != nullptr) RETURN_IF_ERROR(file->Append(absl::string_view(buffer).substr(0, content)));
  }
  if (file == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

}  // namespace official::data
