// Records that are left out because they are damaged (--skip_bad_records).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::data {

// Counts them for one run, and names the first ones in the log. Several threads may call it at once.
class BadRecords {
 public:
  // Allows up to `limit` records to be left out.
  explicit BadRecords(int64_t limit = 0) : limit_(limit) {}
  BadRecords(const BadRecords&) = delete;
  BadRecords& operator=(const BadRecords&) = delete;

  // Asks to leave out `record`, a name that no other record has, because of `error`. Returns OK if it may be: the error
  // is one of the data, and not more than `limit` records have been left out. A record that is read again in another
  // epoch counts once. Otherwise returns `error`, with the limit if that is exceeded.
  absl::Status Skip(absl::string_view record, const absl::Status& error);

  int64_t count() const;
  // Logs how many were left out, if any.
  void Report() const;

 private:
  const int64_t limit_;
  mutable std::mutex mutex_;
  absl::flat_hash_set<std::string> records_;
};

}  // namespace official::data
