// The subtokens of a vocabulary, and the file that lists them: one a line, in single quotes, in the order of their ids.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "official/transformer/text/reserved_ids.h"
#include "official/transformer/text/tokens.h"

namespace official::transformer {

// Returns all subtokens by id. NotFound if there is no such file; DataLoss, naming the line, if the first lines are not
// the reserved subtokens, for a line that is not UTF-8, not a subtoken in (single or double) quotes, or lists a
// subtoken again, if there are only the reserved ones, and for a file of more than 64 MiB.
absl::StatusOr<std::vector<std::string>> ReadVocabulary(const std::string& path);

// Does the same, but asks `on_bad_line` about the error of each bad line (from 1): if it returns OK, the line is left
// out, else its error ends the reading.
using BadLineFn = absl::FunctionRef<absl::Status(int64_t line, const absl::Status& error)>;
absl::StatusOr<std::vector<std::string>> ReadVocabulary(const std::string& path, BadLineFn on_bad_line);

// Returns "32768 subtokens, digest 1a2b3c4d", which is the same for files that give each id the same subtoken.
std::string VocabularyDigest(absl::Span<const std::string> subtokens);

// Writes the file, whole or not at all. Errors as in utils/files.
absl::Status WriteVocabulary(const std::string& path, absl::Span<const std::string> subtokens);

// Returns the characters of all subtokens and those that escapes and reserved subtokens need.
Alphabet AlphabetOf(absl::Span<const std::string> subtokens);

}  // namespace official::transformer
