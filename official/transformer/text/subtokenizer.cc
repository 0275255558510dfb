#include "official/transformer/text/subtokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::transformer {

absl::StatusOr<Subtokenizer> Subtokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> subtokens, ReadVocabulary(path));
  return Subtokenizer(std::move(subtokens));
}

Subtokenizer::Subtokenizer(std::vector<std::string> subtokens)
    : subtokens_(std::move(subtokens)),
      alphabet_(AlphabetOf(subtokens_)),
      trie_(std::vector<absl::string_view>(subtokens_.begin(), subtokens_.end())) {}

// Upstream keeps the ids of tokens that it has seen. Here a walk through the trie costs no more than finding them.
absl::Status Subtokenizer::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != absl::string_view::npos) {
    return absl::DataLossError(
        absl::StrFormat("byte %d of the text, 0x%02x, is not UTF-8", invalid + 1, static_cast<uint8_t>(text[invalid])));
  }
  std::string escaped;
  for (const absl::string_view token : SplitIntoTokens(text)) {
    escaped.clear();
    AppendEscaped(token, alphabet_, &escaped);
    for (absl::string_view rest = escaped; !rest.empty();) {
      const auto [id, length] = trie_.LongestPrefix(rest);
      if (length == 0) {
        return absl::DataLossError(absl::StrFormat(
            "the vocabulary cannot express %s: it has no subtoken that %s begins with; a vocabulary made by "
            "prepare_data_main has one for every character",
            misc::Printable(token), misc::Printable(rest)));
      }
      ids->push_back(id);
      rest.remove_prefix(length);
    }
  }
  return absl::OkStatus();
}

std::string Subtokenizer::Decode(absl::Span<const int32_t> ids) const {
  std::string escaped;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size()) escaped += subtokens_[id];
  }
  std::vector<std::string> tokens;
  for (const absl::string_view token : absl::StrSplit(escaped, '_', absl::SkipEmpty())) {
    tokens.push_back(Unescape(token));
  }
  return JoinTokens(tokens);
}

absl::Span<const int32_t> BeforeEos(absl::Span<const int32_t> ids) {
  return ids.first(std::find(ids.begin(), ids.end(), kEosId) - ids.begin());
}

}  // namespace official::transformer
