// Translation of text by a trained Transformer. Source: tensorflow/models official/transformer/translate.py at
// d64bcfe3.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "official/transformer/decoder.h"
#include "official/transformer/text/subtokenizer.h"

namespace official::transformer {

struct TranslateOptions {
  int batch_size = 1;      // lines
  int64_t first_line = 1;  // the number of the first line, for errors
  DecodeLength decode_length = DecodeLength::kOfBatch;
  // Asked before each batch, in place of signals; its error ends the translation.
  std::function<absl::Status()> before_batch = nullptr;
};

class Translator {
 public:
  // `vocabulary` is the one that the network was trained with.
  Translator(Subtokenizer vocabulary, std::unique_ptr<Decoder> decoder)
      : vocabulary_(std::move(vocabulary)), decoder_(std::move(decoder)) {}

  // Returns the translation of each line, in one line. Blanks around a line are ignored; an empty line stays empty.
  // Lines of many words are translated first, batch_size at a time. DataLoss, naming the line by its number, if one is
  // not UTF-8 or the vocabulary cannot express it; Cancelled after a signal to stop (misc::StopSignals), unless there
  // is before_batch; ResourceExhausted, naming the longest line of the batch, if there is not the memory; else errors
  // of Decoder.
  absl::StatusOr<std::vector<std::string>> Translate(const std::vector<std::string>& lines,
                                                     const TranslateOptions& options);

  // Returns the number of subtokens of a line, without EOS. DataLoss if it is not UTF-8 or the vocabulary cannot
  // express it. Several threads may call it at once, also during Translate.
  absl::StatusOr<int64_t> CountTokens(absl::string_view line) const;

 private:
  Subtokenizer vocabulary_;
  std::unique_ptr<Decoder> decoder_;
};

// Returns the lines of a file's content, without a last line of blanks only.
std::vector<std::string> LinesToTranslate(absl::string_view content);

}  // namespace official::transformer
