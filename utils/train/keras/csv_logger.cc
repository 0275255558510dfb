#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"
#include "utils/train/keras/callbacks.h"

namespace official::keras {
namespace {

class CSVLoggerCallback : public Callback {
 public:
  explicit CSVLoggerCallback(const CSVLoggerOptions& options) : options_(options) {}

  absl::Status OnTrainBegin(Training& training) override {
    if (!training.is_chief) return absl::OkStatus();
    if (options_.append && files::Exists(options_.filename)) {
      ASSIGN_OR_RETURN(const auto present, files::RandomAccessFile::Open(options_.filename));
      has_header_ = present->size() > 0;
    }
    using Mode = files::FileWriter::Mode;
    ASSIGN_OR_RETURN(file_,
                     files::FileWriter::Open(options_.filename, options_.append ? Mode::kAppend : Mode::kReplace));
    return absl::OkStatus();
  }

  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    if (file_ == nullptr) return absl::OkStatus();
    if (names_.empty()) SetNames(logs);
    std::string lines;
    if (!std::exchange(has_header_, true)) Append("epoch", names_, lines);
    std::vector<std::string> values;
    for (const std::string& name : names_) {
      const auto found = std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == name; });
      values.push_back(found == logs.end() ? "NA" : logs::FormatDouble(found->second));
    }
    Append(absl::StrCat(epoch), values, lines);
    RETURN_IF_ERROR(file_->Append(lines));
    return file_->Flush();
  }

  absl::Status OnTrainEnd(Training&) override { return file_ == nullptr ? absl::OkStatus() : file_->Close(); }

 private:
  // Without validation data in the first epoch there are columns for its metrics, all the same.
  void SetNames(const Logs& logs) {
    for (const auto& log : logs) names_.push_back(log.first);
    std::sort(names_.begin(), names_.end());
    const auto is_validation = [](const std::string& name) { return absl::StartsWith(name, "val_"); };
    if (std::any_of(names_.begin(), names_.end(), is_validation)) return;
    const std::vector<std::string> of_training = names_;
    for (const std::string& name : of_training) names_.push_back(absl::StrCat("val_", name));
  }
  void Append(const std::string& first, const std::vector<std::string>& others, std::string& lines) const {
    const std::string separator(1, options_.separator);
    absl::StrAppend(&lines, first, separator, absl::StrJoin(others, separator), "\r\n");
  }

  const CSVLoggerOptions options_;
  std::unique_ptr<files::FileWriter> file_;
  bool has_header_ = false;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Callback> CSVLogger(const CSVLoggerOptions& options) {
  return std::make_unique<CSVLoggerCallback>(options);
}

}  // namespace official::keras
