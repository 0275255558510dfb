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

// Unpacks the data files of the archive's folder into the one in `data_dir`.
absl::Status Unpack(const std::string& path, const std::string& data_dir) {
  ASSIGN_OR_RETURN(const auto reader, data::TarReader::Open(path));
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  RETURN_IF_ERROR(files::MakeDirectories(folder));
  const std::vector<std::string> wanted = Cifar10FileNames();
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

std::vector<std::string> MissingFiles(const std::string& data_dir) {
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  std::vector<std::string> missing = Cifar10FileNames();
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](const std::string& name) { return files::Exists(files::JoinPath(folder, name)); }),
                missing.end());
  return missing;
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
  if (MissingFiles(data_dir).empty()) return absl::OkStatus();
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
  LOG(INFO) << "unpacking " << archive;
  {
    const logs::TaskProgress progress({.title = absl::StrCat("unpacking ", kCifar10Archive)});
    RETURN_IF_ERROR(Unpack(archive, data_dir));
  }
  const std::vector<std::string> missing = MissingFiles(data_dir);
  if (!missing.empty()) return absl::DataLossError(absl::StrCat(archive, " is missing ", missing[0]));
  return given ? absl::OkStatus() : files::RemoveFile(archive);
}

}  // namespace official::resnet
