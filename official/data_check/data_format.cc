#include "official/data_check/data_format.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "official/recommendation/data/ratings_file.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/data/gzip.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"

namespace official::data_check {
namespace {

constexpr int64_t kHeadBytes = 1 << 16;

// Whether the first record has an intact header.
absl::StatusOr<bool> IsTFRecord(const std::string& path, data::Compression compression) {
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path, compression));
  std::string record;
  const absl::StatusOr<bool> more = reader->Next(&record);
  if (!more.ok() && !absl::IsDataLoss(more.status())) return more.status();
  return more.ok() ? *more : reader->can_go_on();
}

bool IsIdx(absl::string_view head) {
  return head.size() >= 4 && head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] > 0 && head[3] < 8;
}

bool IsGzippedIdx(absl::string_view head, const std::string& path) {
  char magic[4];
  const absl::StatusOr<int64_t> size = data::GzipReader(head, path).Read(sizeof(magic), magic);
  return size.ok() && IsIdx(absl::string_view(magic, *size));
}

// RFC 1950: method 8, and a check of the first two bytes.
bool MayBeZlib(absl::string_view head) {
  return head.size() >= 2 && (head[0] & 0xf) == 8 &&
         (static_cast<uint8_t>(head[0]) << 8 | static_cast<uint8_t>(head[1])) % 31 == 0;
}

bool IsText(absl::string_view head) {
  return !head.empty() && std::all_of(head.begin(), head.end(), [](char c) {
    return static_cast<uint8_t>(c) >= ' ' || absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

bool BeginsWithQuotes(absl::string_view head) {
  const absl::string_view line = absl::StripTrailingAsciiWhitespace(head.substr(0, head.find('\n')));
  return line.size() > 2 && line.front() == line.back() && (line.front() == '\'' || line.front() == '"');
}

// Whole records, and labels in most of the first ones.
bool IsCifar10(absl::string_view head, int64_t file_size) {
  constexpr int64_t kBytes = resnet::kCifar10RecordBytes;
  if (file_size == 0 || file_size % kBytes != 0) return false;
  int64_t good = 0, bad = 0;
  for (size_t i = 0; i < head.size(); i += kBytes) {
    ++(static_cast<uint8_t>(head[i]) < resnet::kCifar10Classes ? good : bad);
  }
  return good >= bad;
}

// The end of the name of a numbered file: "-00001-of-00100".
constexpr absl::string_view kNumber = "-ddddd-of-ddddd";

bool IsNumbered(absl::string_view name) {
  if (name.size() <= kNumber.size()) return false;
  const absl::string_view end = name.substr(name.size() - kNumber.size());
  return std::equal(end.begin(), end.end(), kNumber.begin(), [](char c, char p) {
    return p == 'd' ? absl::ascii_isdigit(static_cast<unsigned char>(c)) : c == p;
  });
}

DataFormat FormatOfName(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  // The variables of a checkpoint or an export are numbered like TFRecord files: model.ckpt-5.data-00000-of-00001.
  if (IsNumbered(name)) {
    const bool is_of_checkpoint = absl::EndsWith(name.substr(0, name.size() - kNumber.size()), ".data");
    return is_of_checkpoint ? DataFormat::kUnknown : DataFormat::kTFRecord;
  }
  if (absl::EndsWith(name, "-ubyte") || absl::EndsWith(name, "-ubyte.gz")) return DataFormat::kIdx;
  const std::vector<std::string> cifar10 = resnet::Cifar10FileNames();
  if (std::find(cifar10.begin(), cifar10.end(), std::string(name)) != cifar10.end()) return DataFormat::kCifar10;
  if (name == "ratings.csv" || name == "ratings.dat" || name == "u.data") return DataFormat::kRatings;
  return absl::StartsWith(name, "vocab.") ? DataFormat::kVocabulary : DataFormat::kUnknown;
}

absl::StatusOr<DataFormat> FormatOfContents(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  std::string head(kHeadBytes, 0);
  ASSIGN_OR_RETURN(const int64_t size, file->ReadSome(0, kHeadBytes, head.data()));
  head.resize(size);
  if (IsIdx(head)) return DataFormat::kIdx;
  if (data::IsGzip(head) && IsGzippedIdx(head, path)) return DataFormat::kIdx;
  if (data::IsGzip(head) || MayBeZlib(head)) {
    ASSIGN_OR_RETURN(const bool records, IsTFRecord(path, data::Compression::kGzip));
    if (records) return DataFormat::kCompressedTFRecord;
  }
  ASSIGN_OR_RETURN(const bool records, IsTFRecord(path, data::Compression::kNone));
  if (records) return DataFormat::kTFRecord;
  const absl::string_view kind = data::FileKind(head);
  if (kind == "a zip archive") return DataFormat::kRatings;
  if (IsText(head) && kind.empty()) {
    if (BeginsWithQuotes(head)) return DataFormat::kVocabulary;
    return recommendation::LooksLikeRatings(head) ? DataFormat::kRatings : DataFormat::kText;
  }
  return IsCifar10(head, file->size()) ? DataFormat::kCifar10 : DataFormat::kUnknown;
}

}  // namespace

absl::StatusOr<DataFormat> FormatOfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const DataFormat format, FormatOfContents(path));
  if (format != DataFormat::kUnknown && format != DataFormat::kText) return format;
  const DataFormat by_name = FormatOfName(path);
  return by_name == DataFormat::kUnknown ? format : by_name;
}

}  // namespace official::data_check
