#include "official/transformer/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Graph;
using compute::Shape;
using compute::Tensor;
using compute::Value;

// The most programs of encoders, and of steps, that a decoder keeps. Each has a table of positions of its own:
// megabytes, where hidden_size is 1024.
constexpr size_t kMaxPrograms = 64;

// A number of sentences, at least n and at most a half more, such that there are few of them.
int64_t PaddedSentences(int64_t n) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  return power >= 4 && power / 4 * 3 >= n ? power / 4 * 3 : power;
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// The first rows of a matrix, without a copy.
Tensor FirstRows(const Tensor& matrix, int64_t rows) {
  return Tensor({matrix.dtype(), {rows, matrix.shape().dim(1)}}, matrix.raw_data());
}

// Where the tokens of the hypotheses that go on are in the caches: the table that DecodeAttention takes.
class CacheRows {
 public:
  CacheRows(int64_t rows, int64_t positions)
      : now_(DType::kInt32, {rows, positions}), next_(DType::kInt32, {rows, positions}) {}

  Tensor table(int64_t rows) const { return FirstRows(now_, rows); }
  // Row `row` of the next step continues row `parent` of this one, whose newest token is at `position`.
  void Continue(int64_t row, int64_t parent, int64_t position) {
    const int64_t positions = now_.shape().dim(1);
    int32_t* const to = next_.data<int32_t>() + row * positions;
    std::copy_n(now_.data<int32_t>() + parent * positions, position, to);
    to[position] = static_cast<int32_t>(parent);
  }
  void EndStep() { std::swap(now_, next_); }

 private:
  Tensor now_, next_;
};

// Log probabilities of hypotheses that do not exist yet are minus infinity, NaN is none.
absl::Status CheckNumbers(const Tensor& log_probs, int64_t rows, DType dtype) {
  const int64_t n = rows * log_probs.shape().dim(1);
  const float* const x = log_probs.data<float>();
  if (std::none_of(x, x + n, [](float log_prob) { return std::isnan(log_prob); })) return absl::OkStatus();
  if (dtype != DType::kFloat16) return absl::InternalError("the network's log probabilities are not numbers");
  return absl::InternalError(
      "the network's log probabilities, computed in fp16, are not numbers; try --dtype=bf16 or fp32");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelParams& params, DType dtype,
                                                         compute::Device& device, const ReadVariable& read) {
  RETURN_IF_ERROR(CheckParams(params));
  std::unique_ptr<Decoder> decoder(new Decoder(params, dtype, device));
  RETURN_IF_ERROR(decoder->ReadWeights(read));
  return decoder;
}

absl::Status Decoder::ReadWeights(const ReadVariable& read) {
  Graph graph;
  Network network({.graph = graph, .dtype = dtype_, .max_length = 1, .weights_are_given = true}, params_);
  const Sentences sentences = {graph.Input("ids", {DType::kInt32, {1}}), graph.Input("offsets", {DType::kInt32, {2}})};
  network.Decode(sentences, network.Encode(sentences));
  RETURN_IF_ERROR(graph.status());
  RETURN_IF_ERROR(variables_.Create(graph, 0));
  for (const compute::VariableSpec& spec : graph.variables()) {
    ASSIGN_OR_RETURN(const Tensor value, read(spec));
    const compute::TensorType wanted{DType::kFloat32, spec.type.shape};
    if (value.type() != wanted) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", spec.name, " is ", value.type().ToString(),
                                                     ", the network has ", wanted.ToString()));
    }
    if (const std::optional<int64_t> found = compute::FindNonFinite(value)) {
      return absl::DataLossError(absl::StrCat("the trained variable ", spec.name, " (", wanted.ToString(),
                                              ") is not finite: its element ", *found, " is ",
                                              value.data<float>()[*found], "; translate with an earlier checkpoint"));
    }
    RETURN_IF_ERROR(variables_.Write(spec.name, spec.type == wanted ? value : value.CastTo(spec.type.dtype)));
  }
  return absl::OkStatus();
}

std::vector<KeysAndValues> Decoder::Encoded(Graph& graph) const {
  return EncodedVariables(graph, params_, dtype_, capacity_);
}

DecoderCapacity Decoder::CapacityFor(const DecoderCapacity& needed) const {
  if (capacity_.Holds(needed)) return capacity_;
  // Room for the batches before as well, so that it need not be made again for the next one like them. But after many
  // short sentences and one long one, it would be many times what either needs.
  const DecoderCapacity largest = {.tokens = std::max(capacity_.tokens, needed.tokens),
                                   .rows = std::max(capacity_.rows, needed.rows),
                                   .positions = std::max(capacity_.positions, needed.positions)};
  const int64_t now = capacity_.rows * capacity_.positions, then = needed.rows * needed.positions;
  return largest.rows * largest.positions <= 4 * std::max(now, then) ? largest : needed;
}

absl::Status Decoder::Resize(const DecoderCapacity& capacity) {
  encode_programs_.clear();
  step_programs_.clear();
  Graph graph;
  CachedVariables(graph, params_, dtype_, capacity);
  EncodedVariables(graph, params_, dtype_, capacity);
  const auto remove = [&] {
    capacity_ = {};
    for (const compute::VariableSpec& spec : graph.variables()) variables_.Remove(spec.name);
  };
  remove();
  const absl::Status status = variables_.Create(graph, 0);
  if (status.ok()) {
    capacity_ = capacity;
  } else {
    remove();
  }
  return status;
}

absl::StatusOr<compute::Program*> Decoder::ProgramFor(Programs& programs, const ProgramKey& key,
                                                      absl::FunctionRef<DecoderGraph()> build) {
  auto found = programs.find(key);
  if (found == programs.end()) {
    const DecoderGraph built = build();
    ASSIGN_OR_RETURN(std::unique_ptr<compute::Program> program,
                     compute::Program::Compile(*built.graph, built.roots, device_, variables_, {.arena = &arena_}));
    if (programs.size() >= kMaxPrograms) {
      programs.erase(std::min_element(programs.begin(), programs.end(), [](const auto& a, const auto& b) {
        return a.second.last_asked < b.second.last_asked;
      }));
    }
    found = programs.emplace(key, CompiledProgram{std::move(program)}).first;
  }
  found->second.last_asked = ++asked_;
  return found->second.program.get();
}

absl::StatusOr<compute::Program*> Decoder::EncodeProgram(int64_t tokens, int64_t sentences) {
  return ProgramFor(encode_programs_, {tokens, sentences},
                    [&] { return EncodeGraph(params_, dtype_, capacity_, tokens, sentences); });
}

absl::StatusOr<compute::Program*> Decoder::StepProgram(int64_t sentences, int64_t rows) {
  return ProgramFor(step_programs_, {sentences, rows},
                    [&] { return StepGraph(params_, dtype_, capacity_, sentences, rows); });
}

absl::Status Decoder::Encode(const Tensor& ids, const Tensor& offsets, const std::atomic<int>* stop) {
  const int64_t tokens = ids.num_elements();
  ASSIGN_OR_RETURN(compute::Program* const program, EncodeProgram(tokens, offsets.num_elements() - 1));
  RETURN_IF_ERROR(program->Run({ids, offsets}, {.stop = stop}));
  Graph graph;
  std::vector<Value> encoded;
  for (const KeysAndValues& layer : Encoded(graph)) encoded.insert(encoded.end(), {layer.keys, layer.values});
  Tensor staged(encoded[0].type());
  for (size_t i = 0; i < encoded.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor value, program->Fetch(static_cast<int>(i)));
    std::memcpy(staged.raw_data(), value.raw_data(), value.num_bytes());
    RETURN_IF_ERROR(variables_.Write(encoded[i].node()->name(), staged));
  }
  return absl::OkStatus();
}

absl::StatusOr<Decoded> Decoder::Translate(absl::Span<const std::vector<int32_t>> sentences, DecodeLength length,
                                           const std::atomic<int>* stop) {
  if (sentences.empty()) return Decoded();
  const PackedIds source = PackIds({sentences.begin(), sentences.end()});
  std::vector<int64_t> max_lengths;  // of the translations
  for (const std::vector<int32_t>& sentence : sentences) {
    max_lengths.push_back(static_cast<int64_t>(sentence.size()) + params_.extra_decode_length);
  }
  const auto n = static_cast<int64_t>(sentences.size());
  const int64_t longest = *std::max_element(max_lengths.begin(), max_lengths.end());
  if (length == DecodeLength::kOfBatch) max_lengths.assign(n, longest);
  const DecoderCapacity needed = {.tokens = source.ids.num_elements(),
                                  .rows = params_.beam_size * PaddedSentences(n),
                                  .positions = RoundUp(longest, 64)};
  const DecoderCapacity capacity = CapacityFor(needed);
  absl::StatusOr<Decoded> decoded = Search(source, max_lengths, capacity, stop);
  // Caches that are larger than this batch needs may have left too little memory for the rest.
  if (absl::IsResourceExhausted(decoded.status()) && capacity != needed) {
    decoded = Search(source, max_lengths, needed, stop);
  }
  return decoded;
}

absl::StatusOr<Decoded> Decoder::Search(const PackedIds& source, const std::vector<int64_t>& max_lengths,
                                        const DecoderCapacity& capacity, const std::atomic<int>* stop) {
  if (capacity != capacity_) RETURN_IF_ERROR(Resize(capacity));
  RETURN_IF_ERROR(Encode(source.ids, source.offsets, stop));

  Decoded result;
  const int64_t beam = params_.beam_size, n = static_cast<int64_t>(max_lengths.size());
  const int64_t padded_sentences = source.offsets.num_elements() - 1;
  std::vector<BeamSearch> searches;
  for (const int64_t max_length : max_lengths) {
    searches.emplace_back(
        BeamSearchOptions{.beam_size = beam, .alpha = params_.alpha, .max_decode_length = max_length});
  }
  CacheRows cache_rows(capacity_.rows, capacity_.positions);
  const Tensor ids(DType::kInt32, {capacity_.rows}), log_probs(DType::kFloat32, {capacity_.rows, 1});
  const Tensor position(DType::kInt32, {1}), query_offsets(DType::kInt32, {padded_sentences + 1});
  for (;; ++result.steps) {
    int64_t rows = 0;  // hypotheses of the searches that go on
    for (int64_t b = 0; b < padded_sentences; ++b) {
      if (b < n && !searches[b].IsDone()) {
        for (int64_t k = 0; k < beam; ++k, ++rows) {
          ids.data<int32_t>()[rows] = searches[b].newest(k);
          log_probs.data<float>()[rows] = searches[b].log_prob(k);
        }
      }
      query_offsets.data<int32_t>()[b + 1] = static_cast<int32_t>(rows);
    }
    if (rows == 0) break;
    const int64_t padded_rows = beam * PaddedSentences(rows / beam);
    ASSIGN_OR_RETURN(compute::Program* const program, StepProgram(padded_sentences, padded_rows));
    position.data<int32_t>()[0] = static_cast<int32_t>(result.steps);
    RETURN_IF_ERROR(
        program->Run({Tensor({DType::kInt32, {padded_rows}}, ids.raw_data()), position, cache_rows.table(padded_rows),
                      query_offsets, source.offsets, FirstRows(log_probs, padded_rows)},
                     {.stop = stop}));
    ASSIGN_OR_RETURN(const Tensor best, program->Fetch(0));
    RETURN_IF_ERROR(CheckNumbers(best, rows, dtype_));
    ASSIGN_OR_RETURN(const Tensor best_ids, program->Fetch(1));
    const int64_t candidates = best.shape().dim(1) * beam;
    int64_t next_row = 0;
    for (int64_t b = 0; b < n; ++b) {
      const int64_t row = query_offsets.data<int32_t>()[b];
      if (query_offsets.data<int32_t>()[b + 1] == row) continue;
      const int64_t at = row / beam * candidates;
      const absl::Span<const int64_t> parents =
          searches[b].Advance({best.data<float>() + at, static_cast<size_t>(candidates)},
                              {best_ids.data<int32_t>() + at, static_cast<size_t>(candidates)});
      if (searches[b].IsDone()) continue;
      for (const int64_t parent : parents) cache_rows.Continue(next_row++, row + parent, result.steps);
    }
    cache_rows.EndStep();
  }
  for (const BeamSearch& search : searches) result.best.push_back(search.best());
  return result;
}

}  // namespace official::transformer
