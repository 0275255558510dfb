#include "utils/compute/ops/attention/attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "utils/compute/core/random.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using Lengths = std::vector<int>;

constexpr double kRate = 0.3;
constexpr int64_t kSeed = 5, kStep = 9, kFirst = (int64_t{1} << 32) + 3;  // of the random state

struct Problem {
  Lengths queries, keys;
  int heads = 1, key_size = 1, value_size = 1;
  bool causal = false;
  double rate = 0;
  int padding = 3;  // rows behind the sequences
};

Tensor State(int64_t first) { return Tensor::Of<int64_t>({3}, {kSeed, kStep, first}); }

Tensor Offsets(const Lengths& lengths) {
  Tensor offsets(DType::kInt32, {static_cast<int64_t>(lengths.size()) + 1});
  offsets.data<int32_t>()[0] = 0;
  std::partial_sum(lengths.begin(), lengths.end(), offsets.data<int32_t>() + 1);
  return offsets;
}

// Random rows of the sequences, NaN behind them: whoever reads padding shows it.
Tensor Rows(const Lengths& lengths, int padding, int columns, uint64_t seed) {
  const int rows = std::accumulate(lengths.begin(), lengths.end(), 0);
  Tensor result = testing::RandomTensor({rows + padding, columns}, seed, -1.5, 1.5);
  std::fill_n(result.data<float>() + int64_t{rows} * columns, int64_t{padding} * columns,
              std::numeric_limits<float>::quiet_NaN());
  return result;
}

std::vector<Tensor> Inputs(const Problem& p) {
  return {Rows(p.queries, p.padding, p.heads * p.key_size, 1),
          Rows(p.keys, p.padding, p.heads * p.key_size, 2),
          Rows(p.keys, p.padding, p.heads * p.value_size, 3),
          Offsets(p.queries),
          Offsets(p.keys),
          State(kFirst)};
}

double ScaleOf(const Problem& p) { return 0.7 / std::sqrt(p.key_size); }

Value Attend(const Problem& p, absl::Span<const Value> in) {
  return Attention(
      {.q = in[0], .k = in[1], .v = in[2], .q_offsets = in[3], .k_offsets = in[4], .random_state = in[5]},
      {.num_heads = p.heads, .causal = p.causal, .scale = ScaleOf(p), .dropout_rate = p.rate, .name = "attention"});
}

// As packed_draws.h has it, word by word.
bool Keeps(int64_t sequence, int head, int query, int key) {
  const auto example = static_cast<uint64_t>(kFirst + sequence);
  const Philox4 words = Philox(kSeed, {static_cast<uint32_t>(example), static_cast<uint32_t>(example >> 32),
                                       static_cast<uint32_t>(StreamOf("attention", 9)), kStep});
  const Philox4 draw = Philox(words[0] | uint64_t{words[1]} << 32,
                              {static_cast<uint32_t>(key / 64 * 16 + key % 16), static_cast<uint32_t>(query),
                               static_cast<uint32_t>(head), words[2]});
  return draw[key / 16 % 4] >= kRate * 0x1p32;
}

// Row `query` of head `head` of sequence b, whose rows start at q0 and k0.
void AttendRow(const Problem& p, const std::vector<Doubles>& in, int b, int head, int query, int q0, int k0,
               double* out) {
  const int seen = p.causal ? std::min(p.keys[b], query + 1) : p.keys[b];
  const double* const q = &in[0][((q0 + query) * p.heads + head) * p.key_size];
  Doubles weights(seen);
  for (int key = 0; key < seen; ++key) {
    const double* const k = &in[1][((k0 + key) * p.heads + head) * p.key_size];
    weights[key] = std::exp(ScaleOf(p) * std::inner_product(q, q + p.key_size, k, 0.0));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (int key = 0; key < seen; ++key) {
    double weight = weights[key] / sum;
    if (p.rate > 0) weight *= Keeps(b, head, query, key) ? 1 / (1 - p.rate) : 0;
    const double* const v = &in[2][((k0 + key) * p.heads + head) * p.value_size];
    for (int c = 0; c < p.value_size; ++c) out[c] += weight * v[c];
  }
}

testing::OpCase CaseOf(const Problem& p) {
  return {
      .op = op::Attention,
      .inputs = Inputs(p),
      .build = [p](absl::Span<const Value> in) { return std::vector<Value>{Attend(p, in)}; },
      .reference =
          [p](const std::vector<Doubles>& in) {
            Doubles out(in[0].size() / p.key_size * p.value_size);
            for (int b = 0, q0 = 0, k0 = 0; b < static_cast<int>(p.queries.size()); ++b) {
              for (int query = 0; query < p.queries[b]; ++query) {
                for (int h = 0; h < p.heads; ++h) {
                  AttendRow(p, in, b, h, query, q0, k0, &out[((q0 + query) * p.heads + h) * p.value_size]);
                }
              }
              q0 += p.queries[b];
              k0 += p.keys[b];
            }
            return std::vector<Doubles>{out};
          },
  };
}

void Check(const Problem& p) {
  testing::CheckForward(CaseOf(p));
  testing::CheckGradients(CaseOf(p));
}

TEST_CASE("Attention of sequences of unlike lengths, values and gradients") {
  Problem p = {.queries = {3, 1, 0, 5, 2}, .keys = {3, 1, 0, 5, 2}, .heads = 2, .key_size = 3, .value_size = 5};
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  Check(p);
}

TEST_CASE("Attention between sequences of unlike lengths, some without keys or queries") {
  Problem p = {.queries = {4, 2, 0, 1}, .keys = {2, 0, 3, 5}, .heads = 3, .key_size = 2, .value_size = 1};
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  Check(p);
}

// More than one tile of 64, and a rest, of queries, keys and columns.
TEST_CASE("Attention of long sequences") {
  Problem p = {.queries = {70, 5}, .keys = {70, 5}, .key_size = 2, .value_size = 2, .padding = 1};
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  Check(p);
  const Problem cross = {.queries = {66}, .keys = {81}, .causal = p.causal, .rate = p.rate, .padding = 0};
  Check(cross);
}

TEST_CASE("Attention of long sequences with wide heads, values") {
  Problem p = {.queries = {150, 31}, .keys = {150, 31}, .heads = 2, .key_size = 64, .value_size = 40};
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  testing::CheckForward(CaseOf(p));
}

// Lengths around the 16 rows and the 64 rows that kernels treat together, and heads of several times 16 columns.
Problem WideHeads() {
  const Lengths lengths = {1, 15, 16, 17, 28, 64, 65, 100};
  Problem p = {.queries = lengths, .keys = lengths, .heads = 2, .key_size = 64, .value_size = 64, .padding = 5};
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  return p;
}

TEST_CASE("Attention of heads of 64 and 128 columns, values") {
  Problem p = WideHeads();
  p.key_size = p.value_size = GENERATE(64, 128);
  if (p.key_size == 128) p.heads = 1;
  testing::CheckForward(CaseOf(p));
}

TEST_CASE("Attention between sequences of unlike lengths with wide heads, values") {
  Problem p = {.queries = {20, 70, 0, 9, 1}, .keys = {66, 33, 5, 0, 130}, .heads = 2};
  p.key_size = GENERATE(16, 48, 80);
  p.value_size = 96 - p.key_size;
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  testing::CheckForward(CaseOf(p));
}

// Compares results and gradients of all types with those of the CPU in float32.
void CheckWithFloat32(const Problem& p) {
  std::vector<Tensor> inputs = Inputs(p);
  const int64_t rows = inputs[0].shape().dim(0);
  inputs.push_back(testing::RandomTensor({rows, int64_t{p.heads} * p.value_size}, 4));
  const auto build = [&](absl::Span<const Value> in) {
    const Value out = Attend(p, in);
    std::vector<Value> results = Gradients({out}, {in[6]}, {in[0], in[1], in[2]});
    results.push_back(out);
    return results;
  };
  for (const std::string& kind : testing::KindsUnderTest()) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      CAPTURE(kind, DTypeName(type));
      std::vector<Tensor> narrow = inputs, rounded = inputs;
      for (const int i : {0, 1, 2, 6}) {
        narrow[i] = inputs[i].CastTo(type);
        rounded[i] = narrow[i].CastTo(DType::kFloat32);
      }
      const std::vector<Tensor> got = testing::RunOn(kind, narrow, build), want = testing::RunOnCpu(rounded, build);
      const double tolerance = FindOp(op::Attention.text())->tolerance.Of(type);
      for (size_t k = 0; k < want.size(); ++k) {
        const Doubles x = testing::ToDoubles(got[k]), y = testing::ToDoubles(want[k]);
        double error = 0;
        for (size_t i = 0; i < y.size(); ++i) {
          const double difference = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
          if (!(difference <= error)) error = difference;
        }
        CAPTURE(k);
        CHECK(error <= tolerance);
      }
    }
  }
}

TEST_CASE("Gradients of attention with heads of 64 and 128 columns") {
  Problem p = WideHeads();
  p.key_size = p.value_size = GENERATE(64, 128);
  CheckWithFloat32(p);
}

TEST_CASE("Gradients of attention between sequences of unlike lengths with wide heads") {
  Problem p = {.queries = {20, 150, 0, 9, 1}, .keys = {66, 33, 5, 0, 130}, .heads = 2};
  p.key_size = GENERATE(16, 48, 80);
  p.value_size = 96 - p.key_size;
  p.causal = GENERATE(false, true);
  p.rate = GENERATE(0.0, kRate);
  CheckWithFloat32(p);
}

TEST_CASE("Attention without sequences") { testing::CheckForward(CaseOf({.queries = {}, .keys = {}})); }

TEST_CASE("Large scores do not overflow") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Problem p = {.queries = {2}, .keys = {2}, .padding = 0};
  std::vector<Tensor> inputs = Inputs(p);
  inputs[0] = Tensor::Of<float>({2, 1}, {1e4f, -1e4f});
  inputs[1] = Tensor::Of<float>({2, 1}, {1, -1});
  inputs[2] = Tensor::Of<float>({2, 1}, {3, 5});
  const Tensor out =
      testing::RunOn(kind, inputs, [&](absl::Span<const Value> in) { return std::vector<Value>{Attend(p, in)}; })[0];
  CHECK(out.data<float>()[0] == 3);
  CHECK(out.data<float>()[1] == 5);
}

std::vector<float> Flat(const std::vector<Tensor>& tensors) {
  std::vector<float> result;
  for (const Tensor& t : tensors) result.insert(result.end(), t.flat<float>().begin(), t.flat<float>().end());
  return result;
}

// The result and all gradients.
std::vector<Value> ForwardAndBackward(const Problem& p, absl::Span<const Value> in) {
  const Value out = Attend(p, in);
  std::vector<Value> results = Gradients(out, {in[0], in[1], in[2]});
  results.push_back(out);
  return results;
}

TEST_CASE("Results have the same bits for any number of threads") {
  // Beside several threads, the long sequences have scratch memory that is not the thread's.
  const Lengths lengths = GENERATE(values<Lengths>({{70, 1, 0, 20}, {530, 1, 0, 600, 40}}));
  const Problem p = {.queries = lengths, .keys = lengths, .heads = 3, .key_size = 16, .value_size = 16, .rate = kRate};
  const std::vector<Tensor> inputs = Inputs(p);
  const int threads = NumThreads();
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3, 7}) {
    SetNumThreads(n);
    results.push_back(
        Flat(testing::RunOnCpu(inputs, [&](absl::Span<const Value> in) { return ForwardAndBackward(p, in); })));
  }
  SetNumThreads(threads);
  CHECK(results[0].size() == 4 * inputs[0].num_elements());
  for (const std::vector<float>& result : results) CHECK(result == results[0]);
}

TEST_CASE("Scratch memory does not grow with the threads times the rows") {
  Graph graph;
  const TensorType rows = {DType::kFloat32, {4096, 512}}, offsets = {DType::kInt32, {65}};
  const Value y = Attention({.q = graph.Input("q", rows),
                             .k = graph.Input("k", rows),
                             .v = graph.Input("v", rows),
                             .q_offsets = graph.Input("q_offsets", offsets),
                             .k_offsets = graph.Input("k_offsets", offsets)},
                            {.num_heads = 8});
  const Node* const grad = Gradients(y, {y.node()->input(attention::kQ)})[0].node();
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  const auto scratch_bytes = [&](const Node& node, int threads) {
    const std::vector<Layout> inputs(node.num_inputs(), Layout::kRowMajor);
    const std::vector<Layout> outputs(node.num_outputs(), Layout::kRowMajor);
    const int before = NumThreads();
    SetNumThreads(threads);
    const KernelDef* const def = KernelRegistry::Global().Find(node.op().name, "cpu", DType::kFloat32);
    const int64_t bytes = def->make(KernelSpec{node, *device, inputs, outputs}).value().scratch_bytes;
    SetNumThreads(before);
    return bytes;
  };
  for (const Node* const node : {static_cast<const Node*>(y.node()), grad}) {
    CAPTURE(node->op().name.text());
    CHECK(scratch_bytes(*node, 64) <= 4 * scratch_bytes(*node, 4));
  }
}

TEST_CASE("Two half batches drop what the whole batch drops") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Problem whole = {.queries = {4, 7, 3}, .keys = {4, 7, 3}, .heads = 2, .rate = kRate, .padding = 0};
  const auto attend = [&](const Problem& p, int64_t first_sequence, int first_row) {
    std::vector<Tensor> inputs = Inputs(whole);
    const int rows = std::accumulate(p.queries.begin(), p.queries.end(), 0);
    for (int i = 0; i < 3; ++i) {
      Tensor part(DType::kFloat32, {rows, 2});
      std::copy_n(inputs[i].data<float>() + first_row * 2, rows * 2, part.data<float>());
      inputs[i] = part;
    }
    inputs[3] = inputs[4] = Offsets(p.queries);
    inputs[5] = State(kFirst + first_sequence);
    return Flat({testing::RunOn(kind, inputs,
                                [&](absl::Span<const Value> in) { return std::vector<Value>{Attend(p, in)}; })[0]});
  };
  Problem first = whole, second = whole;
  first.queries = first.keys = {4};
  second.queries = second.keys = {7, 3};
  std::vector<float> halves = attend(first, 0, 0);
  const std::vector<float> rest = attend(second, 1, 4);
  halves.insert(halves.end(), rest.begin(), rest.end());
  const std::vector<float> together = attend(whole, 0, 0);
  if (FindDeviceKind(kind)->merge == nullptr) {
    CHECK(halves == together);
    return;
  }
  // A graph that is compiled for other numbers of tokens may add in another order.
  REQUIRE(halves.size() == together.size());
  for (size_t i = 0; i < halves.size(); ++i) CHECK(halves[i] == Approx(together[i]).margin(1e-6));
}

TEST_CASE("Offsets that do not ascend or go beyond the rows are errors") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Problem p = {.queries = {2, 3}, .keys = {2, 3}, .padding = 1};
  const auto run = [&](std::vector<int32_t> offsets) {
    std::vector<Tensor> inputs = Inputs(p);
    inputs[4] = Tensor::Of<int32_t>({3}, offsets);
    Graph graph;
    GraphRoots roots;
    for (size_t i = 0; i < inputs.size(); ++i) {
      roots.feeds.push_back(graph.Input("input" + std::to_string(i), inputs[i].type()));
    }
    roots.fetches = {Attend(p, roots.feeds)};
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    VariableStore variables(*device);
    const std::unique_ptr<Program> program = Program::Compile(graph, roots, *device, variables).value();
    return testing::RunAndWait(*program, inputs, *device);
  };
  for (const std::vector<int32_t>& offsets : std::vector<std::vector<int32_t>>{{1, 2, 5}, {0, 4, 3}, {0, 2, 7}}) {
    const absl::Status status = run(offsets);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("key offset"));
  }
}

TEST_CASE("Heads that do not divide the columns are refused") {
  const TensorType rows = {DType::kFloat32, {4, 6}}, offsets = {DType::kInt32, {3}};
  const absl::Status status =
      testing::BuildStatus({rows, rows, rows, offsets, offsets}, [](absl::Span<const Value> in) {
        return std::vector<Value>{
            Attention({.q = in[0], .k = in[1], .v = in[2], .q_offsets = in[3], .k_offsets = in[4]}, {.num_heads = 4})};
      });
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("needs columns that 4 heads divide"));
}

struct Decoding {
  static constexpr int64_t kBatch = 4, kRows = 6, kPositions = 9, kKnown = 8;
  static constexpr int kHeads = 2, kKeySize = 5, kValueSize = 3;

  // Caches of NaN, but for the tokens that `cache_rows` names.
  Tensor Cache(int64_t columns, uint64_t seed) const {
    const Tensor numbers = testing::RandomTensor({kRows, kPositions, columns}, seed);
    const Tensor cache(numbers.type());
    std::fill_n(cache.data<float>(), cache.num_elements(), std::numeric_limits<float>::quiet_NaN());
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t p = 0; p < lengths[b]; ++p) {
        const int64_t at = (cache_rows[b * kKnown + p] * kPositions + p) * columns;
        std::copy_n(numbers.data<float>() + at, columns, cache.data<float>() + at);
      }
    }
    return cache;
  }
  std::vector<Tensor> Inputs() const {
    return {testing::RandomTensor({kBatch, kHeads * kKeySize}, 1, -2, 2),
            testing::RandomTensor({kBatch, kHeads * kKeySize}, 2),
            testing::RandomTensor({kBatch, kHeads * kValueSize}, 3),
            Cache(kHeads * kKeySize, 4),
            Cache(kHeads * kValueSize, 5),
            Tensor::Of<int32_t>({kBatch, kKnown}, cache_rows),
            Tensor::Of<int32_t>({kBatch}, lengths)};
  }
  static std::vector<Value> Build(absl::Span<const Value> in) {
    return {DecodeAttention({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, kHeads, 0.5)};
  }

  // Sequences 0 and 1 share their first tokens, 2 has none, 3 is as long as can be.
  std::vector<int32_t> lengths = {3, 4, 0, 7};
  std::vector<int32_t> cache_rows = {5, 5, 1, -1, -1, -1, -1, -1,  //
                                     5, 5, 0, 2,  -1, -1, -1, -1,  //
                                     9, 9, 9, 9,  9,  9,  9,  9,   //
                                     4, 3, 4, 3,  2,  1,  0,  -1};
};

TEST_CASE("DecodeAttention is Attention of one query, and reads only what the sequence has") {
  const Decoding d;
  testing::CheckForward({
      .op = op::DecodeAttention,
      .inputs = d.Inputs(),
      .build = Decoding::Build,
      .reference =
          [&](const std::vector<Doubles>& in) {
            const int64_t heads = Decoding::kHeads, key_size = Decoding::kKeySize, value_size = Decoding::kValueSize;
            Doubles out(Decoding::kBatch * heads * value_size);
            for (int64_t i = 0; i < Decoding::kBatch * heads; ++i) {
              const int64_t b = i / heads, h = i % heads;
              double sum = 0;
              for (int64_t p = 0; p <= d.lengths[b]; ++p) {
                const bool cached = p < d.lengths[b];
                const int64_t row = cached ? d.cache_rows[b * Decoding::kKnown + p] : 0;
                const int64_t token = cached ? (row * Decoding::kPositions + p) * heads + h : i;
                const double* const key = &in[cached ? 3 : 1][token * key_size];
                const double* const value = &in[cached ? 4 : 2][token * value_size];
                const double weight =
                    std::exp(0.5 * std::inner_product(&in[0][i * key_size], &in[0][i * key_size] + key_size, key, 0.0));
                sum += weight;
                for (int64_t c = 0; c < value_size; ++c) out[i * value_size + c] += weight * value[c];
              }
              for (int64_t c = 0; c < value_size; ++c) out[i * value_size + c] /= sum;
            }
            return std::vector<Doubles>{out};
          },
  });
}

TEST_CASE("DecodeAttention writes the newest token to the caches, and nothing else") {
  const Decoding d;
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    if (KernelRegistry::Global().Find(op::DecodeAttention, kind, DType::kFloat32) == nullptr) continue;
    const std::vector<Tensor> inputs = d.Inputs();
    const auto device = MakeDevice(kind).value();
    Graph graph;
    GraphRoots roots;
    std::vector<Value> values;
    for (int i = 0; i < 7; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      const bool cache = i == 3 || i == 4;
      values.push_back(cache ? graph.Variable({name, inputs[i].type(), Initializer::Zeros()})
                             : graph.Input(name, inputs[i].type()));
      if (!cache) roots.feeds.push_back(values.back());
    }
    roots.fetches = Decoding::Build(values);
    VariableStore variables(*device);
    REQUIRE(variables.Create(graph, 1).ok());
    for (const int i : {3, 4}) REQUIRE(variables.Write(std::string(1, static_cast<char>('a' + i)), inputs[i]).ok());
    const auto program = Program::Compile(graph, roots, *device, variables).value();
    const std::vector<Tensor> feeds = {inputs[0], inputs[1], inputs[2], inputs[5], inputs[6]};
    REQUIRE(testing::RunAndWait(*program, feeds, *device).ok());
    for (const int i : {3, 4}) {
      const Tensor cache = variables.Read(std::string(1, static_cast<char>('a' + i))).value();
      const int64_t columns = cache.shape().dim(2);
      std::vector<float> expected(inputs[i].flat<float>().begin(), inputs[i].flat<float>().end());
      for (int64_t b = 0; b < Decoding::kBatch; ++b) {
        std::copy_n(inputs[i - 2].data<float>() + b * columns, columns,
                    &expected[(b * Decoding::kPositions + d.lengths[b]) * columns]);
      }
      CHECK(std::memcmp(cache.data<float>(), expected.data(), cache.num_bytes()) == 0);
    }
  }
}

TEST_CASE("DecodeAttention refuses lengths and rows that the caches do not have") {
  const auto message = [](const Decoding& d) {
    std::vector<Tensor> inputs = Decoding().Inputs();
    inputs[5] = Tensor::Of<int32_t>(inputs[5].shape(), d.cache_rows);
    inputs[6] = Tensor::Of<int32_t>(inputs[6].shape(), d.lengths);
    const auto device = MakeDevice("cpu").value();
    Graph graph;
    GraphRoots roots;
    for (const Tensor& input : inputs) roots.feeds.push_back(graph.Input("input", input.type()));
    roots.fetches = Decoding::Build(roots.feeds);
    VariableStore variables(*device);
    const auto program = Program::Compile(graph, roots, *device, variables).value();
    return std::string(program->Run(inputs).message());
  };
  Decoding d;
  CHECK(message(d).empty());
  d.cache_rows[8 + 3] = 6;
  using Catch::Matchers::Contains;
  CHECK_THAT(message(d), Contains("cache row 6 of position 3 of sequence 1 is outside [0, 6)"));
  d = Decoding();
  d.lengths[2] = -1;
  CHECK_THAT(message(d), Contains("length -1 of sequence 2 is outside [0, 8)"));
}

}  // namespace
}  // namespace official::compute
