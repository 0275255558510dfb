// Predictions for files, and for the lines of standard input, as they arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/logs/log.h"

namespace official::run {

// Returns true if --predict names standard input: "-".
bool IsStandardInput(const std::vector<std::string>& predict);

// Returns the smallest power of two that is at least `n`: the batch that holds n examples. With few sizes of batches
// few programs are compiled.
int64_t FilledBatch(int64_t n);

// The lines that arrive at a descriptor, without their ends.
class ArrivingLines {
 public:
  explicit ArrivingLines(int fd) : fd_(fd) {}

  // A line, or DataLoss for one of more than a megabyte, whose text is not kept.
  using Line = absl::StatusOr<std::string>;

  // Waits for a line and returns all that have arrived with it, at most `max`; none at the end of the input. The last
  // line may be without a newline. Aborted if the descriptor cannot be read.
  absl::StatusOr<std::vector<Line>> Next(size_t max);

 private:
  // Moves the complete lines of buffer_ to `lines`, at most `max` there.
  void TakeLines(size_t max, std::vector<Line>& lines);
  Line LineOf(absl::string_view text);

  const int fd_;
  bool ended_ = false;
  bool too_long_ = false;  // the line that is being read; what was read of it is dropped
  std::string buffer_;
};

// Returns what a line stands for or a file has, or why it is bad.
template <typename Item>
using ReadLine = std::function<absl::StatusOr<Item>(const std::string& line)>;

// Counts the lines of an input of which some are bad. Each bad one is logged with its number; the rest is not affected.
class LineCount {
 public:
  void AddGood() { ++lines_; }
  void AddBad(const absl::Status& why);
  // Returns DataLoss if any was bad.
  absl::Status Result() const;

 private:
  int64_t lines_ = 0, bad_ = 0;
};

// Reads items from the lines of standard input with `read` and gives them to `predict`, as many at a time as have
// arrived, at most `max_batch`. `out` is flushed after each batch, so that a reader on the other side of a pipe sees
// the results at once. Empty lines are skipped. A line that `read` refuses, or that has more than a megabyte, is logged
// with its number. Returns DataLoss at the end if there was such a line; at once an error of `predict`, and Aborted if
// `out` cannot be written.
template <typename Item>
absl::Status PredictLines(int fd, size_t max_batch, const ReadLine<Item>& read,
                          const std::function<absl::Status(const std::vector<Item>&)>& predict, std::ostream& out) {
  ArrivingLines lines(fd);
  LineCount count;
  for (;;) {
    absl::StatusOr<std::vector<ArrivingLines::Line>> arrived = lines.Next(max_batch);
    if (!arrived.ok()) return arrived.status();
    if (arrived->empty()) return count.Result();
    std::vector<Item> items;
    for (const ArrivingLines::Line& line : *arrived) {
      if (!line.ok()) {
        count.AddBad(line.status());
        continue;
      }
      if (line->empty()) {
        count.AddGood();
        continue;
      }
      absl::StatusOr<Item> item = read(*line);
      if (item.ok()) {
        count.AddGood();
        items.push_back(*std::move(item));
      } else {
        count.AddBad(item.status());
      }
    }
    if (!items.empty()) {
      const absl::Status predicted = predict(items);
      if (!predicted.ok()) return predicted;
    }
    if (!out.flush()) return absl::AbortedError("cannot write to standard output");
  }
}

// Reads an item from each of the files with `read` and gives it to `predict`. A file that `read` refuses, with an error
// that names it, is logged, and the others follow: at the end DataLoss says how many these were. The error of a file
// that is the only one is returned as it is; so is, at once, one of `predict`, of a disk that cannot be read (Aborted)
// or of memory.
template <typename Item>
absl::Status PredictFiles(const std::vector<std::string>& files, const ReadLine<Item>& read,
                          const std::function<absl::Status(const Item&)>& predict) {
  size_t bad = 0;
  for (const std::string& file : files) {
    const absl::StatusOr<Item> item = read(file);
    const bool ends = absl::IsAborted(item.status()) || absl::IsResourceExhausted(item.status());
    if (!item.ok() && (ends || files.size() == 1)) return item.status();
    if (!item.ok()) {
      LOG(ERROR) << item.status().message();
      ++bad;
      continue;
    }
    const absl::Status predicted = predict(*item);
    if (!predicted.ok()) return predicted;
  }
  if (bad == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(bad, " of ", files.size(), " files are bad; the log names them"));
}

}  // namespace official::run
