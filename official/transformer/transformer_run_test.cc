// The whole of transformer_main but for its command line, on pairs that are easy to learn.

#include "official/transformer/transformer_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "official/transformer/bleu/bleu.h"
#include "official/transformer/dataset.h"
#include "official/transformer/text/vocabulary.h"
#include "official/transformer/translate_run.h"
#include "utils/compute/core/random.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/event.pb.h"
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
  TransformerConfig config;
  static_cast<run::Config&>(config) = run::SmallRun(/*batch_size=*/128);
  config.param_set = "small";
  config.params.vocab_size = kVocabSize;
  config.params.max_length = 24;
  config.params.hidden_size = 16;
  config.params.num_heads = 2;
  config.params.filter_size = 32;
  config.params.num_hidden_layers = 1;
  config.params.learning_rate_warmup_steps = 50;
  config.train.log_every_n_steps = 1;
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
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object["event"] == "evaluation") all.push_back(object);
  }
  return all;
}

TransformerConfig InNewModelDir(TransformerConfig config) {
  config.train.model_dir = run::NewDirectory("model");
  return config;
}

std::string WriteText(absl::string_view text) {
  const std::string path = run::NewDirectory("text");
  REQUIRE(files::WriteFileAtomically(path, text).ok());
  return path;
}

// A text of the pairs' language and its translation, where the letters from a on stand for the ids from 2 on; in
// capital letters the last word is another.
void AddBleu(TransformerConfig& config) {
  std::vector<std::string> subtokens = {"<pad>", "<EOS>"};
  for (char letter = 'a'; static_cast<int>(subtokens.size()) < kVocabSize; ++letter) {
    subtokens.push_back(absl::StrCat(std::string(1, letter), "_"));
  }
  config.vocab_file = run::NewDirectory("vocab");
  REQUIRE(WriteVocabulary(*config.vocab_file, subtokens).ok());
  config.bleu_source = WriteText("a b c d e f\n h g f e d c b a \nb d f h k m o\n");
  config.bleu_ref = WriteText("b c d e f g\ni h g f e d c b\nc e g i l n P\n");
}

TransformerConfig EasyToLearn() {
  TransformerConfig config = SmallConfig(1000);
  config.params.layer_postprocess_dropout = config.params.attention_dropout = config.params.relu_dropout = 0;
  config.params.hidden_size = 32;
  config.params.label_smoothing = 0;
  config.params.learning_rate = 0.3;
  config.train_steps = 400;
  config.steps_between_evals = 200;
  return config;
}

// The values of a tag in the event files of a directory, by step.
std::vector<std::pair<int64_t, float>> Events(const std::string& directory, const std::string& tag) {
  std::vector<std::pair<int64_t, float>> values;
  const std::vector<std::string> names = files::ListDirectory(directory).value();
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "events.")) continue;
    const auto reader = data::TFRecordReader::Open(directory + "/" + name).value();
    for (std::string record; reader->Next(&record).value();) {
      tensorflow::Event event;
      REQUIRE(event.ParseFromString(record));
      for (const auto& value : event.summary().value()) {
        if (value.tag() == tag) values.emplace_back(event.step(), value.simple_value());
      }
    }
  }
  return values;
}

TEST_CASE("A translation is learned") {
  const TransformerConfig config = EasyToLearn();
  const std::vector<nlohmann::json> evaluations = Evaluations(Run(config));
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0]["global_step"] == 200);
  CHECK(evaluations[1]["global_step"] == 400);
  CHECK(evaluations[1]["metrics/accuracy"].get<double>() > 0.9);
  CHECK(evaluations[1]["metrics/accuracy"] <= evaluations[1]["metrics/accuracy_top5"]);
  CHECK(evaluations[1]["metrics/neg_log_perplexity"].get<double>() > -0.5);
  CHECK(evaluations[1]["loss"].get<double>() < evaluations[0]["loss"].get<double>());
  for (const char* name : {"accuracy_per_sequence", "approx_bleu_score", "rouge_2_fscore", "rouge_L_fscore"}) {
    CAPTURE(name);
    const double value = evaluations[1][absl::StrCat("metrics/", name)];
    CHECK(value > evaluations[0][absl::StrCat("metrics/", name)].get<double>());
    CHECK(value <= 1);
  }
  const auto of_run = [&](const char* tag) { return Events(config.train.model_dir, tag); };
  CHECK(of_run("learning_rate").size() == 400);
  CHECK(of_run("minibatch_loss") == of_run("loss"));
  REQUIRE(of_run("global_norm/gradient_norm").size() == 400);
  CHECK(of_run("global_norm/gradient_norm")[0].second > 0);
}

TEST_CASE("After each evaluation a text is translated, with the BLEU that the programs for that give") {
  TransformerConfig config = EasyToLearn();
  AddBleu(config);
  const std::vector<nlohmann::json> evaluations = Evaluations(Run(config));
  REQUIRE(evaluations.size() == 2);
  const double cased = evaluations[1]["bleu_cased"], uncased = evaluations[1]["bleu_uncased"];
  CHECK(evaluations[0]["bleu_uncased"] < uncased);
  CHECK(cased < uncased);

  const std::string translation = run::NewDirectory("translation");
  const ModelParams& params = config.params;
  std::ostringstream no_output;
  REQUIRE(RunTranslate({.model_dir = config.train.model_dir,
                        .param_set = "tiny",
                        .params_override = absl::StrCat(
                            "vocab_size=", params.vocab_size, ",hidden_size=", params.hidden_size,
                            ",num_heads=", params.num_heads, ",filter_size=", params.filter_size,
                            ",num_hidden_layers=", params.num_hidden_layers, ",max_length=", params.max_length,
                            ",extra_decode_length=", params.extra_decode_length),
                        .vocab_file = *config.vocab_file,
                        .text = {},
                        .file = config.bleu_source,
                        .file_out = translation},
                       /*in=*/-1, no_output)
              .ToString() == "OK");
  CHECK(cased == FileBleu(*config.bleu_ref, translation, {.case_sensitive = true}).value());
  CHECK(uncased == FileBleu(*config.bleu_ref, translation, {.case_sensitive = false}).value());

  const auto events = Events(config.train.model_dir + "/bleu", "bleu/uncased");
  REQUIRE(events.size() == 2);
  CHECK(events[1] == std::pair<int64_t, float>(400, static_cast<float>(uncased)));
  CHECK(Events(config.train.model_dir + "/bleu", "bleu/cased").back().second == static_cast<float>(cased));
  const std::vector<std::string> lines = absl::StrSplit(files::ReadFile(translation, 1000).value(), '\n');
  CHECK(run::LastSamples(config) ==
        std::vector<std::vector<std::string>>{{"source", "reference", "translation"},
                                              {"a b c d e f", "b c d e f g", lines.at(0)},
                                              {" h g f e d c b a ", "i h g f e d c b", lines.at(1)},
                                              {"b d f h k m o", "c e g i l n P", lines.at(2)}});
  const std::string log = files::ReadFile(config.train.model_dir + "/metric.log", 1 << 24).value();
  CHECK_THAT(log, Contains("{\"name\": \"bleu_cased\", \"value\": ") && Contains("{\"name\": \"bleu_uncased\", "));
}

TEST_CASE("Training stops at a BLEU") {
  TransformerConfig config = SmallConfig();
  AddBleu(config);
  config.train_steps = 4;
  config.steps_between_evals = 2;
  config.base.stop_threshold = GENERATE(0.0, 100.0);
  config.performance.num_cpu_devices = 2;
  CHECK(Evaluations(Run(config)).size() == (config.base.stop_threshold == 0.0 ? 1 : 2));
}

TEST_CASE("Texts for BLEU that do not fit end a run before it begins") {
  TransformerConfig config = SmallConfig();
  AddBleu(config);
  absl::StatusCode code = absl::StatusCode::kDataLoss;
  std::vector<std::string> told;
  SECTION("unlike numbers of lines") {
    config.bleu_ref = WriteText("a\nb\n");
    told = {absl::StrCat("--bleu_source=", *config.bleu_source, " has 3 lines"),
            absl::StrCat("--bleu_ref=", *config.bleu_ref, " has 2")};
  }
  SECTION("no source") {
    config.bleu_source = "/nowhere/source";
    code = absl::StatusCode::kNotFound;
    told = {"/nowhere/source"};
  }
  SECTION("no reference") {
    config.bleu_ref = "/nowhere/reference";
    code = absl::StatusCode::kNotFound;
    told = {"/nowhere/reference"};
  }
  SECTION("an empty text") {
    config.bleu_source = WriteText("");
    told = {*config.bleu_source + " has no sentences"};
  }
  SECTION("a reference that is not text") {
    config.bleu_ref = WriteText("a\nb\xff\nc\n");
    told = {*config.bleu_ref + ": line 2: byte 2 is not UTF-8"};
  }
  SECTION("a source that the vocabulary cannot express") {
    config.bleu_source = WriteText("a\nb\nZ\n");
    told = {*config.bleu_source + ": line 3: ", "cannot express"};
  }
  SECTION("no vocabulary") {
    config.vocab_file = "/nowhere/vocab";
    code = absl::StatusCode::kNotFound;
    told = {"/nowhere/vocab"};
  }
  SECTION("a vocabulary of a larger network, with and without texts") {
    config.params.vocab_size = kVocabSize - 1;
    if (GENERATE(true, false)) config.bleu_source = config.bleu_ref = {};
    code = absl::StatusCode::kInvalidArgument;
    told = {absl::StrCat("--vocab_file=", *config.vocab_file, " has 20 subtokens, but vocab_size is 19"),
            "--params_override=vocab_size=20"};
  }
  SECTION("a vocabulary that has a subtoken twice") {
    config.vocab_file = WriteText("'<pad>'\n'<EOS>'\n'a_'\n'a_'\n");
    told = {*config.vocab_file, "4"};
  }
  const absl::Status status = RunStatus(config);
  CHECK(status.code() == code);
  for (const std::string& words : told) CHECK_THAT(std::string(status.message()), Contains(words));
  CHECK_FALSE(files::Exists(config.train.model_dir + "/checkpoint"));
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

// Dropout is on; parts have unlike numbers of tokens.
TEST_CASE("Batches computed in parts have the curve of whole ones") {
  const TransformerConfig whole = SmallConfig();
  Run(whole);
  const std::vector<double> want = run::Losses(whole);
  TransformerConfig parts = InNewModelDir(whole);
  parts.train.grad_accum_steps = 3;
  parts.performance.num_cpu_devices = GENERATE(1, 2);
  Run(parts);
  const std::vector<double> losses = run::Losses(parts);
  REQUIRE(losses.size() == want.size());
  CHECK(losses.size() > 15);
  for (size_t i = 0; i < want.size(); ++i) CHECK(losses[i] == Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("A run that was stopped ends with the same bits") {
  const auto [dtype, grad_accum_steps] =
      GENERATE(std::pair{compute::DType::kFloat32, 1}, std::pair{compute::DType::kBFloat16, 1},
               std::pair{compute::DType::kFloat32, 2});
  TransformerConfig whole = SmallConfig();
  whole.train.dtype = dtype;
  whole.train.grad_accum_steps = grad_accum_steps;
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

TEST_CASE("--overfit_batches trains on a few batches of sentences, also in parts to the bit") {
  TransformerConfig whole = SmallConfig();
  whole.base.overfit_batches = 3;
  whole.base.train_epochs = 4;
  whole.base.epochs_between_evals = 2;
  TransformerConfig parts = InNewModelDir(whole);
  const std::string out = Run(whole);
  CHECK_THAT(out, Contains(R"("global_step": 12, "steps": 12,)"));
  const std::vector<nlohmann::json> evaluations = Evaluations(out);
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0]["global_step"] == 6);
  for (const int64_t step : {2, 7}) {
    parts.performance.max_train_steps = step;
    Run(parts);
  }
  parts.performance.max_train_steps.reset();
  logs::CapturedLog log(logs::LogFormat::kSimple);
  Run(parts);
  CHECK_THAT(log.Text(), !Contains("have changed"));
  run::CheckSameBits(whole, parts);
}

TEST_CASE("A run whose pairs or batch size have changed says so, and ends") {
  TransformerConfig config = SmallConfig();
  config.base.train_epochs = 2;
  config.performance.max_train_steps = 5;
  Run(config);
  config.performance.max_train_steps.reset();
  logs::CapturedLog log(logs::LogFormat::kSimple);
  SECTION("other pairs") {
    WritePairs(config.base.data_dir + "/wmt32k-train-00001-of-00001", 190, 3);
    CHECK(Evaluations(Run(config)).size() == 2);
    CHECK_THAT(log.Text(), Contains("the training data have changed") &&
                               Contains("200 examples in wmt32k-train-00001-of-00001, digest ") &&
                               Contains("190 examples in wmt32k-train-00001-of-00001, digest "));
  }
  SECTION("hardly any pair") {
    WritePairs(config.base.data_dir + "/wmt32k-train-00001-of-00001", 10, 3);
    CHECK(Evaluations(Run(config)).size() == 1);
    CHECK_THAT(log.Text(), Contains("but the training data have only 10 now: that epoch counts as finished"));
  }
  SECTION("another batch size") {
    config.base.batch_size = 100;
    CHECK(Evaluations(Run(config)).size() == 2);
    CHECK_THAT(log.Text(), Contains("no batch begins after") && !Contains("have changed"));
  }
}

TEST_CASE("--eval_only gives what the training's evaluation gave, BLEU included") {
  TransformerConfig config = SmallConfig();
  AddBleu(config);
  config.train.flags_text = "--params_override=label_smoothing=0.2\n--bleu_ref=a.de\n";
  const std::string trained = Run(config);
  CHECK_THAT(trained, Contains("bleu_uncased"));
  config.base.eval_only = true;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  CHECK(Evaluations(Run(config)) == Evaluations(trained));
  CHECK_THAT(log.Text(), !Contains("flags that differ"));
  config.train.flags_text = "--params_override=\n--bleu_ref=b.de\n";
  Run(config);
  CHECK_THAT(log.Text(), Contains("flags that differ from this run's last: --params_override= (was "
                                  "label_smoothing=0.2), --bleu_ref=b.de (was a.de)"));
  REQUIRE(std::filesystem::remove(config.base.data_dir + "/wmt32k-train-00001-of-00001"));
  CHECK(Evaluations(Run(config)) == Evaluations(trained));
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

  // The least batch is of one pair.
  TransformerConfig pair = InNewModelDir(config);
  pair.base.batch_size = pair.params.max_length;
  pair.performance.max_train_steps = 2;
  CHECK(Evaluations(Run(pair)).size() == 1);

  // What lacks an evaluation is told before the training.
  TransformerConfig large = InNewModelDir(config);
  large.base.batch_size = 100000;
  const absl::Status status = RunStatus(large);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Contains("pairs of sentences for the evaluation in " + large.base.data_dir) &&
                 Contains("--static_batch makes of --batch_size=100000"));
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
  // 24 is a multiple of the devices, but too small.
  config.base.batch_size = 25;
  config.performance.num_cpu_devices = 4;
  CHECK_THAT(std::string(RunStatus(config).message()), Contains("try --batch_size=28 instead"));
  config.performance.num_cpu_devices = 1;
  config.base.batch_size = 128;
  Run(config);
  config.params.hidden_size = 32;
  config.base.train_epochs = 2;
  CHECK_THAT(std::string(RunStatus(config).message()), Contains("--params_override that it was trained with"));
  config.base.data_dir = run::NewDirectory("empty");
  CHECK(absl::IsNotFound(RunStatus(InNewModelDir(config))));
}

// The most ids that a batch of an epoch has, padding included.
int64_t MostIds(const TransformerConfig& config) {
  const auto pairs = Translations::Open(config.base.data_dir, TranslationPart::kTrain, config.params.max_length, 1);
  const auto batches = TranslationBatches(pairs.value(), {.batch_tokens = config.base.batch_size}).value();
  int64_t most = 0;
  while (const std::optional<data::Batch> batch = batches->Next().value()) {
    for (const compute::Tensor& ids : {batch->features[0], batch->labels[0]}) most = std::max(most, ids.num_elements());
  }
  return most;
}

TEST_CASE("A dry run also trains and evaluates on a batch of the largest shape") {
  TransformerConfig config = SmallConfig();
  // With 47 ids a batch has one sentence of 24, but two of 21.
  const auto [batch_size, largest, largest_ids] =
      GENERATE(std::tuple{128, "int32[5,24]", 5 * 24}, std::tuple{47, "int32[2,21]", 2 * 21});
  config.base.batch_size = batch_size;
  CHECK(MostIds(config) > batch_size * 3 / 4);
  CHECK(MostIds(config) <= largest_ids);
  config.rehearsal = run::Rehearsal::kDryRun;
  std::vector<std::string> told;
  std::istringstream lines(Run(config));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    told.push_back(absl::StrCat(object["item"].get<std::string>(), ": ", object["message"].get<std::string>()));
  }
  const auto tells = [&](absl::string_view item, absl::string_view text) {
    return std::any_of(told.begin(), told.end(), [&](const std::string& line) {
      return absl::StartsWith(line, item) && absl::StrContains(line, text);
    });
  };
  CHECK(tells("training data: ", "translations, 200 examples; first batch int32["));
  CHECK(tells("largest training step: loss ", largest));
  CHECK(tells("training step: loss ", "int32["));
  CHECK(tells("largest evaluation step: loss ", largest));
  CHECK(tells("evaluation step: loss ", "int32["));
  CHECK(tells("time: about ", " steps of about "));
  CHECK_FALSE(files::Exists(config.train.model_dir));
}

}  // namespace
}  // namespace official::transformer
