#include "utils/data/records/bad_records.h"

#include "absl/strings/str_cat.h"
#include "utils/logs/log.h"

namespace official::data {
namespace {

// So that a thousand bad records do not fill the log.
constexpr size_t kTold = 20;

}  // namespace

absl::Status BadRecords::Skip(absl::string_view record, const absl::Status& error) {
  if (!absl::IsDataLoss(error) || limit_ == 0) return error;
  std::lock_guard<std::mutex> lock(mutex_);
  if (records_.contains(record)) return absl::OkStatus();
  if (static_cast<int64_t>(records_.size()) >= limit_) {
    return absl::DataLossError(
        absl::StrCat(error.message(), "; more than --skip_bad_records=", limit_, " records are damaged"));
  }
  records_.emplace(record);
  if (records_.size() <= kTold) {
    LOG(WARNING) << "skipped: " << error.message()
                 << (records_.size() == kTold ? "; further records are skipped without a line of their own" : "");
  }
  return absl::OkStatus();
}

int64_t BadRecords::count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(records_.size());
}

void BadRecords::Report() const {
  const int64_t skipped = count();
  if (skipped == 0) return;
  LOG(WARNING) << "skipped " << skipped << " damaged records in all, of at most --skip_bad_records=" << limit_;
}

}  // namespace official::data
