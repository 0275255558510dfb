#include "official/recommendation/neumf_model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>

#include "utils/compute/program/program.h"
#include "utils/train/step.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;

const Tensor kUsers = Tensor::Of<int32_t>({4}, {0, 1, 2, 3}), kItems = Tensor::Of<int32_t>({4}, {5, 4, 3, 2});

// The model in one mode, on a device. In float16 it is computed op by op.
class Built {
 public:
  Built(const ModelConfig& config, train::Mode mode, const data::ElementSpec& types, compute::Device& device,
        compute::VariableStore& variables, DType dtype)
      : model_(train::BuildModel(NeuMfModel(config), mode, dtype, types).value()) {
    REQUIRE(variables.Create(*model_.graph, 1).ok());
    program_ = compute::Program::Compile(*model_.graph, model_.roots, device, variables).value();
    if (model_.settle == nullptr) return;
    settle_ = compute::Program::Compile(*model_.graph, {.feeds = {}, .fetches = {}, .targets = {model_.settle}}, device,
                                        variables)
                  .value();
  }

  const compute::Graph& graph() const { return *model_.graph; }
  Tensor Run(const std::vector<Tensor>& feeds) {
    REQUIRE(program_->Run(feeds).ok());
    return program_->Fetch(0).value().Clone();
  }
  void Settle() {
    if (settle_ != nullptr) REQUIRE(settle_->Run({}).ok());
  }

 private:
  train::BuiltModel model_;
  std::unique_ptr<compute::Program> program_, settle_;
};

// Element i is 0.3 * sin(0.7 * i + length of the name).
void Fill(const compute::Graph& graph, compute::VariableStore& variables) {
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!spec.trainable) continue;
    Tensor value(spec.type);
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      value.data<float>()[i] =
          static_cast<float>(0.3 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(spec.name.size())));
    }
    REQUIRE(variables.Write(spec.name, value).ok());
  }
}

void CheckClose(const Tensor& got, const std::vector<double>& want, double margin = 2e-6) {
  for (size_t i = 0; i < want.size(); ++i) CHECK(got.data<float>()[i] == Approx(want[i]).margin(margin));
}

// What tensorflow/models at d64bcfe3 computes under TensorFlow 1.10.1.
TEST_CASE("Scores, loss and one step of Adam are the official ones") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kFloat16);
  const double margin = dtype == DType::kFloat32 ? 2e-6 : 1e-3;  // of scores and losses
  const auto device = compute::MakeDevice("cpu").value();
  compute::VariableStore variables(*device);
  const data::ElementSpec pairs{.features = {{"user_id", kUsers.type()}, {"item_id", kItems.type()}}, .labels = {}};
  data::ElementSpec examples = pairs;
  examples.labels = {{"", {DType::kFloat32, {4}}}};
  const ModelConfig config{.num_users = 4, .num_items = 6};
  Built predict(config, train::Mode::kPredict, pairs, *device, variables, dtype);
  Built training(config, train::Mode::kTrain, examples, *device, variables, dtype);
  Fill(training.graph(), variables);
  CheckClose(predict.Run({kUsers, kItems}), {.263214, .426456, .337329, .351224}, margin);
  const std::vector<Tensor> feeds = {kUsers, kItems, Tensor::Of<float>({4}, {1, 0, 1, 0}), Tensor(DType::kInt64, {3}),
                                     Tensor::Scalar(0.001f)};
  CHECK(training.Run(feeds).scalar<float>() == Approx(.7684329).epsilon(5e-6).margin(margin));
  training.Settle();
  CheckClose(variables.Read("rating/bias").value(), {-.298997});
  CheckClose(variables.Read("dense/kernel").value(), {-.160972, .03997, .222113});
  CheckClose(variables.Read("embedding/embeddings").value(), {.272884, .289346, .168194});
  CheckClose(predict.Run({kUsers, kItems}), {.317019, .39507, .398535, .3268}, margin);
  CHECK(training.Run(feeds).scalar<float>() == Approx(.7445456).epsilon(5e-6).margin(margin));
}

TEST_CASE("The loss is the mean cross entropy of either probability") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kFloat16);  // the scores are numbers of both
  const auto device = compute::MakeDevice("cpu").value();
  compute::VariableStore variables(*device);
  const compute::TensorType ids(DType::kInt32, {3}), labels(DType::kFloat32, {3});
  const data::ElementSpec examples{.features = {{"user_id", ids}, {"item_id", ids}}, .labels = {{"", labels}}};
  // One factor: the scores of user 0 are the items' factors.
  ModelConfig config{.num_users = 1, .num_items = 3, .num_factors = 1, .layers = {}};
  // What upstream gives for the first two; by hand for a probability of less than 1e-7, which is kept there.
  double want = 0.55050254 * 2 + std::log1p(std::exp(31.0));
  SECTION("softmax") {}
  SECTION("sigmoid") {
    config.loss = Loss::kSigmoid;
    want = std::log1p(std::exp(-0.5)) + std::log1p(std::exp(-1.0)) - std::log(1e-7);
  }
  Built training(config, train::Mode::kTrain, examples, *device, variables, dtype);
  REQUIRE(variables.Write("embedding/embeddings", Tensor::Of<float>({1, 1}, {1})).ok());
  REQUIRE(variables.Write("embedding_1/embeddings", Tensor::Of<float>({3, 1}, {0.5, -1, -30})).ok());
  REQUIRE(variables.Write("rating/kernel", Tensor::Of<float>({1, 1}, {1})).ok());
  const Tensor loss =
      training.Run({Tensor::Of<int32_t>({3}, {0, 0, 0}), Tensor::Of<int32_t>({3}, {0, 1, 2}),
                    Tensor::Of<float>({3}, {1, 0, 1}), Tensor(DType::kInt64, {3}), Tensor::Scalar(0.001f)});
  CHECK(loss.scalar<float>() == Approx(want / 3).epsilon(1e-6));
}

// HR and NDCG of scores with the held-out item's first.
std::pair<double, double> Metrics(const std::vector<std::vector<float>>& scores, int k) {
  compute::Graph graph;
  Tensor rows(DType::kFloat32, {static_cast<int64_t>(scores.size()), static_cast<int64_t>(scores[0].size())});
  for (size_t i = 0; i < scores.size(); ++i) {
    std::copy(scores[i].begin(), scores[i].end(), rows.data<float>() + i * scores[i].size());
  }
  const std::vector<train::MeanMetric> metrics = RankingMetrics(graph.Constant(rows), k);
  const auto device = compute::MakeDevice("cpu").value();
  const auto sums =
      compute::Evaluate(graph, {{}, {metrics[0].total, metrics[0].count, metrics[1].total}, {}}, {}, *device).value();
  const double users = sums[1].scalar<float>();
  return {sums[0].scalar<float>() / users, sums[2].scalar<float>() / users};
}

// Upstream's own tests of the formula.
TEST_CASE("HR and NDCG are the official ones") {
  const std::vector<std::vector<float>> scores = {{1, 2, 0}, {2, 1, 0}, {0, 2, 1}, {2, 3, 4}};
  const double want[3][2] = {{.25, .25}, {.5, .40773244}, {1, .65773244}};
  for (int k = 1; k <= 3; ++k) {
    const auto [hr, ndcg] = Metrics(scores, k);
    CHECK(hr == Approx(want[k - 1][0]));
    CHECK(ndcg == Approx(want[k - 1][1]));
  }
}

TEST_CASE("Repeated items do not count under MLPerf's rule") {
  CHECK(Metrics({{1, 2, 2, 3}, {3, 1, 0, 2}, {0, 2, 3, 2}, {3, 2, 4, 2}}, 3).first == Approx(.5));
  const double log2 = std::log(2.0), log3 = std::log(3.0), log4 = std::log(4.0), log5 = std::log(5.0);
  const auto plain = Metrics({{1, 2, 2, 3}, {3, 1, 0, 2}, {0, 2, 3, 2}, {3, 2, 4, 2}}, 4);
  CHECK(plain.first == 1);
  CHECK(plain.second == Approx((1 + log2 / log3 + 2 * log2 / log5) / 4));
  const float no = -std::numeric_limits<float>::infinity();
  const auto masked = Metrics({{1, 2, no, 3}, {3, 1, 0, 2}, {0, 2, 3, no}, {3, 2, 4, 2}}, 3);
  CHECK(masked.first == 1);
  CHECK(masked.second == Approx((1 + log2 / log3 + 2 * log2 / log4) / 4));
}

}  // namespace
}  // namespace official::recommendation
