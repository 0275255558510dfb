// Makes the vocabulary of a text: the subtokens of which its tokens consist most often. The result is upstream's, entry
// by entry. Source: tensorflow/models@d64bcfe3 official/transformer/utils/tokenizer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace official::transformer {

struct VocabularyOptions {
  int64_t target_size = 32768;  // entries that are wanted
  // A subtoken must occur that often. If it is not given, it is searched for in [1, 1000] until the vocabulary's size
  // is less than `threshold` off target_size.
  std::optional<int64_t> min_count;
  int64_t threshold = 327;
  // Of each file about so many characters are counted, in lines spread over its first half or more. (Upstream calls it
  // file_byte_limit.)
  int64_t max_characters_per_file = 1'000'000;
};

// Reserved subtokens, then the others by how often they occur, most often first. Contains every character that the
// files do, so that any text can be encoded. Errors of LineReader; DataLoss if there are no tokens.
absl::StatusOr<std::vector<std::string>> BuildVocabulary(const std::vector<std::string>& paths,
                                                         const VocabularyOptions& options);

// The steps of BuildVocabulary.

using TokenCounts = absl::flat_hash_map<std::string, int64_t>;

// Counts the tokens of the lines, without the blanks around them.
absl::StatusOr<TokenCounts> CountTokens(const std::vector<std::string>& paths, int64_t max_characters_per_file);

// The vocabulary of tokens with these counts; min_count is at least 1. `num_iterations` is upstream's.
std::vector<std::string> GenerateSubtokens(const TokenCounts& token_counts, int64_t min_count, int num_iterations = 4);

}  // namespace official::transformer
