#include "official/transformer/training_vocabulary.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::transformer {
namespace {

std::vector<std::string> VocabulariesIn(const std::string& data_dir) {
  std::vector<std::string> paths;
  const absl::StatusOr<std::vector<std::string>> names = files::ListDirectory(data_dir);
  if (!names.ok()) return paths;  // told where the data are opened
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, "vocab.") || files::FinalNameOf(name).has_value()) continue;
    paths.push_back(files::JoinPath(data_dir, name));
  }
  return paths;
}

absl::StatusOr<KnownVocabulary> Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> subtokens, ReadVocabulary(path));
  return KnownVocabulary{path, VocabularyDigest(subtokens)};
}

}  // namespace

absl::StatusOr<std::optional<KnownVocabulary>> FindVocabulary(const std::optional<std::string>& vocab_file,
                                                              const std::string& data_dir) {
  const std::vector<std::string> there = data_dir.empty() ? std::vector<std::string>() : VocabulariesIn(data_dir);
  if (!vocab_file) {
    if (there.size() == 1) return Read(there[0]);
    if (there.size() > 1) {
      LOG(WARNING) << data_dir << " has several vocabularies (" << absl::StrJoin(there, ", ")
                   << "): without --vocab_file the checkpoints do not say which one the network is trained with";
    }
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(KnownVocabulary given, Read(*vocab_file));
  bool known = there.empty();
  for (const std::string& path : there) {
    const absl::StatusOr<KnownVocabulary> other = Read(path);
    known |= other.ok() && other->digest == given.digest;
  }
  if (known) return given;
  return absl::InvalidArgumentError(absl::StrCat("--vocab_file=", *vocab_file, " (", given.digest,
                                                 ") is not the vocabulary that the data were made with; give ",
                                                 "--vocab_file=", absl::StrJoin(there, " or --vocab_file=")));
}

train::RunFact VocabularyFact(const std::optional<KnownVocabulary>& vocabulary, const std::string& model_dir) {
  const KnownVocabulary now = vocabulary.value_or(KnownVocabulary());
  return {.name = "vocabulary",
          .value = now.digest,
          .difference =
              [now, model_dir](absl::string_view before) {
                return absl::StrCat("the network in --model_dir=", model_dir, " was trained with a vocabulary of ",
                                    before, ", and ", now.path, " has ", now.digest,
                                    "; give the --vocab_file that its data were made with");
              },
          .must_match = true};
}

}  // namespace official::transformer
