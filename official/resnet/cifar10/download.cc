#include "official/resnet/cifar10/download.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/data/download.h"
#include "utils/data/tar.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::resnet {
namespace {

// Unpacks these data files of the archive's folder into the one in `data_dir`.
absl::Status Unpack(const std::string& path, const std::string& data_dir, const std::vector<std::string>& wanted) {
  ASSIGN_OR_RETURN(const auto reader, data::TarReader::Open(path));
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  RETURN_IF_ERROR(files::MakeDirectories(folder));
  for (;;) {
    ASSIGN_OR_RETURN(const data::TarMember member, reader->Next());
    if (member.name.empty()) break;
    absl::string_view name = member.name;
    const bool is_wanted = absl::ConsumePrefix(&name, absl::StrCat(kCifar10Folder, "/")) && member.is_file &&
                           std::count(wanted.begin(), wanted.end(), std::string(name)) > 0;
    if (is_wanted) RETURN_IF_ERROR(reader->Extract(files::JoinPath(folder, name)));
  }
  return files::SyncDirectory(folder);
}

// The data files that are not there, or that are cut.
std::vector<std::string> MissingFiles(const std::string& data_dir) {
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  std::vector<std::string> missing;
  for (const std::string& name : Cifar10FileNames()) {
    const absl::Status status = CheckCifar10File(files::JoinPath(folder, name));
    if (absl::IsNotFound(status) || absl::IsDataLoss(status)) missing.push_back(name);
  }
  return missing;
}

// Says which of the user's files do not stay as they are.
void WarnOfReplaced(const std::string& data_dir, const std::vector<std::string>& missing) {
  for (const std::string& name : missing) {
    const std::string path = files::JoinPath(files::JoinPath(data_dir, kCifar10Folder), name);
    if (files::Exists(path)) {
      LOG(WARNING) << path << " is cut or not CIFAR-10's: it is replaced";
    }
  }
}

absl::Status CheckArchive(const std::string& path, const Cifar10Source& source) {
  const absl::StatusOr<std::string> sha256 = data::Sha256OfFile(path);
  if (absl::IsNotFound(sha256.status())) {
    return absl::NotFoundError(absl::StrCat(sha256.status().message(), ": it should be a copy of ", source.urls[0]));
  }
  RETURN_IF_ERROR(sha256.status());
  if (*sha256 == source.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s is not the published %s: its SHA-256 is %s, expected %s", path,
                                             kCifar10Archive, *sha256, source.sha256));
}

}  // namespace

absl::Status DownloadCifar10(const std::string& data_dir, const Cifar10Source& source) {
  const std::vector<std::string> needed = MissingFiles(data_dir);
  if (needed.empty()) return absl::OkStatus();
  const bool given = !source.archive.empty();
  const std::string archive = given ? source.archive : files::JoinPath(data_dir, kCifar10Archive);
  if (given) {
    RETURN_IF_ERROR(CheckArchive(archive, source));
  } else {
    const data::RemoteFile remote{
        .path = archive, .urls = source.urls, .num_bytes = source.num_bytes, .sha256 = source.sha256};
    const absl::Status downloaded = data::DownloadFiles({remote});
    if (absl::IsUnavailable(downloaded)) {
      return absl::UnavailableError(
          absl::StrFormat("%s; with a copy of %s from elsewhere, run `download_cifar10_main %s COPY`",
                          downloaded.message(), kCifar10Archive, data_dir));
    }
    RETURN_IF_ERROR(downloaded);
  }
  WarnOfReplaced(data_dir, needed);
  LOG(INFO) << "unpacking " << archive;
  {
    const logs::TaskProgress progress({.title = absl::StrCat("unpacking ", kCifar10Archive)});
    RETURN_IF_ERROR(Unpack(archive, data_dir, needed));
  }
  const std::vector<std::string> missing = MissingFiles(data_dir);
  if (!missing.empty()) return absl::DataLossError(absl::StrCat(archive, " has no complete ", missing[0]));
  return given ? absl::OkStatus() : files::RemoveFile(archive);
}

}  // namespace official::resnet
