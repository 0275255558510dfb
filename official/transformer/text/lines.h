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

// Reads the lines of a file. Lines end with '\n', the last one also with the file. Every '\r' is dropped, whatever
// follows it. Other line ends of Unicode are characters of the line, and so is NUL.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(const std::string& path);

  // Puts the next line, without '\n', into *line, where it stays until the next call; returns false at the end of the
  // file. DataLoss, naming file and line, for a line that is not UTF-8 (which Python refuses, too) or longer than 16
  // MiB.
  absl::StatusOr<bool> Next(absl::string_view* line);

  // True if Next(), after DataLoss, can return the line after the bad one: not after one that is too long.
  bool can_go_on() const { return can_go_on_; }

  // The number of the line that Next() returned last, from 1.
  int64_t line_number() const { return line_number_; }
  // The number of bytes in the file.
  int64_t size() const { return file_->size(); }

 private:
  explicit LineReader(std::unique_ptr<files::RandomAccessFile> file) : file_(std::move(file)) {}
  // Reads more of the file; returns false at its end.
  absl::StatusOr<bool> Fill();

  std::unique_ptr<files::RandomAccessFile> file_;
  std::string buffer_;
  size_t begin_ = 0;  // start of the part of the buffer that Next() has not returned yet
  int64_t offset_ = 0;
  int64_t line_number_ = 0;
  bool can_go_on_ = true;
  std::string line_;
};

}  // namespace official::transformer
