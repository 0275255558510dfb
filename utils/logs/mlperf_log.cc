#include "utils/logs/mlperf_log.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::logs {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;
constexpr absl::string_view kPrefix = ":::MLLOG ";  // of each line

const char* EventType(absl::string_view key) {
  if (absl::EndsWith(key, "_start")) return "INTERVAL_START";
  return absl::EndsWith(key, "_stop") ? "INTERVAL_END" : "POINT_IN_TIME";
}

// Returns AlreadyExists for a file with anything but a log, which a crash may have cut inside its first line.
absl::Status CheckIsLog(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  char buffer[kPrefix.size()];
  ASSIGN_OR_RETURN(const int64_t size, file->ReadSome(0, kPrefix.size(), buffer));
  if (absl::StartsWith(kPrefix, absl::string_view(buffer, size))) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("cannot log to ", path, ": it does not begin with \"", kPrefix,
                                               "\", so it is another file than a log of MLPerf; remove it, or log to "
                                               "another file"));
}

// The lines of an earlier part of a training that its log keeps when it resumes.
absl::string_view Unfinished(absl::string_view log) {
  // npos + 1 is 0.
  log = log.substr(0, log.rfind('\n') + 1);
  if (log.empty()) return log;
  const size_t last = log.rfind('\n', log.size() - 2) + 1;
  return absl::StrContains(log.substr(last), R"("key": "run_stop")") ? log.substr(0, last) : log;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MlperfLog>> MlperfLog::Open(const std::string& path, Clock clock) {
  RETURN_IF_ERROR(files::MakeDirectories(files::DirectoryOf(path)));
  RETURN_IF_ERROR(files::FileWriter::Open(path, files::FileWriter::Mode::kAppend).status());
  RETURN_IF_ERROR(CheckIsLog(path));
  return std::unique_ptr<MlperfLog>(new MlperfLog(path, std::move(clock)));
}

absl::Status MlperfLog::Write(absl::string_view key, Json value, Json::Object metadata, const char* file, int line) {
  metadata.insert(metadata.begin(), {{"file", file}, {"lineno", line}});
  const Json event = Json::Object{{"namespace", ""},
                                  {"time_ms", absl::ToUnixMillis(clock_())},
                                  {"event_type", EventType(key)},
                                  {"key", std::string(key)},
                                  {"value", std::move(value)},
                                  {"metadata", std::move(metadata)}};
  const std::string text = absl::StrCat(kPrefix, DumpJson(event), "\n");
  if (file_ == nullptr) {
    waiting_ += text;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(file_->Append(text));
  return file_->Flush();
}

absl::Status MlperfLog::Begin(bool resumed) {
  ASSIGN_OR_RETURN(const std::string before, files::ReadFile(path_, kMaxBytes));
  const absl::string_view kept = resumed ? Unfinished(before) : "";
  const std::string start = kept.empty() ? waiting_ : std::string(kept);
  if (start != before) RETURN_IF_ERROR(files::WriteFileAtomically(path_, start));
  ASSIGN_OR_RETURN(file_, files::FileWriter::Open(path_, files::FileWriter::Mode::kAppend));
  return absl::OkStatus();
}

}  // namespace official::logs
