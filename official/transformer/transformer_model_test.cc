#include "official/transformer/transformer_model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "official/transformer/packing.h"
#include "official/transformer/small_network.h"
#include "utils/compute/program/program.h"
#include "utils/train/step.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

// With the same words of source and target.
train::BuiltModel Build(const ModelParams& params, train::Mode mode) {
  const data::ElementSpec types{
      .features = {{"inputs", {DType::kInt32, {64}}}, {"input_offsets", {DType::kInt32, {3}}}},
      .labels = {{"targets", {DType::kInt32, {64}}}, {"target_offsets", {DType::kInt32, {3}}}}};
  return train::BuildModel(TransformerModel(params), mode, DType::kFloat32, types).value();
}

TEST_CASE("The networks have the official numbers of variables and parameters") {
  const auto [set, parameters] = GENERATE(std::pair<const char*, int64_t>{"tiny", 1354496}, std::pair{"base", 61362176},
                                          std::pair{"big", 210804736});
  INFO(set);
  int64_t found = 0, trainable = 0, slots = 0;
  const train::BuiltModel built = Build(ParamsOf(set, false).value(), train::Mode::kTrain);
  for (const compute::VariableSpec& v : built.graph->variables()) {
    if (absl::StartsWith(v.name, absl::StrCat("model/get_train_op/", kNetworkScope))) ++slots;
    if (!v.trainable) continue;
    CHECK(absl::StartsWith(v.name, kNetworkScope));
    ++trainable;
    found += v.type.shape.num_elements();
  }
  CHECK(found == parameters);
  CHECK(trainable == 185);
  CHECK(slots == 2 * 185);
}

TEST_CASE("Variables have the names of the official checkpoints") {
  const train::BuiltModel built = Build(ParamsOf("tiny", false).value(), train::Mode::kTrain);
  std::vector<std::string> names;
  for (const compute::VariableSpec& v : built.graph->variables()) names.push_back(v.name);
  for (const char* name : {
           "model/Transformer/embedding_shared_weights/embedding_and_softmax/weights",
           "model/Transformer/encoder_stack/layer_0/self_attention/layer_normalization/layer_norm_scale",
           "model/Transformer/encoder_stack/layer_5/self_attention/self_attention/output_transform/kernel",
           "model/Transformer/encoder_stack/layer_3/ffn/feed_foward_network/filter_layer/bias",
           "model/Transformer/encoder_stack/layer_normalization/layer_norm_bias",
           "model/Transformer/decoder_stack/layer_2/encdec_attention/layer_normalization/layer_norm_scale",
           "model/Transformer/decoder_stack/layer_2/encdec_attention/attention/q/kernel",
           "model/Transformer/decoder_stack/layer_2/ffn/layer_normalization/layer_norm_bias",
           "model/Transformer/decoder_stack/layer_normalization/layer_norm_scale",
           "model/get_train_op/model/Transformer/decoder_stack/layer_normalization/layer_norm_scale/Adam_1",
           "model/get_train_op/beta1_power",
           "model/get_train_op/beta2_power",
           "global_step",
       }) {
    CHECK_THAT(names, Catch::Matchers::VectorContains(std::string(name)));
  }
}

data::Batch TwoPairs() {
  data::Batch batch;
  batch.num_examples = 2;
  batch.features = {Tensor::Of<int32_t>({2, 4}, {2, 3, 4, 1, 5, 6, 1, 0}), Tensor::Of<int32_t>({2}, {4, 3})};
  batch.labels = {Tensor::Of<int32_t>({2, 3}, {7, 8, 1, 9, 1, 0}), Tensor::Of<int32_t>({2}, {3, 2})};
  return batch;
}

TEST_CASE("Logits are upstream's") {
  const ModelParams params = SmallParams();
  const train::BatchShare share = PackedShare(train::Mode::kEval, TwoPairs(), {0, 2});
  compute::Graph graph;
  const auto constants = [&](const data::Tensors& tensors) {
    return std::vector<compute::Value>{graph.Constant(tensors[0]), graph.Constant(tensors[1])};
  };
  const compute::Value logits = Logits({.graph = graph,
                                        .mode = train::Mode::kEval,
                                        .dtype = DType::kFloat32,
                                        .features = constants(share.features),
                                        .labels = constants(share.labels),
                                        .random_state = {}},
                                       params);
  REQUIRE(graph.status().ok());
  const auto device = compute::MakeDevice("cpu").value();
  compute::VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  SetVariables(variables);
  const auto program = compute::Program::Compile(graph, {{}, {logits}, {}}, *device, variables).value();
  REQUIRE(program->Run({}).ok());
  const Tensor result = program->Fetch(0).value();
  const auto check_row = [&](int row, const std::vector<double>& official) {
    for (int i = 0; i < 11; ++i) CHECK(result.data<float>()[row * 11 + i] == Approx(official[i]).margin(1e-5));
  };
  check_row(0, {.99288, -.455834, -1.699939, -2.180995, -1.683072, -.429671, 1.016595, 2.006545, 2.09582, 1.244348,
                -.165672});
  check_row(2, {1.089466, -.336379, -1.611235, -2.162859, -1.743644, -.541762, .903299, 1.942898, 2.110392, 1.330598,
                -.046459});
  check_row(
      4, {-.278498, .523136, 1.089951, 1.167522, .721029, -.049111, -.797206, -1.187461, -1.044703, -.43301, .373047});
  // With what is predicted behind the second sentence.
  double sum = 0, magnitude = 0;
  for (int i = 0; i < 6 * 11; ++i) {
    sum += result.data<float>()[i];
    magnitude += std::abs(result.data<float>()[i]);
  }
  CHECK(sum == Approx(3.9007516).margin(1e-5));
  CHECK(magnitude == Approx(74.59544).epsilon(1e-6));
}

TEST_CASE("Training follows upstream's") {
  const train::Model model = TransformerModel(SmallParams());
  const train::BatchShare share = PackedShare(train::Mode::kTrain, TwoPairs(), {0, 2});
  data::ElementSpec types;
  for (const Tensor& t : share.features) types.features.push_back({absl::StrCat(types.features.size()), t.type()});
  for (const Tensor& t : share.labels) types.labels.push_back({absl::StrCat(types.labels.size()), t.type()});
  const train::BuiltModel built = train::BuildModel(model, train::Mode::kTrain, DType::kFloat32, types).value();
  const auto device = compute::MakeDevice("cpu").value();
  compute::VariableStore variables(*device);
  REQUIRE(variables.Create(*built.graph, 1).ok());
  SetVariables(variables);
  const auto program = compute::Program::Compile(*built.graph, built.roots, *device, variables).value();
  const double losses[] = {1.5427353, 1.5427353, 1.5751812, 1.413456, 1.3497523};
  for (int step = 0; step < 5; ++step) {
    const double rate = model.learning_rate(step);
    CHECK(rate == Approx(.088388346 * std::min(step, 4)).epsilon(1e-7));
    const std::vector<Tensor> feeds = {share.features[0],
                                       share.features[1],
                                       share.labels[0],
                                       share.labels[1],
                                       Tensor::Of<int64_t>({3}, {1, step, 0}),
                                       Tensor::Scalar(static_cast<float>(step < 4 ? rate : 0.0))};
    REQUIRE(program->Run(feeds).ok());
    CHECK(program->Fetch(0)->scalar<float>() == Approx(losses[step]).epsilon(2e-6));
  }
  const auto check = [&](const char* name, int begin, const std::vector<double>& official) {
    const Tensor value = variables.Read(absl::StrCat(kNetworkScope, name)).value();
    for (int i = 0; i < 4; ++i) CHECK(value.data<float>()[begin + i] == Approx(official[i]).margin(2e-6));
  };
  check("embedding_shared_weights/embedding_and_softmax/weights", 0, {.557797, .377921, .237634, .170943});
  check("embedding_shared_weights/embedding_and_softmax/weights", 16, {-.094691, .668977, .48657, .273885});
  check("decoder_stack/layer_1/ffn/feed_foward_network/output_layer/bias", 0, {.222355, -.376904, -.182947, -.088197});
}

TEST_CASE("The learning rate rises for some steps and falls with the root of all") {
  const auto rates = [](const char* set, bool multi_gpu) {
    const train::LearningRateFn rate = LearningRate(ParamsOf(set, multi_gpu).value());
    std::vector<double> rates;
    for (const int64_t step : {0, 1, 100, 4000, 8000, 16000}) rates.push_back(rate(step));
    return rates;
  };
  const auto check = [](const std::vector<double>& got, const std::vector<double>& official) {
    for (size_t i = 0; i < official.size(); ++i) CHECK(got[i] == Approx(official[i]).epsilon(2e-7));
  };
  check(rates("tiny", false), {0, 1.7469281e-7, 1.7469283e-5, 6.9877127e-4, 1.3975425e-3, 2.7950851e-3});
  check(rates("base", false), {0, 4.3673204e-8, 4.3673208e-6, 1.7469282e-4, 3.4938563e-4, 6.9877127e-4});
  check(rates("big", false), {0, 3.0881623e-8, 3.0881620e-6, 1.2352648e-4, 2.4705296e-4, 4.9410592e-4});
  check(rates("base", true), {0, 1.2352648e-7, 1.2352648e-5, 4.9410592e-4, 9.8821183e-4, 6.9877127e-4});
  check(rates("big", true), {0, 8.7346415e-8, 8.7346407e-6, 3.4938563e-4, 6.9877127e-4, 4.9410592e-4});
}

// Seen in TensorFlow 2.15.1, in a graph of upstream's get_learning_rate run as it is written, without Grappler: that
// one divides by the warmup steps by multiplying with their reciprocal.
TEST_CASE("The learning rate has TensorFlow's bits") {
  const train::LearningRateFn base = LearningRate(ParamsOf("base", false).value());
  const train::LearningRateFn big = LearningRate(ParamsOf("big", true).value());
  const std::vector<int64_t> steps = {1, 2, 7, 1234, 7999, 8001, 15999, 16001, 54321, 123457, 300001};
  const std::vector<float> base_seen = {0x1.772664p-25f, 0x1.772664p-24f, 0x1.484198p-22f, 0x1.c415c4p-15f,
                                        0x1.6e4fc4p-12f, 0x1.6e673ap-12f, 0x1.6e55ap-11f,  0x1.6e588ep-11f,
                                        0x1.8da8c2p-12f, 0x1.07c6fp-12f,  0x1.526d08p-13f};
  const std::vector<float> big_seen = {0x1.772666p-24f, 0x1.772666p-23f, 0x1.484198p-21f, 0x1.c415c4p-14f,
                                       0x1.6e4fc6p-11f, 0x1.6e55ap-11f,  0x1.030fd8p-11f, 0x1.030bb2p-11f,
                                       0x1.193002p-12f, 0x1.750982p-13f, 0x1.de9b44p-14f};
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(static_cast<float>(base(steps[i])) == base_seen[i]);
    CHECK(static_cast<float>(big(steps[i])) == big_seen[i]);
  }
}

}  // namespace
}  // namespace official::transformer
