#include "official/transformer/decoder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "official/transformer/packing.h"
#include "official/transformer/small_network.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/status.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;
using Ids = std::vector<int32_t>;

compute::Device& Cpu() {
  static compute::Device& device = *compute::MakeDevice("cpu").value().release();
  return device;
}

// The CPU, of whose memory at most `limit` bytes may be taken.
class LimitedCpu : public compute::Device {
 public:
  explicit LimitedCpu(int64_t limit = std::numeric_limits<int64_t>::max()) : limit_(limit) {}
  absl::string_view kind() const override { return Cpu().kind(); }
  absl::string_view name() const override { return Cpu().name(); }
  std::string Description() const override { return Cpu().Description(); }
  std::string Hardware() const override { return Cpu().Hardware(); }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override {
    if (bytes > limit_ - bytes_) return absl::ResourceExhaustedError("the limit is reached");
    ASSIGN_OR_RETURN(const std::shared_ptr<void> data, Cpu().Allocate(bytes));
    ++num_allocations_;
    bytes_ += bytes;
    most_bytes_ = std::max(most_bytes_, bytes_);
    return std::shared_ptr<void>(data.get(), [this, data, bytes](void*) { bytes_ -= bytes; });
  }
  bool uses_host_memory() const override { return true; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override {
    return Cpu().CopyToDevice(device, host, bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override {
    return Cpu().CopyToHost(host, device, bytes);
  }
  void MakeCurrent() override { Cpu().MakeCurrent(); }
  absl::Status Synchronize() override { return Cpu().Synchronize(); }

  int64_t bytes() const { return bytes_; }  // that are taken now
  int64_t most_bytes() const { return most_bytes_; }
  int64_t num_allocations() const { return num_allocations_; }

 private:
  const int64_t limit_;
  int64_t bytes_ = 0, most_bytes_ = 0, num_allocations_ = 0;
};

// A trained network, as far as a decoder can tell.
class Trained {
 public:
  explicit Trained(const ModelParams& params, uint64_t seed = 1) : params_(params), variables_(Cpu()) {
    compute::Graph graph;
    AddLogits(graph, {{2}}, {{2}});
    REQUIRE(variables_.Create(graph, seed).ok());
  }

  compute::VariableStore& variables() { return variables_; }
  std::unique_ptr<Decoder> MakeDecoder(DType dtype = DType::kFloat32, compute::Device& device = Cpu()) const {
    return Decoder::Create(params_, dtype, device, [this](const auto& spec) { return variables_.Read(spec.name); })
        .value();
  }

  // The logits of what follows each of the targets so far, by the network as it is trained: all of it again.
  std::vector<std::vector<float>> NextLogits(const std::vector<Ids>& sources, std::vector<Ids> targets) {
    for (Ids& target : targets) target.push_back(2);  // which no logits before it see
    compute::Graph graph;
    const compute::Value logits = AddLogits(graph, sources, targets);
    const auto program = compute::Program::Compile(graph, {{}, {logits}, {}}, Cpu(), variables_).value();
    REQUIRE(program->Run({}).ok());
    const Tensor result = program->Fetch(0).value();
    std::vector<std::vector<float>> next;
    int64_t row = -1;
    for (const Ids& target : targets) {
      row += static_cast<int64_t>(target.size());
      const float* const begin = result.data<float>() + row * params_.vocab_size;
      next.emplace_back(begin, begin + params_.vocab_size);
    }
    return next;
  }

 private:
  compute::Value AddLogits(compute::Graph& graph, const std::vector<Ids>& sources, const std::vector<Ids>& targets) {
    const auto constants = [&](const std::vector<Ids>& sentences) {
      const PackedIds packed = PackIds({sentences.begin(), sentences.end()});
      return std::vector<compute::Value>{graph.Constant(packed.ids), graph.Constant(packed.offsets)};
    };
    return Logits({.graph = graph,
                   .mode = train::Mode::kEval,
                   .dtype = DType::kFloat32,
                   .features = constants(sources),
                   .labels = constants(targets),
                   .random_state = {}},
                  params_);
  }

  const ModelParams params_;
  compute::VariableStore variables_;
};

std::vector<int> TopIndices(const std::vector<float>& values, size_t k) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  order.resize(k);
  return order;
}

// sequence_beam_search of tensorflow/models official/transformer/model/beam_search.py, word for word: of whole batches,
// with places for finished sequences that are filled from the start, and until all sentences are done.
Decoded Reference(Trained& trained, const ModelParams& params, const std::vector<Ids>& sources) {
  Decoded result;
  constexpr float kInf = 1e7;
  const int beam = static_cast<int>(params.beam_size), vocab = static_cast<int>(params.vocab_size);
  const int batch = static_cast<int>(sources.size());
  size_t longest = 0;
  for (const Ids& source : sources) longest = std::max(longest, source.size());
  const int max_length = static_cast<int>(longest + params.extra_decode_length);
  const auto norm = [&](int64_t n) {
    return std::pow((5.0f + static_cast<float>(n)) / 6.0f, static_cast<float>(params.alpha));
  };
  struct State {
    std::vector<Ids> alive, finished;
    std::vector<float> log_probs, scores;
    std::vector<bool> flags;
  };
  std::vector<State> states(batch);
  for (State& s : states) {
    s.alive = s.finished = std::vector<Ids>(beam);
    s.log_probs.assign(beam, -std::numeric_limits<float>::infinity());
    s.log_probs[0] = 0;
    s.scores.assign(beam, -kInf);
    s.flags.assign(beam, false);
  }
  const auto done = [&](const State& s) {
    float worst = 0;
    bool any = false;
    for (int k = 0; k < beam; ++k) {
      worst = std::min(worst, s.flags[k] ? s.scores[k] : 0.0f);
      any = any || s.flags[k];
    }
    if (!any) worst -= kInf;
    return worst > s.log_probs[0] / norm(max_length);
  };
  for (; result.steps < max_length && !std::all_of(states.begin(), states.end(), done); ++result.steps) {
    std::vector<Ids> all_sources, all_targets;
    for (int b = 0; b < batch; ++b) {
      for (const Ids& alive : states[b].alive) {
        all_sources.push_back(sources[b]);
        all_targets.push_back(alive);
      }
    }
    const auto logits = trained.NextLogits(all_sources, all_targets);
    for (int b = 0; b < batch; ++b) {
      State& s = states[b];
      std::vector<float> log_probs;
      for (int k = 0; k < beam; ++k) {
        const std::vector<float>& row = logits[b * beam + k];
        const float max = *std::max_element(row.begin(), row.end());
        float sum = 0;
        for (const float x : row) sum += std::exp(x - max);
        for (const float x : row) log_probs.push_back(x - max - std::log(sum) + s.log_probs[k]);
      }
      State next;
      std::vector<Ids> sequences;
      std::vector<float> alive_scores, finished_scores = s.scores;
      std::vector<Ids> finished = s.finished;
      std::vector<bool> flags = s.flags;
      for (const int index : TopIndices(log_probs, 2 * beam)) {
        sequences.push_back(s.alive[index / vocab]);
        sequences.back().push_back(index % vocab);
        const bool eos = index % vocab == 1;
        alive_scores.push_back(log_probs[index] + (eos ? -kInf : 0));
        finished_scores.push_back(log_probs[index] / norm(result.steps + 1) + (eos ? 0 : -kInf));
        finished.push_back(sequences.back());
        flags.push_back(eos);
      }
      for (const int index : TopIndices(alive_scores, beam)) {
        next.alive.push_back(sequences[index]);
        next.log_probs.push_back(alive_scores[index]);
      }
      for (const int index : TopIndices(finished_scores, beam)) {
        next.finished.push_back(finished[index]);
        next.scores.push_back(finished_scores[index]);
        next.flags.push_back(flags[index]);
      }
      s = next;
    }
  }
  for (const State& s : states) {
    const bool any = std::any_of(s.flags.begin(), s.flags.end(), [](bool flag) { return flag; });
    result.best.push_back(any ? Hypothesis{s.finished[0], s.scores[0]} : Hypothesis{s.alive[0], s.log_probs[0]});
  }
  return result;
}

void Check(const Decoded& got, const Decoded& expected, double tolerance = 1e-4) {
  REQUIRE(got.best.size() == expected.best.size());
  // Of each sentence the search may end earlier than that of the whole batch.
  CHECK(got.steps <= expected.steps);
  for (size_t i = 0; i < got.best.size(); ++i) {
    INFO("sentence " << i);
    CHECK(got.best[i].ids == expected.best[i].ids);
    CHECK(std::abs(got.best[i].score - expected.best[i].score) <= tolerance);
  }
}

const std::vector<Ids> kSentences = {{2, 3, 4, 1}, {5, 6, 1}, {9, 8, 7, 6, 5, 4, 3, 2, 1}, {1}, {10, 10, 3, 1}};

TEST_CASE("Translations are upstream's") {
  Trained trained(SmallParams());
  SetVariables(trained.variables());
  const std::vector<Ids> sentences = {{2, 3, 4, 1}, {5, 6, 1}};
  const Decoded reference = Reference(trained, SmallParams(), sentences);
  // Upstream fills up the translations, which end at once, with zeros to the length of its search.
  CHECK(reference.steps == 23);
  for (const Decoded& found : {trained.MakeDecoder()->Translate(sentences).value(), reference}) {
    REQUIRE(found.best.size() == 2);
    for (const Hypothesis& best : found.best) CHECK(best.ids == Ids{1});
    CHECK(found.best[0].score == Approx(-3.755977).margin(2e-6));
    CHECK(found.best[1].score == Approx(-1.909757).margin(2e-6));
  }
}

TEST_CASE("The search finds what one without caches finds") {
  ModelParams params = SmallParams();
  params.hidden_size = 16;
  params.initializer_gain = 4;  // so that what was decoded matters
  params.extra_decode_length = 9;
  params.beam_size = GENERATE(1, 3, 4);
  size_t different = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    CAPTURE(params.beam_size, seed);
    Trained trained(params, seed);
    Sharpen(trained.variables(), 3);
    const auto decoder = trained.MakeDecoder();
    const Decoded found = decoder->Translate(kSentences).value();
    Check(found, Reference(trained, params, kSentences));
    std::set<Ids> translations;
    for (const Hypothesis& best : found.best) translations.insert(best.ids);
    different += translations.size();
    const std::vector<Ids> one = {kSentences[2]};
    Check(decoder->Translate(one).value(), Reference(trained, params, one));
  }
  CHECK(different > 5);  // of 15
}

TEST_CASE("Every kind of device finds what the search says") {
  ModelParams params = SmallParams();
  params.initializer_gain = 4;
  params.extra_decode_length = 9;
  Trained trained(params, 4);
  Sharpen(trained.variables(), 3);
  const Decoded expected = Reference(trained, params, kSentences);
  const Decoded on_cpu = trained.MakeDecoder()->Translate(kSentences).value();
  for (const std::string& kind : compute::testing::KindsUnderTest()) {
    INFO(kind);
    const auto device = compute::MakeDevice(kind).value();
    const auto decoder = trained.MakeDecoder(DType::kFloat32, *device);
    for (int batch = 0; batch < 3; ++batch) {  // replayed too
      const Decoded found = decoder->Translate(kSentences).value();
      Check(found, expected);
      Check(found, on_cpu, 1e-5);
    }
  }
}

TEST_CASE("A translation may end at once, or never") {
  ModelParams params = SmallParams();
  params.extra_decode_length = 5;
  Trained trained(params);
  SetLogitOfEos(trained.variables(), 16);
  Decoded found = trained.MakeDecoder()->Translate(kSentences).value();
  Check(found, Reference(trained, params, kSentences));
  for (const Hypothesis& hypothesis : found.best) CHECK(hypothesis.ids == Ids{1});

  SetLogitOfEos(trained.variables(), -100);
  found = trained.MakeDecoder()->Translate(kSentences).value();
  Check(found, Reference(trained, params, kSentences));
  for (const Hypothesis& hypothesis : found.best) {
    CHECK(hypothesis.ids.size() == 9 + 5);
    CHECK(std::count(hypothesis.ids.begin(), hypothesis.ids.end(), 1) == 0);
  }
}

TEST_CASE("With few words the search falls back on hypotheses that have ended") {
  ModelParams params = SmallParams();
  params.vocab_size = 3;
  params.extra_decode_length = 4;
  Trained trained(params, 3);
  const std::vector<Ids> sentences = {{2, 2, 1}, {1}};
  Check(trained.MakeDecoder()->Translate(sentences).value(), Reference(trained, params, sentences));
}

TEST_CASE("A decoder translates batch after batch of any size") {
  ModelParams params = SmallParams();
  params.initializer_gain = 4;
  params.extra_decode_length = 9;
  Trained trained(params, 2);
  Sharpen(trained.variables(), 3);
  const auto decoder = trained.MakeDecoder();
  const Ids longer(200, 5);
  for (const std::vector<Ids>& sentences :
       {std::vector<Ids>{kSentences[0]}, kSentences, std::vector<Ids>{longer}, std::vector<Ids>{kSentences[1]}}) {
    Check(decoder->Translate(sentences).value(), trained.MakeDecoder()->Translate(sentences).value());
  }
  CHECK(decoder->Translate({}).value().best.empty());
  const absl::Status status = decoder->Translate({{11, 1}}).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("11"));
  Check(decoder->Translate(kSentences).value(), trained.MakeDecoder()->Translate(kSentences).value());
}

TEST_CASE("By the lengths of sentences, each is translated as it is alone") {
  ModelParams params = SmallParams();
  params.initializer_gain = 4;
  params.extra_decode_length = 5;
  Trained trained(params, 2);
  Sharpen(trained.variables(), 3);
  const bool ends = GENERATE(true, false);
  if (!ends) SetLogitOfEos(trained.variables(), -100);
  const auto decoder = trained.MakeDecoder();
  const Decoded together = decoder->Translate(kSentences, DecodeLength::kOfSentence).value();
  for (size_t i = 0; i < kSentences.size(); ++i) {
    INFO("sentence " << i);
    const std::vector<Ids> one = {kSentences[i]};
    const Hypothesis alone = decoder->Translate(one, DecodeLength::kOfSentence).value().best[0];
    CHECK(together.best[i].ids == alone.ids);
    CHECK(together.best[i].score == Approx(alone.score).margin(1e-4));
    if (!ends) CHECK(alone.ids.size() == one[0].size() + 5);
  }
}

std::vector<Ids> SentencesOfLength(size_t sentences, size_t length) {
  return std::vector<Ids>(sentences, Ids(length, 5));
}

// A network whose translations end at once, so that tests of many batches take little time.
class Terse : public Trained {
 public:
  Terse() : Trained(Params()) { SetLogitOfEos(variables(), 16); }
  static ModelParams Params() {
    ModelParams params = SmallParams();
    params.extra_decode_length = 9;
    return params;
  }
  // Returns the most memory that a new decoder takes while it translates the batches.
  int64_t MostBytes(const std::vector<std::vector<Ids>>& batches) const {
    LimitedCpu device;
    const auto decoder = MakeDecoder(DType::kFloat32, device);
    for (const std::vector<Ids>& batch : batches) REQUIRE(decoder->Translate(batch).ok());
    return device.most_bytes();
  }
};

TEST_CASE("After many sentences and a long one a decoder has no room for many long ones") {
  const Terse trained;
  const std::vector<Ids> many = SentencesOfLength(64, 4), one_long = SentencesOfLength(1, 2000);
  const int64_t most = std::max(trained.MostBytes({many}), trained.MostBytes({one_long}));
  CHECK(trained.MostBytes({many, one_long}) < 2 * most);
  CHECK(trained.MostBytes({one_long, many, one_long}) < 2 * most);
}

TEST_CASE("A decoder has room for batches of two similar shapes, if there is the memory") {
  const Terse trained;
  // 48 rows of 64 positions, and 24 of 128.
  const std::vector<Ids> shorter = SentencesOfLength(12, 3), longer = SentencesOfLength(6, 60);
  LimitedCpu large;
  const auto decoder = trained.MakeDecoder(DType::kFloat32, large);
  for (const auto& batch : {shorter, longer, shorter}) REQUIRE(decoder->Translate(batch).ok());
  const int64_t num_allocations = large.num_allocations();
  for (const auto& batch : {longer, shorter}) REQUIRE(decoder->Translate(batch).ok());
  CHECK(large.num_allocations() == num_allocations);

  constexpr int64_t kSlack = 100'000;  // a quarter of the caches of either
  const int64_t limit = std::max(trained.MostBytes({shorter}), trained.MostBytes({longer})) + kSlack;
  CHECK(large.most_bytes() > limit);
  LimitedCpu small(limit);
  const auto with_less = trained.MakeDecoder(DType::kFloat32, small);
  for (const auto& batch : {shorter, longer, shorter}) {
    Check(with_less->Translate(batch).value(), decoder->Translate(batch).value());
  }
}

TEST_CASE("Without memory for a batch, a decoder still translates smaller ones") {
  const Terse trained;
  const std::vector<Ids> large = SentencesOfLength(64, 500);
  LimitedCpu device(trained.MostBytes({kSentences}) + 100'000);
  const auto decoder = trained.MakeDecoder(DType::kFloat32, device);
  for (int i = 0; i < 2; ++i) {
    CHECK(absl::IsResourceExhausted(decoder->Translate(large).status()));
    Check(decoder->Translate(kSentences).value(), trained.MakeDecoder()->Translate(kSentences).value());
  }
}

TEST_CASE("What a decoder keeps for a size of batch is small, and not kept for all sizes") {
  const Terse trained;
  LimitedCpu device;
  const auto decoder = trained.MakeDecoder(DType::kFloat32, device);
  const auto bytes_after = [&](size_t sentences, size_t length) {
    REQUIRE(decoder->Translate(SentencesOfLength(sentences, length)).ok());
    return device.bytes();
  };
  const int64_t before = bytes_after(32, 119);
  const int64_t positions = 128 * Terse::Params().hidden_size * static_cast<int64_t>(sizeof(float));
  CHECK(bytes_after(32, 100) < before + 2 * positions);
  // Over 70 encoders.
  std::vector<int64_t> bytes;
  for (size_t length = 4; length < 119; length += 3) {
    for (const size_t sentences : {8, 16, 32}) bytes.push_back(bytes_after(sentences, length));
  }
  CHECK(bytes.back() > before);
  CHECK(bytes.back() == bytes[bytes.size() - 12]);
  const std::vector<Ids> first = SentencesOfLength(8, 4);
  Check(decoder->Translate(first).value(), trained.MakeDecoder()->Translate(first).value());
}

TEST_CASE("Narrow types give nearly the same scores") {
  Trained trained(SmallParams());
  SetVariables(trained.variables());
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Decoded found = trained.MakeDecoder(dtype)->Translate({{2, 3, 4, 1}, {5, 6, 1}}).value();
    CHECK(found.best[0].ids == Ids{1});
    CHECK(found.best[0].score == Approx(-3.755977).epsilon(0.02));
    CHECK(found.best[1].score == Approx(-1.909757).epsilon(0.02));
  }
}

TEST_CASE("Weights and what is computed of them must be finite") {
  Trained trained(SmallParams());
  constexpr char kWeights[] = "model/Transformer/embedding_shared_weights/embedding_and_softmax/weights";
  const auto with_first = [&](float value, DType dtype) {
    return Decoder::Create(SmallParams(), dtype, Cpu(), [&, value](const auto& spec) -> absl::StatusOr<Tensor> {
      Tensor weights = trained.variables().Read(spec.name).value();
      if (spec.name == kWeights) std::fill_n(weights.data<float>(), weights.num_elements(), value);
      return weights;
    });
  };
  const absl::Status status = with_first(NAN, DType::kFloat32).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Catch::Contains(std::string(kWeights) + " (float32[11,8]) is not finite: its element 0 is nan"));
  // Finite, but more than the largest half.
  const absl::Status overflow = with_first(1e6, DType::kFloat16).value()->Translate({{2, 3, 1}}).status();
  CHECK(overflow.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(overflow.message()), Catch::Contains("computed in fp16, are not numbers"));
}

TEST_CASE("Weights must have the network's shapes") {
  Trained trained(SmallParams());
  ModelParams larger = SmallParams();
  larger.vocab_size = 12;
  const absl::Status status = Decoder::Create(larger, DType::kFloat32, Cpu(), [&](const auto& spec) {
                                return trained.variables().Read(spec.name);
                              }).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("embedding_and_softmax/weights is float32[11,8], the "
                                                            "network has float32[12,8]"));
}

}  // namespace
}  // namespace official::transformer
