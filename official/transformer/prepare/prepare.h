// Makes the files that transformer_main trains on from text: a vocabulary, and TFRecord files of tf.Example with the
// ids of a sentence in `inputs` and those of its translation in `targets`, each ended by EOS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "official/transformer/text/vocabulary_builder.h"

namespace official::transformer {

// A text in two languages: line i of sources[f] is translated by line i of targets[f]. Several files form one text, one
// after another.
struct ParallelText {
  std::vector<std::string> sources;
  std::vector<std::string> targets;
};

struct PrepareOptions {
  std::string data_dir;  // the directory of the files; made if it is missing
  ParallelText train, eval;
  std::string vocabulary_name;     // the name of its file in data_dir
  std::string records = "wmt32k";  // the beginning of the names of the record files
  VocabularyOptions vocabulary;    // made of both sides of `train`
  uint64_t seed = 1;               // decides the order of the records
  int num_train_shards = 100;
};

struct PrepareResult {
  std::string vocabulary;  // the path of the file
  int64_t vocab_size = 0;
  int64_t train_sentences = 0, eval_sentences = 0;
};

// The names of the files for the languages of a text, which are the extensions of its files: for train.en and train.de
// upstream's, for train.en and train.fr "vocab.enfr.32768" and "en-fr", and for other extensions "vocab.32768" and
// "text".
struct DataNames {
  std::string vocabulary;
  std::string records;
};
DataNames NamesFor(const ParallelText& train, int64_t vocab_size);

// Writes the vocabulary, <records>-train-*-of-* and <records>-dev-00001-of-00001. Sentence i goes, without the blanks
// around it, into file 1 + i % num_train_shards (upstream counts from 1), whose records are then put in a random order;
// those of `eval` keep their order. The same text, options and seed make the same bytes. A file appears under its name
// only when it is complete, and an existing one is kept: a second call finishes what an interrupted one left. Holds at
// most one file in memory. DataLoss, naming file and line or both files and counts, if a text is not UTF-8, has no
// lines, or the numbers of lines of the two sides differ; FailedPrecondition if data_dir holds files made from another
// text or with other options (prepared.txt tells: names, sizes and checksums of the text); NotFound if a text is
// missing; other errors as in utils/files.
absl::StatusOr<PrepareResult> PrepareData(const PrepareOptions& options);

}  // namespace official::transformer
