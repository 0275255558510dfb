#include "utils/data/records/tf_record_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/data/file_kind.h"
#include "utils/files/crc32c.h"

namespace official::data {

absl::Status DamagedRecord(absl::string_view path, int64_t number, int64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": record ", number, " at offset ", offset, ": ", what));
}

std::string CheckTFRecordHeader(absl::string_view header, int64_t number, const std::string& path) {
  const uint32_t stored = GetFixed<uint32_t>(header.substr(8));
  const uint32_t crc = files::MaskCrc(files::Crc32c(header.substr(0, 8)));
  if (crc == stored) return "";
  const absl::string_view kind = number == 0 ? KindOfFile(path) : "";
  if (!kind.empty()) {
    const bool is_gzip = kind == "gzip-compressed";
    return absl::StrCat("not a TFRecord file: the file is ", kind, is_gzip ? "; unpack it with gunzip" : "");
  }
  return absl::StrFormat("corrupted record: the checksum of its length is %08x, stored is %08x (the file is damaged%s)",
                         crc, stored, number == 0 ? " or not a TFRecord file" : "");
}

std::string CheckTFRecordData(absl::string_view data, absl::string_view trailer) {
  const uint32_t stored = GetFixed<uint32_t>(trailer);
  const uint32_t crc = files::MaskCrc(files::Crc32c(data));
  if (crc == stored) return "";
  return absl::StrFormat("corrupted record: the checksum of its %d bytes is %08x, stored is %08x", data.size(), crc,
                         stored);
}

std::string LongerThanFile(uint64_t length, uint64_t bytes_left) {
  return absl::StrFormat("truncated record: %d bytes and a checksum of 4 are announced, %d bytes follow in the file",
                         length, bytes_left);
}

std::string LongerThanLimit(uint64_t length) {
  return absl::StrFormat("a record of %d bytes; at most %d are read", length, kMaxTFRecordBytes);
}

}  // namespace official::data
