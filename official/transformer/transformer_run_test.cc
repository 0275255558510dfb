// The whole of transformer_main but for its command line, on pairs that are easy to learn.

#include "official/transformer/transformer_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/protos/example.pb.h"
#include "utils/run/small_run.h"

namespace official::transformer {
namespace {

using Catch::Matchers::Contains;

constexpr int kVocabSize = 20;

// Sentences of 3 to 20 ids; the translation has each one plus 1, in the same order.
void WritePairs(const std::string& path, int pairs, uint64_t seed) {
  const auto writer = data::TFRecordWriter::Open(path).value();
  for (int n = 0; n < pairs; ++n) {
    tensorflow::Example example;
    auto& features = *example.mutable_features()->mutable_feature();
    auto& inputs = *features["inputs"].mutable_int64_list();
    auto& targets = *features["targets"].mutable_int64_list();
    const int length = 2 + static_cast<int>(compute::Philox(seed, n, 0)[1] % 18);
    for (int i = 0; i < length; ++i) {
      const int id = 2 + static_cast<int>(compute::Philox(seed, n, i)[0] % (kVocabSize - 3));
      inputs.add_value(id);
      targets.add_value(id + 1);
    }
    inputs.add_value(1);
    targets.add_value(1);
    REQUIRE(writer->Write(example.SerializeAsString()).ok());
  }
  REQUIRE(writer->Close().ok());
}

TransformerConfig SmallConfig(int train_pairs = 200) {
  TransformerConfig config{run::SmallRun(/*batch_size=*/128), "small", {}, /*static_batch=*/false, std::nullopt, 1000};
  config.params.vocab_size = kVocabSize;
  config.params.max_length = 24;
  config.params.hidden_size = 16;
  config.params.num_heads = 2;
  config.params.filter_size = 32;
  config.params.num_hidden_layers = 1;
  config.params.learning_rate_warmup_steps = 50;
  config.base.log_every_n_steps = 1;
  REQUIRE(files::MakeDirectories(config.base.data_dir).ok());
  WritePairs(config.base.data_dir + "/wmt32k-train-00001-of-00001", train_pairs, 1);
  WritePairs(config.base.data_dir + "/wmt32k-dev-00001-of-00001", 30, 2);
  return config;
}

std::string Run(const TransformerConfig& config) {
  std::ostringstream out;
  const absl::Status status = RunTransformer(config, out);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return out.str();
}

absl::Status RunStatus(const TransformerConfig& config) {
  std::ostringstream out;
  return RunTransformer(config, out);
}

// The evaluations that a run has printed.
std::vector<nlohmann::json> Evaluations(const std::string& text) {
  std::vector<nlohmann::json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TransformerConfig InNewModelDir(TransformerConfig config) {
  config.base.model_dir = run::NewDirectory("model");
  return config;
}

TEST_CASE("A translation is learned") {
  TransformerConfig config = SmallConfig(1000);
  config.params.layer_postprocess_dropout = config.params.attention_dropout = config.params.relu_dropout = 0;
  config.params.hidden_size = 32;
  config.params.label_smoothing = 0;
  config.params.learning_rate = 0.3;
  config.train_steps = 400;
  config.steps_between_evals = 200;
  const std::vector<nlohmann::json> evaluations = Evaluations(Run(config));
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0]["global_step"] == 200);
  CHECK(evaluations[1]["global_step"] == 400);
  CHECK(evaluations[1]["metrics/accuracy"].get<double>() > 0.9);
  CHECK(evaluations[1]["metrics/accuracy"] <= evaluations[1]["metrics/accuracy_top5"]);
  CHECK(evaluations[1]["metrics/neg_log_perplexity"].get<double>() > -0.5);
  CHECK(evaluations[1]["loss"].get<double>() < evaluations[0]["loss"].get<double>());
}

// Dropout is on; shares have unlike numbers of tokens.
TEST_CASE("Replicas have one device's curve") {
  const int n = GENERATE(2, 3);
  CAPTURE(n);
  const TransformerConfig one = SmallConfig();
  TransformerConfig several = InNewModelDir(one);
  several.base.batch_size = one.base.batch_size / n * n;
  several.performance.num_cpu_devices = n;
  TransformerConfig same = InNewModelDir(one);
  same.base.batch_size = several.base.batch_size;
  Run(same);
  Run(several);
  const std::vector<double> want = run::Losses(same), losses = run::Losses(several);
  REQUIRE(losses.size() == want.size());
  CHECK(losses.size() > 15);
  for (size_t i = 0; i < want.size(); ++i) CHECK(losses[i] == Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("A run that was stopped ends with the same bits") {
  const auto dtype = GENERATE(compute::DType::kFloat32, compute::DType::kBFloat16);
  TransformerConfig whole = SmallConfig();
  whole.performance.dtype = dtype;
  whole.base.train_epochs = 2;
  TransformerConfig stopped = InNewModelDir(whole);
  Run(whole);
  for (const int64_t step : {1, 5, 22}) {
    stopped.performance.max_train_steps = step;
    Run(stopped);
  }
  stopped.performance.max_train_steps.reset();
  Run(stopped);
  run::CheckSameBits(whole, stopped);
}

TEST_CASE("Static and synthetic batches") {
  TransformerConfig config = SmallConfig();
  config.static_batch = true;
  CHECK(Evaluations(Run(config)).size() == 1);
  TransformerConfig synthetic = InNewModelDir(config);
  synthetic.performance.use_synthetic_data = true;
  synthetic.performance.max_train_steps = 3;
  const auto evaluations = Evaluations(Run(synthetic));
  CHECK(evaluations[0]["global_step"] == 3);
}

TEST_CASE("Data and parameters that do not fit are refused") {
  TransformerConfig config = SmallConfig();
  config.params.vocab_size = kVocabSize - 1;
  CHECK_THAT(std::string(RunStatus(config).message()),
             Contains("ids up to 19, but vocab_size is 19") && Contains("--params_override=vocab_size="));
  config.params.vocab_size = kVocabSize;
  config.base.batch_size = 16;
  const absl::Status too_small = RunStatus(config);
  CHECK(absl::IsInvalidArgument(too_small));
  CHECK_THAT(std::string(too_small.message()), Contains("16") && Contains("24"));
  config.base.batch_size = 128;
  Run(config);
  config.params.hidden_size = 32;
  config.base.train_epochs = 2;
  CHECK_THAT(std::string(RunStatus(config).message()), Contains("--params_override that it was trained with"));
  config.base.data_dir = run::NewDirectory("empty");
  CHECK(absl::IsNotFound(RunStatus(InNewModelDir(config))));
}

}  // namespace
}  // namespace official::transformer
