// The lines of text files, as TensorFlow's GFile gives them to Python.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/files/files.h"

namespace official::transformer {

// Lines end with '\n', the last one also with the file. Every '\r' is dropped, whatever follows it. Other characters
// that Unicode takes for line ends are characters of the line, and so is NUL.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(const std::string& path);

  // Puts the next line, without '\n', into *line, where it stays until the next call; false at the end of the file.
  // DataLoss, naming file and line, for a line that is not UTF-8 (Python refuses it, too) or longer than 16 MiB.
  absl::StatusOr<bool> Next(absl::string_view* line);

  // Number of the line that Next() gave last, from 1.
  int64_t line_number() const { return line_number_; }
  // Bytes in the file.
  int64_t size() const { return file_->size(); }
  // Of them, how many were read: a few more than those of the lines that Next() gave.
  int64_t bytes_read() const { return offset_; }

 private:
  explicit LineReader(std::unique_ptr<files::RandomAccessFile> file) : file_(std::move(file)) {}
  // Reads on; false at the end of the file.
  absl::StatusOr<bool> Fill();

  std::unique_ptr<files::RandomAccessFile> file_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not yet given out, in the buffer
  int64_t offset_ = 0;
  int64_t line_number_ = 0;
  std::string line_;
};

}  // namespace official::transformer
