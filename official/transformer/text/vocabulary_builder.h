// Makes the vocabulary of a text: the most frequent subtokens of its tokens. The result is upstream's, entry by entry.
// Source: tensorflow/models@d64bcfe3 official/transformer/utils/tokenizer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace official::transformer {

struct VocabularyOptions {
  int64_t target_size = 32768;  // the wanted number of entries
  // The least number of occurrences of a subtoken. Unset: searched for in [1, 1000] until the vocabulary's size is less
  // than `threshold` off target_size.
  std::optional<int64_t> min_count;
  int64_t threshold = 327;
  // The approximate number of characters of each file that are counted, in lines spread over its first half or more.
  // (Upstream calls it file_byte_limit.)
  int64_t max_characters_per_file = 1'000'000;
};

// Returns the reserved subtokens, then the others, the most frequent first. They contain every character of the lines
// that are counted; others are written as escapes, so that all text can be encoded. Errors of LineReader; DataLoss if
// there are no tokens.
absl::StatusOr<std::vector<std::string>> BuildVocabulary(const std::vector<std::string>& paths,
                                                         const VocabularyOptions& options);

// The steps of BuildVocabulary, for tests.

using TokenCounts = absl::flat_hash_map<std::string, int64_t>;

// Counts the tokens of the lines, without the blanks around them.
absl::StatusOr<TokenCounts> CountTokens(const std::vector<std::string>& paths, int64_t max_characters_per_file);

// Returns the vocabulary of tokens with these counts; min_count is at least 1. `num_iterations` is upstream's.
std::vector<std::string> GenerateSubtokens(const TokenCounts& token_counts, int64_t min_count, int num_iterations = 4);

}  // namespace official::transformer
