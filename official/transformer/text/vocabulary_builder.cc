#include "official/transformer/text/vocabulary_builder.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "official/transformer/text/lines.h"
#include "official/transformer/text/subtoken_trie.h"
#include "official/transformer/text/tokens.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::transformer {
namespace {

// What upstream counts is every string that begins where a segment of a token begins, and goes on to anywhere in the
// token: quadratic in the token's length. Here those strings are the prefixes of suffixes, and a tree of them, with a
// node only where suffixes part or end, has all that matters:
//   - Strings that end inside one edge occur equally often. Upstream goes from the longest strings to the shortest, and
//     a string that is taken has its count subtracted from its prefixes. So of the strings that end in one edge only
//     the longest can be taken: after it the others have nothing left, and if it has too little so have they.
//   - A string occurs at least as often as those that it begins, so nothing below a string that is too rare matters.

// A suffix of an escaped token, and how often the token occurs.
struct Suffix {
  absl::string_view text;
  int64_t count;
};

// An edge of the tree, and the node at its end: the strings of more than parent_depth and up to depth bytes.
struct Edge {
  int64_t parent;          // index of the edge above; -1 at the root
  absl::string_view text;  // begins with them
  size_t parent_depth, depth;
  int64_t count;
  int64_t taken = 0;  // of the count, by longer strings that are subtokens
};

bool IsBetweenCharacters(absl::string_view text, size_t offset) {
  return offset == text.size() || (text[offset] & 0xc0) != 0x80;
}

// Of the first character.
size_t CharacterBytes(absl::string_view text) {
  size_t i = 0;
  NextCharacter(text, &i);
  return i;
}

// The byte at `depth`, -1 behind the end.
int ByteAt(const Suffix& suffix, size_t depth) {
  return depth < suffix.text.size() ? static_cast<uint8_t>(suffix.text[depth]) : -1;
}

// The edges of the tree of `suffixes`, which are put into another order, parents before children: all with strings that
// occur at least min_count times, and those in which a first character ends.
std::vector<Edge> MakeTree(std::vector<Suffix>& suffixes, int64_t min_count) {
  struct Group {  // suffixes that begin with the same `depth` bytes
    size_t begin, end, depth;
    int64_t edge;
  };
  std::vector<Edge> edges;
  std::vector<Group> groups = {{0, suffixes.size(), 0, -1}};
  while (!groups.empty()) {
    const auto [group_begin, group_end, depth, parent] = groups.back();
    groups.pop_back();
    // Downwards: where one character is repeated the longer suffixes stand first already.
    const auto above = [depth = depth](const Suffix& a, const Suffix& b) {
      return ByteAt(a, depth) > ByteAt(b, depth);
    };
    const auto group = absl::MakeSpan(suffixes).subspan(group_begin, group_end - group_begin);
    if (!std::is_sorted(group.begin(), group.end(), above)) std::sort(group.begin(), group.end(), above);
    for (size_t begin = group_begin, end; begin < group_end; begin = end) {
      const Suffix& first = suffixes[begin];
      const int byte = ByteAt(first, depth);
      int64_t count = 0;
      for (end = begin; end < group_end && ByteAt(suffixes[end], depth) == byte; ++end) count += suffixes[end].count;
      if (byte < 0) continue;
      const size_t character_bytes = CharacterBytes(first.text);
      if (count < min_count && depth >= character_bytes) continue;

      size_t edge_end = depth + 1;
      if (end - begin == 1) {
        edge_end = first.text.size();
      } else {
        const auto all_go_on = [&](size_t offset) {
          const int next = ByteAt(first, offset);
          return next >= 0 && std::all_of(suffixes.begin() + begin, suffixes.begin() + end,
                                          [&](const Suffix& suffix) { return ByteAt(suffix, offset) == next; });
        };
        while (all_go_on(edge_end)) ++edge_end;
      }
      edges.push_back({parent, first.text, depth, edge_end, count});
      if (end - begin > 1 && (count >= min_count || edge_end < character_bytes)) {
        groups.push_back({begin, end, edge_end, static_cast<int64_t>(edges.size()) - 1});
      }
    }
  }
  return edges;
}

class Generator {
 public:
  Generator(const TokenCounts& token_counts, int64_t min_count) : min_count_(min_count) {
    Alphabet alphabet = AlphabetOf({});
    for (const auto& [token, count] : token_counts) AddCharacters(token, &alphabet);
    for (const auto& [token, count] : token_counts) {
      tokens_.push_back({"", count});
      AppendEscaped(token, alphabet, &tokens_.back().escaped);
    }
    for (const char32_t character : alphabet) {
      characters_.emplace_back();
      AppendCharacter(character, &characters_.back());
    }
    subtokens_.assign(characters_.begin(), characters_.end());
  }

  // Makes a new list of subtokens from the places where the present ones begin in the tokens.
  void Iterate() {
    std::vector<Suffix> suffixes = CutTokens();
    std::vector<Edge> edges = MakeTree(suffixes, min_count_);
    absl::flat_hash_map<absl::string_view, int64_t> left_of_characters;
    std::vector<std::pair<int64_t, absl::string_view>> counted;
    max_length_ = 1;  // upstream fails where no string is frequent enough
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {  // children before parents
      // The longest of the edge's strings, of whole characters.
      size_t end = edge->depth;
      while (!IsBetweenCharacters(edge->text, end)) --end;
      const absl::string_view text = edge->text.substr(0, end);
      const size_t character_bytes = CharacterBytes(edge->text);
      if (end > edge->parent_depth && edge->count >= min_count_) {
        if (static_cast<int64_t>(end) > max_length_) max_length_ = std::max(max_length_, CountCharacters(text));
        const int64_t left = edge->count - edge->taken;
        if (end > character_bytes && left >= min_count_) {
          if (!IsReserved(text)) counted.emplace_back(left, text);
          edge->taken = edge->count;
        }
      }
      if (edge->parent_depth < character_bytes && character_bytes <= edge->depth) {
        left_of_characters[edge->text.substr(0, character_bytes)] = edge->count - edge->taken;
      }
      if (edge->parent >= 0) edges[edge->parent].taken += edge->taken;
    }
    for (const std::string& character : characters_) {
      const auto left = left_of_characters.find(character);
      counted.emplace_back(left == left_of_characters.end() ? 0 : left->second, character);
    }
    std::sort(counted.begin(), counted.end(), std::greater<>());
    subtokens_.clear();
    for (const auto& [count, subtoken] : counted) subtokens_.push_back(subtoken);
  }

  // Reserved ones first.
  std::vector<std::string> Subtokens() const {
    std::vector<std::string> subtokens(std::begin(kReservedSubtokens), std::end(kReservedSubtokens));
    for (const absl::string_view subtoken : subtokens_) subtokens.emplace_back(subtoken);
    return subtokens;
  }

 private:
  struct Token {
    std::string escaped;
    int64_t count;
  };

  static bool IsReserved(absl::string_view text) {
    return std::count(std::begin(kReservedSubtokens), std::end(kReservedSubtokens), text) > 0;
  }

  // The suffixes that begin where the greedy segments of the tokens begin.
  std::vector<Suffix> CutTokens() const {
    std::vector<absl::string_view> segments = subtokens_;
    for (const absl::string_view reserved : kReservedSubtokens) {
      if (static_cast<int64_t>(reserved.size()) <= max_length_) segments.push_back(reserved);
    }
    const SubtokenTrie trie(segments);
    std::vector<Suffix> suffixes;
    for (const Token& token : tokens_) {
      for (absl::string_view rest = token.escaped; !rest.empty();) {
        suffixes.push_back({rest, token.count});
        rest.remove_prefix(trie.LongestPrefix(rest).length);
      }
    }
    return suffixes;
  }

  const int64_t min_count_;
  std::vector<Token> tokens_;
  std::vector<std::string> characters_;       // of the alphabet
  std::vector<absl::string_view> subtokens_;  // parts of tokens_ and characters_, without the reserved ones
  int64_t max_length_ = 1;                    // characters of the longest string that was frequent enough
};

// Upstream's bisection: the vocabulary of the min_count in [low, high] whose size is nearest to the target, of those it
// looks at.
std::vector<std::string> SearchSubtokens(const TokenCounts& token_counts, const VocabularyOptions& options, int64_t low,
                                         int64_t high) {
  const int64_t min_count = (low + high) / 2;
  std::vector<std::string> subtokens = GenerateSubtokens(token_counts, min_count);
  const int64_t size = static_cast<int64_t>(subtokens.size());
  LOG(INFO) << absl::StrCat("subtokens that occur at least ", min_count, " times make a vocabulary of ", size);
  const auto distance = [&](int64_t found) { return std::abs(found - options.target_size); };
  if (distance(size) < options.threshold || low >= high || min_count < 2) return subtokens;
  std::vector<std::string> other = size > options.target_size
                                       ? SearchSubtokens(token_counts, options, min_count + 1, high)
                                       : SearchSubtokens(token_counts, options, low, min_count - 1);
  return distance(static_cast<int64_t>(other.size())) < distance(size) ? other : subtokens;
}

}  // namespace

absl::StatusOr<TokenCounts> CountTokens(const std::vector<std::string>& paths, int64_t max_characters_per_file) {
  TokenCounts token_counts;
  logs::TaskProgress progress({.title = "counting words", .unit = "lines"});
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const auto reader, LineReader::Open(path));
    const int64_t lines_to_skip = reader->size() / (2 * max_characters_per_file);
    int64_t skipped = 0, characters_left = max_characters_per_file;
    for (;;) {
      absl::string_view line;
      ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
      if (!more) break;
      progress.Add(1);
      if (skipped < lines_to_skip) {
        ++skipped;
        continue;
      }
      if (characters_left < 0) break;
      skipped = 0;
      line = Strip(line);
      characters_left -= CountCharacters(line);
      for (const absl::string_view token : SplitIntoTokens(line)) ++token_counts[token];
    }
  }
  return token_counts;
}

std::vector<std::string> GenerateSubtokens(const TokenCounts& token_counts, int64_t min_count, int num_iterations) {
  Generator generator(token_counts, min_count);
  for (int i = 0; i < num_iterations; ++i) generator.Iterate();
  return generator.Subtokens();
}

absl::StatusOr<std::vector<std::string>> BuildVocabulary(const std::vector<std::string>& paths,
                                                         const VocabularyOptions& options) {
  ASSIGN_OR_RETURN(const TokenCounts token_counts, CountTokens(paths, options.max_characters_per_file));
  if (token_counts.empty()) return absl::DataLossError(absl::StrCat("no text in ", absl::StrJoin(paths, ", ")));
  const logs::TaskProgress progress({.title = "choosing the vocabulary's subtokens"});
  if (options.min_count.has_value()) return GenerateSubtokens(token_counts, *options.min_count);
  return SearchSubtokens(token_counts, options, 1, 1000);
}

}  // namespace official::transformer
