// Turns text into the ids of subtokens and back. Source: tensorflow/models@d64bcfe3
// official/transformer/utils/tokenizer.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "official/transformer/text/subtoken_trie.h"
#include "official/transformer/text/tokens.h"

namespace official::transformer {

class Subtokenizer {
 public:
  // Reads a vocabulary file; errors of ReadVocabulary.
  static absl::StatusOr<Subtokenizer> Load(const std::string& path);
  // Takes the subtokens by id, which are distinct and not empty.
  explicit Subtokenizer(std::vector<std::string> subtokens);
  Subtokenizer(Subtokenizer&&) = default;
  Subtokenizer& operator=(Subtokenizer&&) = default;

  // Appends the ids of `text`, without EOS: each token, escaped, is cut from the left into the longest subtokens.
  // DataLoss, naming the place, if the text is not UTF-8 or the vocabulary has no subtoken for a character of it.
  // Several threads may call it at once.
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const;

  // Returns the text of the ids. Ids outside the vocabulary are left out. Reserved ids have text too (<EOS>): cut them
  // off before. The result is UTF-8 if the vocabulary is.
  std::string Decode(absl::Span<const int32_t> ids) const;

  const std::vector<std::string>& subtokens() const { return subtokens_; }
  int64_t vocab_size() const { return static_cast<int64_t>(subtokens_.size()); }

 private:
  std::vector<std::string> subtokens_;
  Alphabet alphabet_;
  SubtokenTrie trie_;  // has views into subtokens_
};

// Returns the ids before the first EOS; all if there is none.
absl::Span<const int32_t> BeforeEos(absl::Span<const int32_t> ids);

}  // namespace official::transformer
