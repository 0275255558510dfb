#include "official/recommendation/data/zip_member.h"

#include <zip.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"

namespace official::recommendation {
namespace {

constexpr uint64_t kMaxMemberBytes = uint64_t{4} << 30;
constexpr int64_t kBufferBytes = 1 << 20;

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

// Whether a path stays within the directory that it is relative to.
bool StaysInside(absl::string_view path) {
  return !absl::StartsWith(path, "/") && !absl::StrContains(absl::StrCat("/", path, "/"), "/../") &&
         !absl::StrContains(path, '\\');
}

std::string ErrorOfOpening(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return reason;
}

// "no a, no b and no c".
std::string NoneOf(const std::vector<std::string>& names) {
  const auto before_last = absl::MakeSpan(names).subspan(0, names.size() - 1);
  return absl::StrCat("no ", absl::StrJoin(before_last, ", no "), before_last.empty() ? "" : " and no ", names.back());
}

// The number of the member that has one of the names.
absl::StatusOr<zip_uint64_t> FindMember(zip_t* zip, const std::string& archive, const std::vector<std::string>& names) {
  std::optional<zip_uint64_t> found;
  for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); ++i) {
    const char* const entry = zip_get_name(zip, i, 0);
    if (entry == nullptr) return absl::DataLossError(absl::StrFormat("%s: member %d has no name", archive, i));
    if (!StaysInside(entry)) {
      return absl::DataLossError(absl::StrFormat("%s has a member that lies outside of it: \"%s\"", archive,
                                                 absl::Utf8SafeCHexEscape(misc::Shorten(entry))));
    }
    const absl::string_view path = entry;
    if (!absl::c_linear_search(names, path.substr(path.rfind('/') + 1))) continue;
    if (found) {
      return absl::DataLossError(absl::StrFormat("%s has two files of which only one can be read: %s and %s", archive,
                                                 zip_get_name(zip, *found, 0), entry));
    }
    found = i;
  }
  if (found) return *found;
  return absl::DataLossError(absl::StrCat(archive, " has ", NoneOf(names)));
}

}  // namespace

struct ZipMember::Handles {
  std::unique_ptr<zip_t, ZipCloser> zip;
  std::unique_ptr<zip_file_t, ZipCloser> file;  // closed before the archive
};

ZipMember::ZipMember(std::string name, std::unique_ptr<Handles> handles)
    : name_(std::move(name)), handles_(std::move(handles)) {}
ZipMember::ZipMember(ZipMember&&) = default;
ZipMember::~ZipMember() = default;

absl::StatusOr<ZipMember> ZipMember::Open(const std::string& archive, const std::vector<std::string>& names) {
  // For its errors.
  RETURN_IF_ERROR(files::RandomAccessFile::Open(archive).status());
  auto handles = std::make_unique<Handles>();
  int code = 0;
  handles->zip.reset(zip_open(archive.c_str(), ZIP_RDONLY, &code));
  zip_t* const zip = handles->zip.get();
  if (zip == nullptr) {
    return absl::DataLossError(absl::StrFormat("%s is not a readable zip archive: %s%s", archive, ErrorOfOpening(code),
                                               data::KindNoteOfFile(archive)));
  }
  ASSIGN_OR_RETURN(const zip_uint64_t index, FindMember(zip, archive, names));
  std::string name = absl::StrCat(archive, "/", zip_get_name(zip, index, 0));
  zip_stat_t stat;
  if (zip_stat_index(zip, index, 0, &stat) != 0 || !(stat.valid & ZIP_STAT_SIZE)) {
    return absl::DataLossError(absl::StrFormat("%s: %s", name, zip_strerror(zip)));
  }
  if (stat.size > kMaxMemberBytes) {
    return absl::DataLossError(
        absl::StrFormat("%s has %d bytes, at most %d can be read", name, stat.size, kMaxMemberBytes));
  }
  handles->file.reset(zip_fopen_index(zip, index, 0));
  if (handles->file == nullptr) return absl::DataLossError(absl::StrFormat("%s: %s", name, zip_strerror(zip)));
  return ZipMember(std::move(name), std::move(handles));
}

absl::StatusOr<int64_t> ZipMember::Read(char* buffer, int64_t size) {
  const int64_t got = zip_fread(handles_->file.get(), buffer, size);
  if (got >= 0) return got;
  return absl::DataLossError(absl::StrFormat("%s: %s", name_, zip_file_strerror(handles_->file.get())));
}

absl::Status ZipMember::Extract(const std::string& to) {
  ASSIGN_OR_RETURN(const auto file, files::AtomicFile::Create(to));
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    ASSIGN_OR_RETURN(const int64_t got, Read(buffer.data(), kBufferBytes));
    if (got == 0) break;
    RETURN_IF_ERROR(file->Append(absl::string_view(buffer.data(), got)));
  }
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

}  // namespace official::recommendation
