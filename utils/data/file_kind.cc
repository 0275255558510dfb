#include "utils/data/file_kind.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

struct Signature {
  size_t offset;
  absl::string_view bytes;
  absl::string_view kind;
};

// Sources: the formats' specifications, as collected in the database of file(1).
constexpr Signature kSignatures[] = {
    {0, "\x1f\x8b", "gzip-compressed"},
    {0, "BZh", "bzip2-compressed"},
    {0,
     absl::string_view("\xfd"
                       "7zXZ\0",
                       6),
     "xz-compressed"},
    {0, "\x28\xb5\x2f\xfd", "zstd-compressed"},
    {0, "PK\x03\x04", "a zip archive"},
    {0, "PK\x05\x06", "an empty zip archive"},
    {0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
    {0, "Rar!\x1a\x07", "a RAR archive"},
    {257, "ustar", "a tar archive"},
    {0, "\xff\xd8\xff", "a JPEG image"},
    {0, "\x89PNG\r\n\x1a\n", "a PNG image"},
    {0, "GIF8", "a GIF image"},
    {8, "WEBP", "a WebP image"},
    {4, "ftyphei", "a HEIC image"},
    {4, "ftypmif1", "a HEIC image"},
    {4, "ftypavif", "an AVIF image"},
    {0, absl::string_view("II*\0", 4), "a TIFF image"},
    {0, absl::string_view("MM\0*", 4), "a TIFF image"},
    {0, "%PDF-", "a PDF document"},
    {0, "\x93NUMPY", "a NumPy array"},
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {0, "PAR1", "a Parquet file"},
    {0, "\x80\x02", "a Python pickle"},
    {0, "\x80\x03", "a Python pickle"},
    {0, "\x80\x04\x95", "a Python pickle"},
    {0, "\x80\x05\x95", "a Python pickle"},
    {0, "SQLite format 3", "an SQLite database"},
    {0, absl::string_view("\0\0\x08\x01", 4), "an IDX file of labels"},
    {0, absl::string_view("\0\0\x08\x03", 4), "an IDX file of images"},
    {0, "version https://git-lfs", "a pointer of Git LFS, not the data itself"},
};

bool IsHtml(absl::string_view head) {
  absl::ConsumePrefix(&head, "\xef\xbb\xbf");
  head = absl::StripLeadingAsciiWhitespace(head);
  for (const absl::string_view begin : {"<!doctype html", "<html", "<head", "<body"}) {
    if (absl::StartsWithIgnoreCase(head, begin)) return true;
  }
  return false;
}

std::string Note(absl::string_view kind) { return kind.empty() ? "" : absl::StrCat(" (the file is ", kind, ")"); }

}  // namespace

absl::string_view FileKind(absl::string_view head) {
  for (const Signature& signature : kSignatures) {
    if (head.size() >= signature.offset && absl::StartsWith(head.substr(signature.offset), signature.bytes)) {
      return signature.kind;
    }
  }
  if (IsHtml(head)) return "an HTML page";
  return absl::StartsWith(head, "<?xml") ? "an XML document" : "";
}

absl::string_view KindOfFile(const std::string& path) {
  const auto file = files::RandomAccessFile::Open(path);
  if (!file.ok()) return "";
  char head[kFileKindBytes];
  const absl::StatusOr<int64_t> size = (*file)->ReadSome(0, kFileKindBytes, head);
  return size.ok() ? FileKind(absl::string_view(head, *size)) : "";
}

std::string FileKindNote(absl::string_view head) { return Note(FileKind(head)); }
std::string KindNoteOfFile(const std::string& path) { return Note(KindOfFile(path)); }

}  // namespace official::data
