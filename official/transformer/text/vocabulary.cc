#include "official/transformer/text/vocabulary.h"

#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/transformer/text/lines.h"
#include "official/transformer/text/unicode.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"

namespace official::transformer {
namespace {

bool IsQuoted(absl::string_view line) {
  return line.size() > 2 && line.front() == line.back() && (line.front() == '\'' || line.front() == '"');
}

constexpr int64_t kNumReserved = std::size(kReservedSubtokens);
constexpr int64_t kMaxVocabularyBytes = 64 << 20;

// The subtokens of the lines so far.
class VocabularyLines {
 public:
  explicit VocabularyLines(const std::string& path) : path_(path) {}

  absl::Status Add(int64_t number, absl::string_view line) {
    if (!IsQuoted(line)) {
      return absl::DataLossError(absl::StrFormat("%s:%d: found %s, expected a subtoken in quotes, such as 'the_'%s",
                                                 path_, number, misc::Printable(line), data::KindNoteOfFile(path_)));
    }
    const absl::string_view subtoken = line.substr(1, line.size() - 2);
    // Upstream adds reserved subtokens that the file lacks, and drops them elsewhere in it: no line is its id then.
    if (const int64_t id = number - 1; id < kNumReserved && subtoken != kReservedSubtokens[id]) {
      return absl::DataLossError(absl::StrFormat(
          "%s:%d: found '%s', expected '%s': the first lines of a vocabulary are the reserved subtokens, as "
          "prepare_data_main writes them",
          path_, number, misc::Printable(subtoken), kReservedSubtokens[id]));
    }
    const auto [other, is_new] = line_numbers_.try_emplace(subtoken, number);
    if (!is_new) {
      return absl::DataLossError(absl::StrFormat("%s:%d: the subtoken %s is already in line %d", path_, number,
                                                 misc::Printable(subtoken), other->second));
    }
    subtokens_.emplace_back(subtoken);
    return absl::OkStatus();
  }

  int64_t size() const { return static_cast<int64_t>(subtokens_.size()); }
  std::vector<std::string> Subtokens() { return std::move(subtokens_); }

 private:
  const std::string& path_;
  std::vector<std::string> subtokens_;
  absl::flat_hash_map<std::string, int64_t> line_numbers_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadVocabulary(const std::string& path) {
  return ReadVocabulary(path, [](int64_t, const absl::Status& error) { return error; });
}

absl::StatusOr<std::vector<std::string>> ReadVocabulary(const std::string& path, BadLineFn on_bad_line) {
  ASSIGN_OR_RETURN(const auto reader, LineReader::Open(path));
  if (reader->size() > kMaxVocabularyBytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes, at most %d are read of a vocabulary", path,
                                               reader->size(), kMaxVocabularyBytes));
  }
  VocabularyLines lines(path);
  for (;;) {
    absl::string_view line;
    const absl::StatusOr<bool> more = reader->Next(&line);
    if (more.ok() && !*more) break;
    const absl::Status status = more.ok() ? lines.Add(reader->line_number(), Strip(line)) : more.status();
    if (status.ok()) continue;
    if (!absl::IsDataLoss(status)) return status;
    RETURN_IF_ERROR(on_bad_line(reader->line_number(), status));
    if (!reader->can_go_on()) break;
  }
  if (lines.size() <= kNumReserved) return absl::DataLossError(absl::StrCat(path, " lists no subtokens"));
  return lines.Subtokens();
}

std::string VocabularyDigest(absl::Span<const std::string> subtokens) {
  uint32_t digest = 0;
  for (const std::string& subtoken : subtokens) digest = files::Crc32c(absl::StrCat(subtoken, "\n"), digest);
  return absl::StrFormat("%d subtokens, digest %08x", subtokens.size(), digest);
}

absl::Status WriteVocabulary(const std::string& path, absl::Span<const std::string> subtokens) {
  std::string text;
  for (const std::string& subtoken : subtokens) absl::StrAppend(&text, "'", subtoken, "'\n");
  return files::WriteFileAtomically(path, text);
}

Alphabet AlphabetOf(absl::Span<const std::string> subtokens) {
  Alphabet alphabet;
  for (const std::string& subtoken : subtokens) AddCharacters(subtoken, &alphabet);
  for (const absl::string_view reserved : kReservedSubtokens) AddCharacters(reserved, &alphabet);
  AddCharacters("\\_u;0123456789", &alphabet);
  return alphabet;
}

}  // namespace official::transformer
