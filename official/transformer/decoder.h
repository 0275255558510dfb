// Translation of sentences, given as ids, by a trained Transformer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/transformer/beam_search.h"
#include "official/transformer/decoder_graphs.h"
#include "official/transformer/model_params.h"
#include "official/transformer/network.h"
#include "official/transformer/packing.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/arena.h"
#include "utils/compute/program/program.h"
#include "utils/compute/program/variable_store.h"
#include "utils/misc/stop_signals.h"

namespace official::transformer {

struct Decoded {
  std::vector<Hypothesis> best;  // one for each sentence
  int64_t steps = 0;             // number of tokens of the longest search
};

// DecodeLength: the sentence whose length limits that of a translation.
enum class DecodeLength {
  kOfBatch,     // the longest sentence of its batch, as upstream
  kOfSentence,  // the sentence itself, so that the translation does not depend on the others of the batch
};

// Encodes a batch once, then decodes it token by token: each step computes one token of every hypothesis, with the keys
// and values of earlier tokens taken from caches. Hypotheses share the cached tokens that they have in common, and
// those of a sentence its encoding. The search itself runs on the host. Programs are compiled when a shape first
// occurs; of many, the least recently used are dropped.
class Decoder {
 public:
  // Returns the trained value of a variable of the network, in float32.
  using ReadVariable = std::function<absl::StatusOr<compute::Tensor>(const compute::VariableSpec&)>;

  // Computes in `dtype` on `device`, which must outlive the decoder. InvalidArgument if a value does not have the
  // variable's shape, DataLoss if one is not finite; else errors of `read`.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelParams& params, compute::DType dtype,
                                                         compute::Device& device, const ReadVariable& read);

  // Returns the best translation of each sentence, ids in [0, vocab_size) with EOS at the end. Translations are at most
  // extra_decode_length longer than what `length` says. InvalidArgument for an id out of range; ResourceExhausted if
  // there is not enough memory; Internal if the network's results are not finite; Cancelled once *stop is not 0, where
  // `stop` is not null: by default after a signal to stop (misc::StopSignals).
  absl::StatusOr<Decoded> Translate(absl::Span<const std::vector<int32_t>> sentences,
                                    DecodeLength length = DecodeLength::kOfBatch,
                                    const std::atomic<int>* stop = &misc::StopSignalFlag());

 private:
  struct CompiledProgram {
    std::unique_ptr<compute::Program> program;
    int64_t last_asked = 0;  // counts with asked_
  };
  using ProgramKey = std::pair<int64_t, int64_t>;
  using Programs = std::map<ProgramKey, CompiledProgram>;

  Decoder(const ModelParams& params, compute::DType dtype, compute::Device& device)
      : params_(params), dtype_(dtype), device_(device), variables_(device), arena_(device) {}
  absl::Status ReadWeights(const ReadVariable& read);
  // Returns a capacity that holds `needed`: that which there is, or a larger one.
  DecoderCapacity CapacityFor(const DecoderCapacity& needed) const;
  // Drops all programs, which have the old capacity, and makes the variables for another. After an error there are
  // none.
  absl::Status Resize(const DecoderCapacity& capacity);
  // The variables of the encoded sentences.
  std::vector<KeysAndValues> Encoded(compute::Graph& graph) const;
  absl::StatusOr<compute::Program*> EncodeProgram(int64_t tokens, int64_t sentences);
  absl::StatusOr<compute::Program*> StepProgram(int64_t sentences, int64_t rows);
  // Returns the best translations of sentences, of at most max_lengths, with `capacity` for them.
  absl::StatusOr<Decoded> Search(const PackedIds& source, const std::vector<int64_t>& max_lengths,
                                 const DecoderCapacity& capacity, const std::atomic<int>* stop);
  absl::Status Encode(const compute::Tensor& ids, const compute::Tensor& offsets, const std::atomic<int>* stop);
  // Returns the program of `key`, compiled from what `build` returns if it is not there.
  absl::StatusOr<compute::Program*> ProgramFor(Programs& programs, const ProgramKey& key,
                                               absl::FunctionRef<DecoderGraph()> build);

  const ModelParams params_;
  const compute::DType dtype_;
  compute::Device& device_;
  compute::VariableStore variables_;
  compute::Arena arena_;
  DecoderCapacity capacity_;
  Programs encode_programs_;  // by tokens and sentences
  Programs step_programs_;    // by sentences and rows
  int64_t asked_ = 0;         // the number of calls of ProgramFor
};

}  // namespace official::transformer
