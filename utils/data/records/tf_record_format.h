// The layout of a TFRecord file's records and the messages about damaged ones, which its readers share.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::data {

inline constexpr int64_t kTFRecordHeaderBytes = 12;  // length, checksum
inline constexpr int64_t kTFRecordTrailerBytes = 4;  // checksum of the data
// The largest data of a record that is read: a sparse file of a terabyte costs its author nothing.
inline constexpr uint64_t kMaxTFRecordBytes = 1 << 30;

// Returns the little-endian number at the beginning of `bytes`.
template <typename T>
T GetFixed(absl::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// Returns DataLoss "<path>: record <number> at offset <offset>: <what>".
absl::Status DamagedRecord(absl::string_view path, int64_t number, int64_t offset, absl::string_view what);

// Return what is wrong with a header or with the data; empty if the checksum matches. For a file whose first header is
// wrong, the text also names the kind of the file, if its first bytes tell it.
std::string CheckTFRecordHeader(absl::string_view header, int64_t number, const std::string& path);
std::string CheckTFRecordData(absl::string_view data, absl::string_view trailer);
// Returns the message for a record that is longer than the rest of its file.
std::string LongerThanFile(uint64_t length, uint64_t bytes_left);
// Returns the message for a record that is longer than kMaxTFRecordBytes.
std::string LongerThanLimit(uint64_t length);

}  // namespace official::data
