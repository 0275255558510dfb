#include "official/transformer/bleu/tokenize.h"

#include <catch2/catch.hpp>

namespace official::transformer {
namespace {

using Strings = std::vector<std::string>;

// Expected: the first from upstream's compute_bleu_test.py, the others from upstream's regular expressions in Python.
TEST_CASE("The official tokenizer parts punctuation and symbols") {
  const auto tokens = [](absl::string_view text) { return BleuTokens(text, BleuTokenizer::kOfficial); };
  CHECK(tokens("Test0, 1 two, 3") == Strings{"Test0", ",", "1", "two", ",", "3"});
  CHECK(tokens("He said: \"3.14, 1,000 (or 5%)...\"") ==
        Strings{"He", "said", ":", "\"", "3.14", ",", "1,000", "(", "or", "5", "%", ")", ".", ".", ".", "\""});
  CHECK(tokens("a\\b c_d $5+3 €9") == Strings{"a\\b", "c", "_", "d", "$", "5", "+", "3", "€", "9"});
  CHECK(tokens("Ende.") == Strings{"Ende", "."});
  CHECK(tokens("in 1995.") == Strings{"in", "1995."});
  CHECK(tokens("«Größe» – 5€/m²!") == Strings{"«", "Größe", "»", "–", "5", "€", "/", "m²", "!"});
  CHECK(tokens("x--y?! 3,a,4") == Strings{"x", "-", "-", "y", "?", "!", "3", ",", "a", ",", "4"});
  CHECK(tokens("٣.٤ 5·6") == Strings{"٣.٤", "5·6"});
  CHECK(tokens("a.b.c ..") == Strings{"a", ".", "b", ".", "c", ".", "."});
  CHECK(tokens("\u2003a\u00a0b\u3000") == Strings{"a", "b"});
  CHECK(tokens("").empty());
}

// Expected: sacreBLEU 2.6.0.
TEST_CASE("The tokenizer 13a is sacreBLEU's") {
  const auto tokens = [](absl::string_view text) { return BleuTokens(text, BleuTokenizer::k13a); };
  CHECK(tokens("Test0, 1 two, 3") == Strings{"Test0", ",", "1", "two", ",", "3"});
  CHECK(tokens("He said: \"3.14, 1,000 (or 5%)...\"") ==
        Strings{"He", "said", ":", "\"", "3.14", ",", "1,000", "(", "or", "5", "%", ")", ".", ".", ".", "\""});
  CHECK(tokens("a\\b c_d $5+3 €9") == Strings{"a", "\\", "b", "c", "_", "d", "$", "5", "+", "3", "€9"});
  CHECK(tokens("a-b 3-4 1995-") == Strings{"a-b", "3", "-", "4", "1995", "-"});
  CHECK(tokens("&quot;R&amp;D&quot; &lt;b&gt; &amp;lt; <skipped>x") ==
        Strings{"\"", "R", "&", "D", "\"", "<", "b", ">", "<", "x"});
  CHECK(tokens("don't x--y?!") == Strings{"don't", "x--y", "?", "!"});
  CHECK(tokens("«Größe» – 5€/m²!") == Strings{"«Größe»", "–", "5€", "/", "m²", "!"});
  CHECK(tokens(". 1.") == Strings{".", "1", "."});
  CHECK(tokens("a,b,3,4,c") == Strings{"a", ",", "b", ",", "3,4", ",", "c"});
  CHECK(tokens("").empty());
}

}  // namespace
}  // namespace official::transformer
