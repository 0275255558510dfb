#include "official/data_check/check_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "official/data_check/data_format.h"
#include "official/data_check/file_checks.h"
#include "official/resnet/imagenet/dataset.h"
#include "official/transformer/record_files.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"
#include "utils/logs/task_progress.h"

namespace official::data_check {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string path;
  DataFormat format;
  bool in_directory;  // found in a directory, not named
};

// Text files in two languages, by their names: the path without the extension, which is a language. Empty for others.
std::string StemOfText(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos || path.find('/', dot) != std::string::npos) return "";
  const std::string extension = path.substr(dot + 1);
  const bool is_language = (extension.size() == 2 || extension.size() == 3) &&
                           std::all_of(extension.begin(), extension.end(), absl::ascii_islower);
  const bool is_kind = extension == "txt" || extension == "csv" || extension == "tsv" || extension == "dat" ||
                       extension == "log" || extension == "md";
  return is_language && !is_kind ? path.substr(0, dot) : "";
}

// ISO 639-1.
constexpr absl::string_view kLanguages =
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv "
    "dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig "
    "ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh "
    "mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru "
    "rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug "
    "uk ur uz ve vi vo wa wo xh yi yo za zh zu ";

bool IsLanguage(absl::string_view extension) {
  for (size_t i = 0; i + 2 <= kLanguages.size(); i += 3) {
    if (kLanguages.substr(i, 2) == extension) return true;
  }
  return false;
}

absl::Status AddFile(const std::string& path, bool in_directory, std::vector<File>& found) {
  ASSIGN_OR_RETURN(const DataFormat format, FormatOfFile(path));
  if (format == DataFormat::kUnknown) {
    if (in_directory) return absl::OkStatus();
    return absl::DataLossError(absl::StrFormat(
        "%s is in no format that the programs read: TFRecord, IDX, CIFAR-10's, ratings, a vocabulary, or text%s", path,
        data::KindNoteOfFile(path)));
  }
  found.push_back({path, format, in_directory});
  return absl::OkStatus();
}

// Of the text in a directory, only that in several languages is data; labels.txt, README, index.css and index.js, and
// others are not.
void DropOtherText(std::vector<File>& found) {
  const auto is_translated = [](const File& file) {
    return file.format == DataFormat::kText && IsLanguage(file.path.substr(file.path.rfind('.') + 1));
  };
  std::map<std::string, int> stems;
  for (const File& file : found) {
    if (is_translated(file)) ++stems[StemOfText(file.path)];
  }
  const auto is_other = [&](const File& file) {
    return file.in_directory && file.format == DataFormat::kText &&
           (!is_translated(file) || stems[StemOfText(file.path)] < 2);
  };
  found.erase(std::remove_if(found.begin(), found.end(), is_other), found.end());
}

absl::Status AddDirectory(const std::string& directory, std::vector<File>& found) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;  // of a link that leads nowhere
    if (absl::StartsWith(name, ".") || files::FinalNameOf(name).has_value()) {
      if (entry->is_directory(ignored)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored)) {
      paths.push_back(entry->path().string());
    }
  }
  if (error) return files::ErrnoStatus(error.value(), "search", directory);
  std::sort(paths.begin(), paths.end());
  const size_t before = found.size();
  for (const std::string& path : paths) RETURN_IF_ERROR(AddFile(path, /*in_directory=*/true, found));
  DropOtherText(found);
  if (found.size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(directory, " holds no data files of a format that the programs read"));
}

absl::StatusOr<std::vector<File>> FindFiles(const std::vector<std::string>& paths) {
  std::vector<File> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      RETURN_IF_ERROR(AddDirectory(path, found));
    } else {
      RETURN_IF_ERROR(AddFile(path, /*in_directory=*/false, found));
    }
  }
  return found;
}

absl::Status CheckOne(const File& file, const CheckOptions& options, Findings& findings) {
  switch (file.format) {
    case DataFormat::kTFRecord:
    case DataFormat::kCompressedTFRecord:
      return CheckTFRecords(file.format == DataFormat::kCompressedTFRecord, options, findings);
    case DataFormat::kIdx:
      return CheckIdx(findings);
    case DataFormat::kCifar10:
      return CheckCifar10(findings);
    case DataFormat::kRatings:
      return CheckRatings(findings);
    case DataFormat::kVocabulary:
      return CheckVocabulary(findings);
    case DataFormat::kText:
      return CheckText(findings);
    case DataFormat::kUnknown:
      break;
  }
  return absl::InternalError(absl::StrCat("no check for ", file.path));
}

// The name that a file shares with those that need as many records; empty if there are none.
std::string GroupOf(const CheckedFile& file) {
  if (file.contents == kText) return StemOfText(file.path);
  if (!absl::StartsWith(file.contents, "IDX of ")) return "";
  return absl::StrReplaceAll(file.path, {{"images-idx3", "idx"}, {"labels-idx1", "idx"}, {".gz", ""}});
}

using ReportFn = std::function<void(const BadRecord&)>;

void CompareCounts(const std::vector<CheckedFile>& checked, const ReportFn& report) {
  std::map<std::string, const CheckedFile*> first;
  for (const CheckedFile& file : checked) {
    const std::string group = GroupOf(file);
    if (group.empty()) continue;
    const CheckedFile& other = *first.try_emplace(group, &file).first->second;
    if (other.num_records == file.num_records) continue;
    const absl::string_view unit = file.contents == kText ? "lines" : "records";
    report({.file = file.path,
            .message = absl::StrFormat("%s has %d %s, but %s, which belongs to it, has %d", file.path, file.num_records,
                                       unit, other.path, other.num_records)});
  }
}

// Looks for gaps in the numbered files of directories, as training does.
void FindMissingFiles(const std::vector<File>& files, const std::vector<CheckedFile>& checked, const ReportFn& report) {
  std::set<std::pair<std::string, bool>> directories;  // true: of images
  for (size_t i = 0; i < files.size(); ++i) {
    const bool images = absl::StartsWith(checked[i].contents, kImageRecords);
    if (!files[i].in_directory || (!images && !absl::StartsWith(checked[i].contents, kSentenceRecords))) continue;
    directories.emplace(files::DirectoryOf(files[i].path), images);
  }
  for (const auto& [directory, images] : directories) {
    for (const char* const tag : {"train", images ? "validation" : "dev"}) {
      const absl::Status status = images ? resnet::FindImagenetFiles(directory, tag).status()
                                         : transformer::FindRecordFiles(directory, tag).status();
      if (absl::IsDataLoss(status)) report({.file = directory, .message = std::string(status.message())});
    }
  }
}

}  // namespace

absl::StatusOr<CheckResult> CheckFiles(const CheckOptions& options, const Reports& reports) {
  ASSIGN_OR_RETURN(const std::vector<File> files, FindFiles(options.paths));
  std::mutex mutex;
  CheckResult total{.num_files = static_cast<int64_t>(files.size())};
  const auto report_bad = [&](const BadRecord& bad) {
    std::lock_guard<std::mutex> lock(mutex);
    ++total.num_bad;
    reports.bad(bad);
  };
  int64_t num_bytes = 0;
  std::vector<int64_t> sizes;
  for (const File& file : files) {
    std::error_code error;
    const uintmax_t size = fs::file_size(file.path, error);
    num_bytes += sizes.emplace_back(error ? 0 : static_cast<int64_t>(size));  // what cannot be read is told below
  }
  logs::TaskProgress progress({.title = "checking", .total = num_bytes, .unit = "B"});
  std::vector<absl::Status> statuses(files.size());
  std::vector<CheckedFile> checked(files.size());
  data::WorkerPool(options.num_threads).ForEach(static_cast<int64_t>(files.size()), [&](int64_t i) {
    int64_t done = 0;
    const auto add_progress = [&](int64_t bytes) {
      done += bytes;
      progress.Add(bytes);
    };
    Findings findings(files[i].path, report_bad, add_progress);
    statuses[i] = CheckOne(files[i], options, findings);
    checked[i] = findings.file();
    progress.Add(sizes[i] - done);
    if (!statuses[i].ok()) return;
    std::lock_guard<std::mutex> lock(mutex);
    total.num_records += checked[i].num_records;
    reports.file(checked[i]);
  });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  CompareCounts(checked, report_bad);
  FindMissingFiles(files, checked, report_bad);
  return total;
}

}  // namespace official::data_check
