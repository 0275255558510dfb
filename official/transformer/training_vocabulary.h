// The vocabulary of a training. Nothing in a network tells which subtoken an id stands for, so the digest of the
// vocabulary is kept in the checkpoints and compared with that of any vocabulary used with the network.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/train/run_facts.h"

namespace official::transformer {

struct KnownVocabulary {
  std::string path;
  std::string digest;  // VocabularyDigest
};

// Returns the vocabulary that a training is known to use: `vocab_file` or else, in `data_dir`, the only file vocab.*
// (prepare_data_main and upstream's data_download.py write it there); nullopt if `vocab_file` is unset and there is
// none, or several. An empty `data_dir` has none. InvalidArgument if `vocab_file` differs from all of those in
// `data_dir`; else errors of ReadVocabulary.
absl::StatusOr<std::optional<KnownVocabulary>> FindVocabulary(const std::optional<std::string>& vocab_file,
                                                              const std::string& data_dir);

// Returns the fact that is kept in the checkpoints in `model_dir`; a different vocabulary is refused. Without a
// vocabulary the fact is unknown.
train::RunFact VocabularyFact(const std::optional<KnownVocabulary>& vocabulary, const std::string& model_dir);

}  // namespace official::transformer
