#include "official/transformer/bleu/bleu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "official/transformer/text/unicode.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/task_progress.h"

namespace official::transformer {
namespace {

constexpr int kMaxOrder = 4;
constexpr int64_t kMaxFileBytes = 1 << 30;

struct NGram {
  int order;
  std::array<int32_t, kMaxOrder> tokens;  // 0 behind the first `order`
  friend bool operator==(const NGram&, const NGram&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const NGram& n_gram) {
    return H::combine(std::move(hash), n_gram.order, n_gram.tokens);
  }
};
using NGramCounts = absl::flat_hash_map<NGram, int64_t>;

NGramCounts CountNGrams(absl::Span<const int32_t> tokens) {
  NGramCounts counts;
  for (size_t begin = 0; begin < tokens.size(); ++begin) {
    NGram n_gram = {0, {}};
    while (n_gram.order < kMaxOrder && begin + n_gram.order < tokens.size()) {
      n_gram.tokens[n_gram.order] = tokens[begin + n_gram.order];
      ++n_gram.order;
      ++counts[n_gram];
    }
  }
  return counts;
}

// Python's str.splitlines of what str.strip leaves.
std::vector<std::string> SplitLines(absl::string_view text) {
  text = Strip(text);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const char32_t character = NextCharacter(text, &i);
    constexpr char32_t kLineEnds[] = {'\n', '\v', '\f', '\r', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029};
    if (std::find(std::begin(kLineEnds), std::end(kLineEnds), character) == std::end(kLineEnds)) continue;
    if (character == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.emplace_back(text.substr(begin, end - begin));
    begin = i;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

// The lines that end with '\n', those of blanks only included, as translate_main writes them.
std::vector<std::string> AllLines(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (Strip(lines.back()).empty()) lines.pop_back();
  return lines;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, files::ReadFile(path, kMaxFileBytes));
  if (const size_t invalid = FindInvalidUtf8(text); invalid != absl::string_view::npos) {
    return absl::DataLossError(absl::StrFormat("%s:%d: byte 0x%02x at offset %d of the file is not UTF-8", path,
                                               1 + std::count(text.begin(), text.begin() + invalid, '\n'),
                                               static_cast<uint8_t>(text[invalid]), invalid));
  }
  return text;
}

absl::Status HasNoSentences(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, " has no sentences"));
}

// Words as numbers.
class Tokenizer {
 public:
  explicit Tokenizer(const BleuOptions& options) : options_(options) {}

  std::vector<std::vector<int32_t>> operator()(absl::Span<const std::string> sentences) {
    std::vector<std::vector<int32_t>> tokens(sentences.size());
    for (size_t i = 0; i < sentences.size(); ++i) {
      const std::string text = options_.case_sensitive ? sentences[i] : LowerCase(sentences[i]);
      for (const std::string& token : BleuTokens(text, options_.tokenizer)) {
        tokens[i].push_back(ids_.try_emplace(token, static_cast<int32_t>(ids_.size())).first->second);
      }
    }
    return tokens;
  }

 private:
  const BleuOptions options_;
  absl::flat_hash_map<std::string, int32_t> ids_;
};

}  // namespace

float CorpusBleu(absl::Span<const std::vector<int32_t>> references, absl::Span<const std::vector<int32_t>> translations,
                 BleuFormula formula) {
  OFFICIAL_CHECK(references.size() == translations.size());
  std::array<int64_t, kMaxOrder> matches = {}, possible = {};
  int64_t reference_length = 0, translation_length = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    reference_length += references[i].size();
    translation_length += translations[i].size();
    const NGramCounts in_reference = CountNGrams(references[i]);
    for (const auto& [n_gram, count] : CountNGrams(translations[i])) {
      possible[n_gram.order - 1] += count;
      const auto found = in_reference.find(n_gram);
      if (found != in_reference.end()) matches[n_gram.order - 1] += std::min(count, found->second);
    }
  }
  if (translation_length == 0) return 0;
  // An n-gram that matches begins with a token that does.
  if (formula == BleuFormula::kSacreBleu && (matches[0] == 0 || possible[kMaxOrder - 1] == 0)) return 0;
  double smooth = 1, log_sum = 0;
  for (int i = 0; i < kMaxOrder && possible[i] > 0; ++i) {
    if (matches[i] == 0) smooth *= 2;
    log_sum += std::log((matches[i] > 0 ? matches[i] : 1 / smooth) / possible[i]);
  }
  const double brevity_penalty =
      translation_length < reference_length
          ? std::exp(1 - static_cast<double>(reference_length) / static_cast<double>(translation_length))
          : 1;
  return static_cast<float>(std::exp(log_sum / kMaxOrder) * brevity_penalty);
}

float TextBleu(absl::Span<const std::string> references, absl::Span<const std::string> translations,
               const BleuOptions& options) {
  Tokenizer tokenize(options);
  const auto reference_tokens = tokenize(references);
  const bool is_13a = options.tokenizer == BleuTokenizer::k13a;
  return 100 * CorpusBleu(reference_tokens, tokenize(translations),
                          is_13a ? BleuFormula::kSacreBleu : BleuFormula::kOfficial);
}

absl::StatusOr<float> FileBleu(const std::string& reference, const std::string& translation,
                               const BleuOptions& options) {
  ASSIGN_OR_RETURN(const std::string reference_text, ReadText(reference));
  ASSIGN_OR_RETURN(const std::string translation_text, ReadText(translation));
  std::vector<std::string> references = SplitLines(reference_text), translations = SplitLines(translation_text);
  if (references.empty()) return HasNoSentences(reference);
  if (const size_t num_references = references.size(), num_translations = translations.size();
      num_references != num_translations) {
    references = AllLines(reference_text);
    translations = AllLines(translation_text);
    if (references.size() != translations.size()) {
      if (num_translations == 0) return HasNoSentences(translation);
      return absl::DataLossError(absl::StrFormat(
          "the reference %s has %d lines, the translation %s has %d, but line by line they must belong together (blank "
          "lines at the beginning and end of a file do not count)",
          reference, num_references, translation, num_translations));
    }
  }
  const logs::TaskProgress progress({.title = absl::StrCat("computing the ", options.case_sensitive ? "" : "un",
                                                           "cased BLEU of ", translations.size(), " lines")});
  return TextBleu(references, translations, options);
}

}  // namespace official::transformer
