#include "official/recommendation/op/neural_factorization.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/bfloat16.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/testing/op_test.h"

namespace official::recommendation {
namespace {

namespace testing = compute::testing;
using Catch::Matchers::Contains;
using compute::DType;
using compute::Graph;
using compute::Node;
using compute::NumThreads;
using compute::SetNumThreads;
using compute::Shape;
using compute::Tensor;
using compute::TensorType;
using compute::Value;
using testing::Doubles;
using testing::RandomInts;
using testing::RandomTensor;

constexpr int kUsers = 7, kItems = 11;

struct Sizes {
  int64_t factors;
  std::vector<int64_t> layers;
};

// The whole, each half, sizes that fill no vector, sizes that fill two.
const std::vector<Sizes> kSizes = {{8, {64, 32, 16, 8}}, {5, {}},  {0, {6, 5, 3}},
                                   {20, {34, 18}},       {3, {8}}, {32, {64, 32, 32}}};

// Behind `first` inputs.
std::vector<Tensor> NetworkTensors(const Sizes& sizes) {
  std::vector<Tensor> tensors;
  const auto add = [&](Shape shape, double scale) {
    tensors.push_back(RandomTensor(std::move(shape), 100 + tensors.size(), -scale, scale));
  };
  int64_t inputs = sizes.factors;
  if (sizes.factors > 0) {
    add({kUsers, sizes.factors}, 1);
    add({kItems, sizes.factors}, 1);
  }
  if (!sizes.layers.empty()) {
    add({kUsers, sizes.layers[0] / 2}, 1);
    add({kItems, sizes.layers[0] / 2}, 1);
    inputs += sizes.layers.back();
  }
  for (size_t k = 1; k < sizes.layers.size(); ++k) {
    add({sizes.layers[k - 1], sizes.layers[k]}, 1 / std::sqrt(static_cast<double>(sizes.layers[k - 1])));
    add({sizes.layers[k]}, 0.5);
  }
  add({inputs, 1}, 1);
  add({1}, 0.5);
  return tensors;
}

NeuralFactorization NetworkOf(const Sizes& sizes, absl::Span<const Value> values) {
  NeuralFactorization network;
  if (sizes.factors > 0) {
    network.gmf_user = values[0];
    network.gmf_item = values[1];
    values.remove_prefix(2);
  }
  if (!sizes.layers.empty()) {
    network.mlp_user = values[0];
    network.mlp_item = values[1];
    values.remove_prefix(2);
  }
  for (size_t k = 1; k < sizes.layers.size(); ++k) {
    network.layers.push_back({values[0], values[1]});
    values.remove_prefix(2);
  }
  network.rating = {values[0], values[1]};
  return network;
}

double Rounded(double x) { return static_cast<float>(compute::BFloat16(static_cast<float>(x))); }

// `values` are of the tensors above. With kBFloat16 factors of the layers' products are rounded.
double ScoreOf(const Sizes& sizes, absl::Span<const Doubles> values, int64_t user, int64_t item,
               DType dtype = DType::kFloat32) {
  const auto factor = [=](double x) { return dtype == DType::kFloat32 ? x : Rounded(x); };
  Doubles last;
  if (sizes.factors > 0) {
    for (int64_t f = 0; f < sizes.factors; ++f) {
      last.push_back(values[0][user * sizes.factors + f] * values[1][item * sizes.factors + f]);
    }
    values.remove_prefix(2);
  }
  if (!sizes.layers.empty()) {
    const int64_t half = sizes.layers[0] / 2;
    Doubles x(values[0].begin() + user * half, values[0].begin() + (user + 1) * half);
    x.insert(x.end(), values[1].begin() + item * half, values[1].begin() + (item + 1) * half);
    values.remove_prefix(2);
    for (size_t k = 1; k < sizes.layers.size(); ++k) {
      Doubles y = values[1];
      for (size_t i = 0; i < x.size(); ++i) {
        for (size_t o = 0; o < y.size(); ++o) y[o] += factor(x[i]) * factor(values[0][i * y.size() + o]);
      }
      for (double& v : y) v = std::max(v, 0.0);
      x = y;
      values.remove_prefix(2);
    }
    last.insert(last.end(), x.begin(), x.end());
  }
  double score = values[1][0];
  for (size_t i = 0; i < last.size(); ++i) score += last[i] * values[0][i];
  return score;
}

std::vector<Tensor> Join(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Users, items and the network.
std::vector<Tensor> LossInputs(const Sizes& sizes, int64_t samples) {
  return Join({RandomInts({samples}, 1, kUsers), RandomInts({samples}, 2, kItems)}, NetworkTensors(sizes));
}

Tensor LabelsOf(int64_t samples) {
  Tensor labels(DType::kFloat32, {samples});
  for (int64_t i = 0; i < samples; ++i) labels.data<float>()[i] = i % 3 == 0 ? 1 : 0;
  return labels;
}

Value LossOf(const Sizes& sizes, absl::Span<const Value> in, const FactorizationLoss& loss,
             DType dtype = DType::kFloat32, const std::optional<Tensor>& given = std::nullopt) {
  const Value labels = in[0].graph()->Constant(given ? *given : LabelsOf(in[0].shape().dim(0)));
  NeuralFactorization network = NetworkOf(sizes, in.subspan(2));
  network.dtype = dtype;
  return NeuralFactorizationLoss(network, in[0], in[1], labels, loss);
}

testing::OpCase LossCase(const Sizes& sizes, int64_t samples, const FactorizationLoss& loss) {
  return {
      .op = op::NeuralFactorizationLoss,
      .inputs = LossInputs(sizes, samples),
      .build = [=](absl::Span<const Value> in) { return std::vector<Value>{LossOf(sizes, in, loss)}; },
      .reference =
          [=, labels = LabelsOf(samples)](const std::vector<Doubles>& in) {
            double sum = 0;
            for (int64_t i = 0; i < samples; ++i) {
              const double score = ScoreOf(sizes, absl::MakeConstSpan(in).subspan(2), static_cast<int64_t>(in[0][i]),
                                           static_cast<int64_t>(in[1][i]));
              const double z = std::clamp<double>(score - loss.shift, -loss.limit, loss.limit);
              sum += std::log1p(std::exp(z)) - labels.data<float>()[i] * z;
            }
            return std::vector<Doubles>{{sum / static_cast<double>(samples)}};
          },
  };
}

TEST_CASE("NeuralFactorizationScores scores each pair") {
  for (const Sizes& sizes : kSizes) {
    const int64_t users = 5, candidates = GENERATE(1, 33);
    testing::CheckForward({
        .op = op::NeuralFactorizationScores,
        .inputs =
            Join({RandomInts({users}, 1, kUsers), RandomInts({users, candidates}, 2, kItems)}, NetworkTensors(sizes)),
        .build =
            [=](absl::Span<const Value> in) {
              return std::vector<Value>{NeuralFactorizationScores(NetworkOf(sizes, in.subspan(2)), in[0], in[1])};
            },
        .reference =
            [=](const std::vector<Doubles>& in) {
              Doubles scores;
              for (int64_t i = 0; i < users * candidates; ++i) {
                scores.push_back(ScoreOf(sizes, absl::MakeConstSpan(in).subspan(2),
                                         static_cast<int64_t>(in[0][i / candidates]), static_cast<int64_t>(in[1][i])));
              }
              return std::vector<Doubles>{scores};
            },
    });
  }
}

// Scores of 6 users and 250 candidates each.
Tensor ScoresOf(const Sizes& sizes, const std::vector<Tensor>& inputs, int enough) {
  return testing::RunOnCpu(inputs, [&](absl::Span<const Value> in) {
    return std::vector<Value>{NeuralFactorizationScores(NetworkOf(sizes, in.subspan(2)), in[0], in[1], enough)};
  })[0];
}

TEST_CASE("Scores stop where enough items are ahead of the first, and are else the same for any batch") {
  constexpr float kSkipped = std::numeric_limits<float>::max();
  for (const Sizes& sizes : kSizes) {
    const auto inputs = Join({RandomInts({6}, 1, kUsers), RandomInts({6, 250}, 2, kItems)}, NetworkTensors(sizes));
    const Tensor all = ScoresOf(sizes, inputs, 0), some = ScoresOf(sizes, inputs, 3);
    int64_t stopped = 0;
    for (int64_t user = 0; user < 6; ++user) {
      const float *const want = all.data<float>() + 250 * user, *const got = some.data<float>() + 250 * user;
      const int32_t* const items = inputs[1].data<int32_t>() + 250 * user;
      std::set<int32_t> ahead;
      for (int64_t i = 0; i < 250; ++i) {
        if (items[i] != items[0] && want[i] >= want[0]) ahead.insert(items[i]);
      }
      const bool is_cut = got[249] == kSkipped;
      CHECK(is_cut == (ahead.size() >= 3));
      int64_t seen = 0;
      for (const int32_t item : ahead) seen += got[std::find(items, items + 250, item) - items] != kSkipped;
      CHECK(seen >= (is_cut ? 3 : 0));
      for (int64_t i = 0; i < 250; ++i) {
        if (got[i] == kSkipped) {
          ++stopped;
        } else {
          CHECK(got[i] == want[i]);
        }
      }
      // Equal items are equally good, wherever they stand.
      for (int64_t i = 0; i < 250; ++i) CHECK(want[i] == want[std::find(items, items + i, items[i]) - items]);
    }
    CHECK(stopped > 0);
    // One candidate alone: fewer than there are items.
    std::vector<Tensor> one = inputs;
    one[0] = Tensor::Of<int32_t>({1}, {inputs[0].data<int32_t>()[3]});
    one[1] = Tensor::Of<int32_t>({1, 1}, {inputs[1].data<int32_t>()[3 * 250 + 249]});
    CHECK(ScoresOf(sizes, one, 0).data<float>()[0] == all.data<float>()[3 * 250 + 249]);
  }
}

TEST_CASE("NeuralFactorizationLoss is the mean cross entropy, with its gradients") {
  for (const Sizes& sizes : kSizes) {
    const int64_t samples = GENERATE(1, 37, 150);
    const FactorizationLoss loss = {.shift = 1};
    testing::CheckForward(LossCase(sizes, samples, loss));
    if (samples == 37) testing::CheckGradients(LossCase(sizes, samples, loss));
  }
}

TEST_CASE("Scores beyond the limit have the limit's loss and no gradient") {
  const testing::OpCase test = LossCase(kSizes[0], 37, {.limit = 0.3f});
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

struct Run {
  Sizes sizes = kSizes[0];
  std::vector<Tensor> inputs = LossInputs(sizes, 7001);
  DType dtype = DType::kFloat32;
  int parts = 1, threads = 1;
  std::string kind = "cpu";
  std::optional<Tensor> labels = std::nullopt;
};

// Loss and gradients of a graph whose sums have so many parts.
std::vector<Tensor> LossAndGradients(const Run& run) {
  const int before = NumThreads();
  SetNumThreads(run.threads);
  const auto results = testing::RunOn(run.kind, run.inputs, [&](absl::Span<const Value> in) {
    in[0].graph()->set_batch_parts(run.parts);
    Node* const node = LossOf(run.sizes, in, {.shift = 1}, run.dtype, run.labels).node();
    std::vector<Value> all;
    for (int i = 0; i < node->num_outputs(); ++i) all.push_back(node->output(i));
    return all;
  });
  SetNumThreads(before);
  return results;
}

TEST_CASE("A variable that is not a number makes the loss none") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  const std::vector<Tensor> inputs = LossInputs(kSizes[0], 40);
  for (size_t i = 2; i < inputs.size(); ++i) {
    Run run = {.inputs = inputs, .dtype = dtype};
    run.inputs[i] = Tensor(DType::kFloat32, inputs[i].shape());
    std::fill_n(run.inputs[i].data<float>(), inputs[i].num_elements(), std::numeric_limits<float>::quiet_NaN());
    CAPTURE(dtype, i);
    CHECK(std::isnan(LossAndGradients(run)[0].data<float>()[0]));
  }
}

TEST_CASE("A variable that is not a number makes the scores none") {
  const Sizes& sizes = kSizes[0];
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  const std::vector<Tensor> inputs =
      Join({RandomInts({5}, 1, kUsers), RandomInts({5, 33}, 2, kItems)}, NetworkTensors(sizes));
  for (size_t i = 2; i < inputs.size(); ++i) {
    std::vector<Tensor> spoilt = inputs;
    spoilt[i] = Tensor(DType::kFloat32, inputs[i].shape());
    std::fill_n(spoilt[i].data<float>(), inputs[i].num_elements(), std::numeric_limits<float>::quiet_NaN());
    const Tensor scores = testing::RunOnCpu(spoilt, [&](absl::Span<const Value> in) {
      NeuralFactorization network = NetworkOf(sizes, in.subspan(2));
      network.dtype = dtype;
      return std::vector<Value>{NeuralFactorizationScores(network, in[0], in[1])};
    })[0];
    CAPTURE(dtype, i);
    for (int64_t s = 0; s < scores.num_elements(); ++s) REQUIRE(std::isnan(scores.data<float>()[s]));
  }
}

TEST_CASE("The number of threads changes no bit of loss and gradients") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  const std::vector<Tensor> want = LossAndGradients({.dtype = dtype, .parts = 4});
  for (const int threads : {2, 3}) {
    const std::vector<Tensor> results = LossAndGradients({.dtype = dtype, .parts = 4, .threads = threads});
    REQUIRE(results.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      CHECK(std::memcmp(results[i].raw_data(), want[i].raw_data(), want[i].num_bytes()) == 0);
    }
  }
}

TEST_CASE("Gradients of layers from many samples are the means of those from a few") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  // Each unit of samples has several tiles, and each batch part of one. Powers of two: rounding is the same.
  constexpr int64_t kSamples = 2048, kFew = 32;
  for (const Sizes& sizes : kSizes) {
    const std::vector<Tensor> inputs = LossInputs(sizes, kSamples);
    const std::vector<Tensor> all = LossAndGradients({.sizes = sizes, .inputs = inputs, .dtype = dtype});
    std::vector<Doubles> means;
    for (int64_t begin = 0; begin < kSamples; begin += kFew) {
      std::vector<Tensor> few = inputs;
      for (int i : {0, 1}) few[i] = Tensor::Of<int32_t>({kFew}, {inputs[i].data<int32_t>() + begin, kFew});
      Run run = {.sizes = sizes, .inputs = few, .dtype = dtype};
      run.labels = Tensor::Of<float>({kFew}, {LabelsOf(kSamples).data<float>() + begin, kFew});
      const std::vector<Tensor> part = LossAndGradients(run);
      means.resize(part.size());
      for (size_t k = 0; k < part.size(); ++k) {
        means[k].resize(part[k].num_elements());
        for (size_t i = 0; i < means[k].size(); ++i) means[k][i] += part[k].data<float>()[i] / (kSamples / kFew);
      }
    }
    for (size_t k = 0; k < all.size(); ++k) {
      if (all[k].num_elements() != static_cast<int64_t>(means[k].size())) continue;  // of the samples
      CAPTURE(dtype, k);
      double distance = 0, norm = 0;
      for (size_t i = 0; i < means[k].size(); ++i) {
        distance += std::pow(all[k].data<float>()[i] - means[k][i], 2);
        norm += means[k][i] * means[k][i];
      }
      CHECK(std::sqrt(distance / norm) < 1e-5);
    }
  }
}

TEST_CASE("A part of the batch without samples adds nothing, whatever memory it finds") {
  const Sizes& sizes = kSizes[0];
  const auto gradients = [&](int parts) {
    return testing::RunOn("cpu", LossInputs(sizes, 2), [&](absl::Span<const Value> in) {
      Graph& graph = *in[0].graph();
      graph.set_batch_parts(parts);
      std::vector<Value> others(in.begin(), in.end());
      for (int i : {0, 1}) others[i] = graph.Constant(LossInputs(sizes, 7001)[i]);
      std::vector<Value> all = {LossOf(sizes, others, {})};  // leaves numbers in memory
      Node* const node = LossOf(sizes, in, {}).node();
      for (int i = 0; i < node->num_outputs(); ++i) all.push_back(node->output(i));
      return all;
    });
  };
  const std::vector<Tensor> want = gradients(1), got = gradients(4);
  REQUIRE(got.size() == want.size());
  for (size_t i = 1; i < want.size(); ++i) {
    for (int64_t e = 0; e < want[i].num_elements(); ++e) {
      REQUIRE(got[i].data<float>()[e] == Approx(want[i].data<float>()[e]).margin(1e-7));
    }
  }
}

// ---- bfloat16 ----

TEST_CASE("With bfloat16 the scores are those of rounded factors") {
  for (const Sizes& sizes : kSizes) {
    const int64_t samples = 37;
    const std::vector<Tensor> inputs =
        Join({RandomInts({samples}, 1, kUsers), RandomInts({samples, 1}, 2, kItems)}, NetworkTensors(sizes));
    const Tensor scores = testing::RunOnCpu(inputs, [&](absl::Span<const Value> in) {
      NeuralFactorization network = NetworkOf(sizes, in.subspan(2));
      network.dtype = DType::kBFloat16;
      return std::vector<Value>{NeuralFactorizationScores(network, in[0], in[1])};
    })[0];
    std::vector<Doubles> values;
    for (const Tensor& tensor : inputs) values.push_back(testing::ToDoubles(tensor));
    double distance = 0, distance_from_float = 0, norm = 0;
    for (int64_t i = 0; i < samples; ++i) {
      const auto score = [&](DType dtype) {
        return ScoreOf(sizes, absl::MakeConstSpan(values).subspan(2), static_cast<int64_t>(values[0][i]),
                       static_cast<int64_t>(values[1][i]), dtype);
      };
      const double want = score(DType::kBFloat16);
      distance += std::pow(scores.data<float>()[i] - want, 2);
      distance_from_float += std::pow(scores.data<float>()[i] - score(DType::kFloat32), 2);
      norm += want * want;
    }
    // A sum that lies between two bfloat16 may be rounded the other way.
    CHECK(std::sqrt(distance / norm) < 3e-4);
    if (sizes.layers.size() > 1) CHECK(distance_from_float > 16 * distance);
  }
}

// Every second output of a layer is greater than zero, the others are not, however the factors are rounded.
std::vector<Tensor> WithLargeBiases(const Sizes& sizes, std::vector<Tensor> inputs) {
  size_t bias = 2 + (sizes.factors > 0 ? 2 : 0) + 3;
  for (size_t k = 1; k < sizes.layers.size(); ++k, bias += 2) {
    for (int64_t i = 0; i < sizes.layers[k]; ++i) inputs[bias].data<float>()[i] = i % 2 == 0 ? 40 : -40;
  }
  return inputs;
}

TEST_CASE("With bfloat16 the gradients are near those of float32") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  for (const Sizes& sizes : kSizes) {
    const int64_t samples = GENERATE(37, 150);
    const std::vector<Tensor> inputs = WithLargeBiases(sizes, LossInputs(sizes, samples));
    const std::vector<Tensor> exact = LossAndGradients({.sizes = sizes, .inputs = inputs, .kind = kind});
    const std::vector<Tensor> rounded =
        LossAndGradients({.sizes = sizes, .inputs = inputs, .dtype = DType::kBFloat16, .kind = kind});
    REQUIRE(rounded.size() == exact.size());
    for (size_t k = 0; k < exact.size(); ++k) {
      const Doubles want = testing::ToDoubles(exact[k]), got = testing::ToDoubles(rounded[k]);
      double distance = 0, norm = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        distance += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
      }
      INFO("output " << k << " on " << kind << " of a network with " << sizes.layers.size() << " layers");
      CHECK(std::sqrt(distance / norm) < 0.02);
    }
  }
}

TEST_CASE("Users and items outside the tables, and layers that do not fit, are errors") {
  const Sizes& sizes = kSizes[0];
  std::vector<TensorType> types;
  std::vector<Tensor> inputs = LossInputs(sizes, 4);
  for (const Tensor& tensor : inputs) types.push_back(tensor.type());
  const auto build = [&](absl::Span<const Value> in) { return std::vector<Value>{LossOf(sizes, in, {})}; };
  CHECK(testing::BuildStatus(types, build).ok());
  inputs[1].data<int32_t>()[2] = kItems;
  Graph graph;
  std::vector<Value> feeds;
  for (const Tensor& tensor : inputs) feeds.push_back(graph.Input(absl::StrCat(feeds.size()), tensor.type()));
  for (const std::string& kind : testing::KindsUnderTest()) {
    const auto device = compute::MakeDevice(kind).value();
    const absl::Status status = compute::Evaluate(graph, {feeds, build(feeds), {}}, inputs, *device).status();
    CHECK(absl::IsInvalidArgument(status));
    const std::string where = kind == compute::kCudaKind ? "" : " at position 2";
    CHECK_THAT(std::string(status.message()), Contains("item 11" + where + " is outside [0, 11)"));
  }
  types[6].shape = {64, 31};
  CHECK_THAT(std::string(testing::BuildStatus(types, build).message()), Contains("fit together"));
}

}  // namespace
}  // namespace official::recommendation
