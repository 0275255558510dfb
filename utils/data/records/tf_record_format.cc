#include "utils/data/records/tf_record_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/data/records/crc32c.h"

namespace official::data {

absl::Status DamagedRecord(absl::string_view path, int64_t number, int64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": record ", number, " at offset ", offset, ": ", what));
}

std::string CheckTFRecordHeader(absl::string_view header, bool first_in_file) {
  const uint32_t stored = GetFixed<uint32_t>(header.substr(8));
  const uint32_t crc = MaskCrc(Crc32c(header.substr(0, 8)));
  if (crc == stored) return "";
  const bool gzip = first_in_file && header.substr(0, 2) == "\x1f\x8b";
  return absl::StrFormat("corrupted record: the checksum of its length is %08x, stored is %08x (%s)", crc, stored,
                         gzip ? "the file is gzip-compressed" : "the file is damaged or not a TFRecord file");
}

std::string CheckTFRecordData(absl::string_view data, absl::string_view trailer) {
  const uint32_t stored = GetFixed<uint32_t>(trailer);
  const uint32_t crc = MaskCrc(Crc32c(data));
  if (crc == stored) return "";
  return absl::StrFormat("corrupted record: the checksum of its %d bytes is %08x, stored is %08x", data.size(), crc,
                         stored);
}

std::string LongerThanFile(uint64_t length, uint64_t bytes_left) {
  return absl::StrFormat("truncated record: %d bytes and a checksum of 4 are announced, %d bytes follow in the file",
                         length, bytes_left);
}

}  // namespace official::data
