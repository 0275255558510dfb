#include "official/resnet/cifar10/download.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/data/download.h"
#include "utils/data/gzip.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::resnet {
namespace {

constexpr char kArchiveName[] = "cifar-10-binary.tar.gz";

// A member of a tar archive. Source: POSIX pax interchange format, "ustar"; what is read here is the same in all
// versions of tar.
struct TarMember {
  static constexpr int64_t kBlockBytes = 512;
  std::string name;
  int64_t num_bytes;
  bool is_file;
};

absl::Status BadArchive(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrFormat("%s is no tar archive that can be read: %s", path, what));
}

// The next member, whose content then follows; one without a name at the end of the archive.
absl::StatusOr<TarMember> ReadHeader(const std::string& path, data::GzipReader& reader) {
  char block[TarMember::kBlockBytes];
  ASSIGN_OR_RETURN(const int64_t got, reader.Read(sizeof(block), block));
  if (got < TarMember::kBlockBytes) return BadArchive(path, "it is cut");
  const std::string name(block, strnlen(block, 100));
  const std::string size(block + 124, strnlen(block + 124, 12));
  TarMember member{.name = name, .num_bytes = 0, .is_file = block[156] == '0' || block[156] == '\0'};
  for (const char digit : absl::StripAsciiWhitespace(size)) {
    if (digit < '0' || digit > '7') return BadArchive(path, absl::StrCat("the size of ", name, " is no number"));
    member.num_bytes = member.num_bytes * 8 + (digit - '0');
  }
  return member;
}

// Writes the member's content to `to`, or nowhere if that is empty.
absl::Status ReadContent(const std::string& path, const TarMember& member, data::GzipReader& reader,
                         const std::string& to) {
  std::unique_ptr<files::AtomicFile> file;
  if (!to.empty()) {
    ASSIGN_OR_RETURN(file, files::AtomicFile::Create(to));
  }
  std::string buffer;
  constexpr int64_t kBlock = TarMember::kBlockBytes, kBufferBytes = 1 << 20;
  const int64_t padded = (member.num_bytes + kBlock - 1) / kBlock * kBlock;
  for (int64_t done = 0; done < padded; done += static_cast<int64_t>(buffer.size())) {
    buffer.resize(std::min(kBufferBytes, padded - done));
    ASSIGN_OR_RETURN(const int64_t got, reader.Read(buffer.size(), buffer.data()));
    if (got < static_cast<int64_t>(buffer.size())) return BadArchive(path, absl::StrCat(member.name, " is cut"));
    const int64_t content = std::min<int64_t>(got, member.num_bytes - done);
    if (file != nullptr) RETURN_IF_ERROR(file->Append(absl::string_view(buffer).substr(0, content)));
  }
  if (file == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

// Unpacks the data files of the archive's folder into the one in `data_dir`.
absl::Status Unpack(const std::string& path, const std::string& data_dir) {
  ASSIGN_OR_RETURN(const std::string bytes, files::ReadFile(path, data::kMaxGzipBytes));
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  RETURN_IF_ERROR(files::MakeDirectories(folder));
  data::GzipReader reader(bytes, path);
  const std::vector<std::string> wanted = Cifar10FileNames();
  for (;;) {
    ASSIGN_OR_RETURN(const TarMember member, ReadHeader(path, reader));
    if (member.name.empty()) break;
    absl::string_view name = member.name;
    const bool is_wanted = absl::ConsumePrefix(&name, absl::StrCat(kCifar10Folder, "/")) && member.is_file &&
                           std::count(wanted.begin(), wanted.end(), std::string(name)) > 0;
    RETURN_IF_ERROR(ReadContent(path, member, reader, is_wanted ? files::JoinPath(folder, name) : ""));
  }
  return files::SyncDirectory(folder);
}

std::vector<std::string> MissingFiles(const std::string& data_dir) {
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  std::vector<std::string> missing = Cifar10FileNames();
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](const std::string& name) { return files::Exists(files::JoinPath(folder, name)); }),
                missing.end());
  return missing;
}

absl::Status CheckArchive(const std::string& path, const Cifar10Source& source) {
  ASSIGN_OR_RETURN(const std::string sha256, data::Sha256OfFile(path));
  if (sha256 == source.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s is not the published %s: its SHA-256 is %s, expected %s", path,
                                             kArchiveName, sha256, source.sha256));
}

}  // namespace

absl::Status DownloadCifar10(const std::string& data_dir, const Cifar10Source& source) {
  if (MissingFiles(data_dir).empty()) return absl::OkStatus();
  const bool given = !source.archive.empty();
  const std::string archive = given ? source.archive : files::JoinPath(data_dir, kArchiveName);
  if (given) {
    RETURN_IF_ERROR(CheckArchive(archive, source));
  } else {
    const data::RemoteFile remote{
        .path = archive, .urls = source.urls, .num_bytes = source.num_bytes, .sha256 = source.sha256};
    const absl::Status downloaded = data::DownloadFiles({remote});
    if (absl::IsUnavailable(downloaded)) {
      return absl::UnavailableError(
          absl::StrFormat("%s; a copy of %s from elsewhere is unpacked by `tools/download cifar10 %s COPY`",
                          downloaded.message(), kArchiveName, data_dir));
    }
    RETURN_IF_ERROR(downloaded);
  }
  LOG(INFO) << "unpacking " << archive;
  RETURN_IF_ERROR(Unpack(archive, data_dir));
  const std::vector<std::string> missing = MissingFiles(data_dir);
  if (!missing.empty()) return BadArchive(archive, absl::StrCat("it lacks ", missing[0]));
  return given ? absl::OkStatus() : files::RemoveFile(archive);
}

}  // namespace official::resnet
