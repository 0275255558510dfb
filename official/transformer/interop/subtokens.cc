// What the tests need of vocabularies and subtokens.
//   subtokens build TARGET_SIZE THRESHOLD MIN_COUNT VOCABULARY TEXT...   writes the file VOCABULARY; MIN_COUNT 0:
//   search subtokens encode VOCABULARY TEXT                                     prints a line of ids for each line
//   subtokens decode VOCABULARY IDS                                      prints a line of text for each line of ids
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "official/transformer/text/lines.h"
#include "official/transformer/text/subtokenizer.h"
#include "official/transformer/text/vocabulary.h"
#include "official/transformer/text/vocabulary_builder.h"
#include "utils/compute/core/status.h"

namespace official::transformer {
namespace {

absl::Status Build(const std::vector<std::string>& words) {
  VocabularyOptions options;
  options.target_size = std::stoll(words[0]);
  options.threshold = std::stoll(words[1]);
  if (words[2] != "0") options.min_count = std::stoll(words[2]);
  ASSIGN_OR_RETURN(const auto subtokens, BuildVocabulary({words.begin() + 4, words.end()}, options));
  return WriteVocabulary(words[3], subtokens);
}

absl::Status Convert(const std::string& vocabulary, const std::string& path, bool decode) {
  ASSIGN_OR_RETURN(const Subtokenizer subtokenizer, Subtokenizer::Load(vocabulary));
  ASSIGN_OR_RETURN(const auto reader, LineReader::Open(path));
  std::vector<int32_t> ids;
  for (;;) {
    absl::string_view line;
    ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    if (!more) return absl::OkStatus();
    ids.clear();
    if (decode) {
      for (const absl::string_view id : absl::StrSplit(line, ' ', absl::SkipEmpty()))
        ids.push_back(std::stoi(std::string(id)));
      std::cout << subtokenizer.Decode(ids) << "\n";
    } else {
      RETURN_IF_ERROR(subtokenizer.Encode(line, &ids));
      std::cout << absl::StrJoin(ids, " ") << "\n";
    }
  }
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  namespace transformer = official::transformer;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const absl::Status status = words[0] == "build"
                                  ? transformer::Build({words.begin() + 1, words.end()})
                                  : transformer::Convert(words[1], words[2], /*decode=*/words[0] == "decode");
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
