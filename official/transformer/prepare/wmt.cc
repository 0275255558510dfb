#include "official/transformer/prepare/wmt.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/data/download.h"
#include "utils/data/tar.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::transformer {
namespace {

constexpr int kMaxDepth = 5;  // upstream's

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Downloads the archive to `path` if it is not there.
absl::Status GetArchive(const WmtArchive& archive, const std::string& path, bool download) {
  if (!download && !files::Exists(path)) {
    return absl::NotFoundError(
        absl::StrFormat("there is no %s; it should be a copy of %s (%d bytes)", path, archive.url, archive.num_bytes));
  }
  if (!files::Exists(path)) {
    const data::RemoteFile remote{
        .path = path, .urls = {archive.url}, .num_bytes = archive.num_bytes, .sha256 = archive.sha256};
    return data::DownloadFiles({remote}, {.timeout = std::chrono::hours(24)});
  }
  ASSIGN_OR_RETURN(const std::string sha256, data::Sha256OfFile(path));
  if (sha256 == archive.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s is not what is published at %s: its SHA-256 is %s, expected %s", path,
                                             archive.url, sha256, archive.sha256));
}

absl::Status Unpack(const std::string& path, std::vector<std::string> wanted, const std::string& raw_dir) {
  LOG(INFO) << "unpacking " << path;
  const logs::TaskProgress progress({.title = absl::StrCat("unpacking ", BaseName(path))});
  ASSIGN_OR_RETURN(const auto reader, data::TarReader::Open(path));
  while (!wanted.empty()) {
    ASSIGN_OR_RETURN(const data::TarMember member, reader->Next());
    if (member.name.empty())
      return absl::DataLossError(absl::StrCat(path, " is missing ", absl::StrJoin(wanted, ", ")));
    const std::string name = BaseName(member.name);
    const auto found = std::find(wanted.begin(), wanted.end(), name);
    if (!member.is_file || found == wanted.end()) continue;
    RETURN_IF_ERROR(reader->Extract(files::JoinPath(raw_dir, name)));
    wanted.erase(found);
  }
  return files::SyncDirectory(raw_dir);
}

}  // namespace

// Sizes and checksums: tensorflow_datasets/url_checksums/wmt17_translate.txt. Upstream takes newstest2013 from the
// dev.tgz of 2017; that of 2019 has the same files.
const std::vector<WmtArchive>& Wmt17() {
  static const auto* const archives = new std::vector<WmtArchive>{
      {.url = "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
       .num_bytes = 168591139,
       .sha256 = "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
       .files = {"news-commentary-v12.de-en.en", "news-commentary-v12.de-en.de"}},
      {.url = "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
       .num_bytes = 918311367,
       .sha256 = "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
       .files = {"commoncrawl.de-en.en", "commoncrawl.de-en.de"}},
      {.url = "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
       .num_bytes = 657632379,
       .sha256 = "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
       .files = {"europarl-v7.de-en.en", "europarl-v7.de-en.de"}},
      {.url = "http://data.statmt.org/wmt19/translation-task/dev.tgz",
       .num_bytes = 38654961,
       .sha256 = "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
       .files = {"newstest2013.en", "newstest2013.de"}},
  };
  return *archives;
}

std::vector<std::string> LocateText(const std::string& raw_dir, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(files::JoinPath(raw_dir, name));
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(
      raw_dir, std::filesystem::directory_options::skip_permission_denied, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
    const auto found = std::find(names.begin(), names.end(), entry->path().filename().string());
    if (found == names.end()) continue;
    std::string& path = paths[found - names.begin()];
    if (!files::Exists(path)) path = entry->path().string();
  }
  return paths;
}

absl::Status DownloadText(const std::string& raw_dir, absl::Span<const WmtArchive> archives,
                          const std::string& from_dir) {
  const bool download = from_dir.empty();
  for (const WmtArchive& archive : archives) {
    const std::vector<std::string> paths = LocateText(raw_dir, archive.files);
    std::vector<std::string> missing;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!files::Exists(paths[i])) missing.push_back(archive.files[i]);
    }
    if (missing.empty()) continue;
    const std::string path = files::JoinPath(download ? raw_dir : from_dir, BaseName(archive.url));
    RETURN_IF_ERROR(GetArchive(archive, path, download));
    RETURN_IF_ERROR(files::MakeDirectories(raw_dir));
    RETURN_IF_ERROR(Unpack(path, missing, raw_dir));
    if (download) RETURN_IF_ERROR(files::RemoveFile(path));
  }
  return absl::OkStatus();
}

}  // namespace official::transformer
