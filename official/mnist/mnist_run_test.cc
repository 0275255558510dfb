// The whole of mnist_main but for its command line, on a small data set.

#include "official/mnist/mnist_run.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "official/mnist/small_run.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/run/small_run.h"
#include "utils/train/run_lock.h"

namespace official::mnist {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;

// What a run prints that has nothing left to train.
std::string NothingToDo(int64_t global_step) {
  return absl::StrCat(R"({"event": "end", "status": "nothing_to_do", "global_step": )", global_step,
                      R"(, "steps": 0, "examples_per_sec": null})", "\n");
}

TEST_CASE("Training learns, evaluates and leaves TensorFlow's files") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 8;
  config.base.epochs_between_evals = 3;  // 3, 3 and the 2 that are left
  config.model.learning_rate = 1e-3;
  const std::string out = Run(config);
  const std::vector<std::string> evaluations = run::EvaluationsIn(out);
  REQUIRE(evaluations.size() == 3);
  CHECK_THAT(evaluations[2], Contains("\"global_step\": 24"));  // 250 examples are 3 batches
  CHECK_THAT(evaluations[2], Contains("\"accuracy\": 1.0"));

  const auto checkpoint = Checkpoint(config);
  CHECK(checkpoint->Read("global_step")->scalar<int64_t>() == 24);
  for (const char* name :
       {"conv2d/kernel", "conv2d_1/bias", "dense/kernel/Adam", "dense_1/bias/Adam_1", "beta1_power"}) {
    CHECK(checkpoint->Find(name).has_value());
  }
  CHECK(checkpoint->Find("conv2d_1/kernel")->shape == compute::Shape({5, 5, 32, 64}));
  CHECK(checkpoint->Find("dense/kernel")->shape == compute::Shape({3136, 1024}));
  for (const char* file : {"metric.log", "benchmark_run.log", "checkpoint", "eval"}) {
    CHECK(files::Exists(config.train.model_dir + "/" + file));
  }
}

TEST_CASE("As JSON, the results end with the throughput, and the log names what happens") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 3;
  config.base.epochs_between_evals = 3;
  logs::CapturedLog log(logs::LogFormat::kJson);
  // The names of the events since the last call, one after another.
  size_t read = 0;
  const auto events = [&] {
    std::vector<std::string> names;
    const std::string text = log.Text();
    for (const absl::string_view line : absl::StrSplit(text.substr(read), '\n', absl::SkipEmpty())) {
      const std::string name = nlohmann::json::parse(line.begin(), line.end()).at("event");
      // Checkpoints are saved by a thread of their own; on a busy machine a step may take so long that it is told.
      if (name != "message" && name != "save" && name != "progress") names.push_back(name);
    }
    read = text.size();
    return absl::StrJoin(names, " ");
  };
  const std::string out = Run(config);
  const nlohmann::json end = nlohmann::json::parse(out.substr(out.rfind('{')));
  CHECK(end["event"] == "end");
  CHECK(end["status"] == "finished");
  CHECK(end["global_step"] == 9);
  CHECK(end["steps"] == 9);
  CHECK(end["warmup_steps"] == 5);
  CHECK(end["examples_per_sec"].get<double>() > 0);
  CHECK_THAT(log.Text(), Contains(R"("event": "save")"));
  CHECK(events() == "start step step evaluation_start evaluation end");

  config.base.train_epochs = 6;
  config.base.stop_threshold = 0.0;
  const std::string more = Run(config);
  CHECK(nlohmann::json::parse(more.substr(more.rfind('{')))["status"] == "stop_threshold");
  CHECK(events() == "resume step step evaluation_start evaluation end");
}

TEST_CASE("A run that the stop threshold has ended has nothing to do until it is raised") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 3;
  config.base.stop_threshold = 0.0;
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  logs::CapturedLog log(logs::LogFormat::kSimple);
  config.base.export_dir = NewDirectory("export");
  CHECK(Run(config) == NothingToDo(3));
  CHECK_THAT(log.Text(), Contains("is trained to step 3, where the stop threshold of 0 has ended the training: the "
                                  "metric was ") &&
                             Contains("; to continue, raise the threshold or leave it out;"));
  CHECK(files::ListDirectory(*config.base.export_dir)->size() == 1);
  MnistConfig dry = config;
  dry.rehearsal = run::Rehearsal::kDryRun;
  CHECK_THAT(Run(dry),
             Contains("where the stop threshold of 0 has ended the training: ") && Contains("nothing is left"));
  // The evaluation was made without the flag, or has not passed it.
  config.base.stop_threshold = 1.5;
  dry.base.stop_threshold = 1.5;
  CHECK_THAT(Run(dry), !Contains("has ended the training") && Contains("6 steps of"));
  CHECK(run::EvaluationsIn(Run(config)).size() == 2);
  CHECK(Run(config) == NothingToDo(9));
  config.base.train_epochs = 4;
  config.base.stop_threshold.reset();
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  config.base.train_epochs = 5;
  config.base.stop_threshold = 0.0;
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
}

TEST_CASE("A run in two parts ends with the bits of one run, and a finished one has nothing to do") {
  MnistConfig whole = SmallConfig();
  whole.base.train_epochs = 3;
  Run(whole);
  MnistConfig parts = whole;
  parts.train.model_dir = NewDirectory("model");
  parts.performance.max_train_steps = 4;  // in the middle of the second epoch
  Run(parts);
  parts.performance.max_train_steps.reset();
  Run(parts);
  CheckSameBits(whole, parts);
  CHECK(Run(parts) == NothingToDo(9));
}

TEST_CASE("--overfit_batches trains and evaluates on the first batches, also in two parts to the bit") {
  MnistConfig whole = SmallConfig();
  whole.base.overfit_batches = 2;
  whole.base.train_epochs = 3;
  whole.base.epochs_between_evals = 3;
  logs::CapturedLog log(logs::LogFormat::kJson);
  CHECK_THAT(Run(whole), Contains(R"("global_step": 6, "steps": 6,)"));  // 250 examples would be 9 steps
  CHECK_THAT(log.Text(), Contains(absl::StrCat(R"("examples": )", 2 * whole.base.batch_size, ",")));
  MnistConfig parts = whole;
  parts.train.model_dir = NewDirectory("model");
  parts.performance.max_train_steps = 3;  // in the middle of the second epoch
  Run(parts);
  parts.performance.max_train_steps.reset();
  Run(parts);
  CheckSameBits(whole, parts);

  MnistConfig all = whole;
  all.train.model_dir = NewDirectory("model");
  all.base.overfit_batches = 100;
  CHECK_THAT(Run(all), Contains(R"("global_step": 9, "steps": 9,)"));
  parts.base.overfit_batches.reset();
  parts.base.train_epochs = 4;
  Run(parts);
  CHECK_THAT(log.Text(), Contains(", the first 2 batches, and are "));
}

TEST_CASE("A batch size that the program has chosen is that of a run with the number, to the bit") {
  MnistConfig chosen = SmallConfig();
  chosen.base.batch_size = 0;
  chosen.performance.num_cpu_devices = 2;
  chosen.train.flags_text = "--batch_size=auto\n--seed=1\n";
  nlohmann::json event, start;
  {
    logs::CapturedLog log(logs::LogFormat::kJson);
    Run(chosen);
    const std::string text = log.Text();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const nlohmann::json read = nlohmann::json::parse(line.begin(), line.end());
      if (read.at("event") == "batch_size") event = read;
      if (read.at("event") == "start") start = read;
    }
  }
  REQUIRE(event.is_object());
  const int batch_size = event["batch_size"];
  CHECK(batch_size % 2 == 0);
  CHECK(batch_size <= 250);
  CHECK(event["examples_per_sec"].get<double>() > 0);
  CHECK(start["batch_size"] == batch_size);
  const std::string flags = absl::StrCat("--batch_size=", batch_size, "\n");
  CHECK(files::ReadFile(chosen.train.model_dir + "/flags.txt", 1000).value() == flags + "--seed=1\n");

  MnistConfig given = chosen;
  given.base.batch_size = batch_size;
  given.train.model_dir = NewDirectory("model");
  Run(given);
  CheckSameBits(chosen, given);
}

TEST_CASE("The choice of a batch size and the test of learning rates are shown") {
  MnistConfig config = SmallConfig();
  config.base.batch_size = 0;
  config.rehearsal = run::Rehearsal::kFindLr;
  logs::CapturedTasks log;
  Run(config);
  CHECK_THAT(log.Text(),
             Contains("choosing the batch size") && Contains("testing learning rates") && Contains("/100 steps"));
}

TEST_CASE("Preparing, evaluating and exporting are shown") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 1;
  config.base.export_dir = NewDirectory("shown");
  logs::CapturedTasks log;
  Run(config);
  const std::string shown = log.Text();
  CHECK_THAT(shown, Contains("preparing the training") && Contains("preparing the evaluation"));
  CHECK_THAT(shown, Contains("evaluating step ") && Contains("writing the SavedModel"));
}

TEST_CASE("Samples of evaluations change no bit") {
  MnistConfig none = SmallConfig();
  none.base.train_epochs = 2;
  none.train.eval_samples = 0;
  MnistConfig some = none;
  some.train.model_dir = NewDirectory("model");
  some.train.eval_samples = 16;
  CHECK(run::EvaluationsIn(Run(none)) == run::EvaluationsIn(Run(some)));
  CheckSameBits(none, some);
}

TEST_CASE("bfloat16 and half train too, half with a static and with a dynamic loss scale") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 8;
  config.base.epochs_between_evals = 8;
  config.model.learning_rate = 1e-3;
  const auto [dtype, scale] = GENERATE(std::pair{DType::kBFloat16, compute::LossScale{}},
                                       std::pair{DType::kFloat16, compute::LossScale{.value = 128}},
                                       std::pair{DType::kFloat16, compute::DynamicLossScale()});
  config.train.dtype = dtype;
  config.train.loss_scale = scale;
  CHECK_THAT(Run(config), Contains("\"accuracy\": 1.0"));
  CHECK(Checkpoint(config)->Find("dense/kernel")->dtype == DType::kFloat32);
}

// By the spec: every label is 0, so training is right at once.
TEST_CASE("Synthetic data") {
  MnistConfig config = SmallConfig();
  config.performance.use_synthetic_data = true;
  config.performance.max_train_steps = 20;
  config.model.learning_rate = 1e-3;
  CHECK_THAT(Run(config), Contains("\"accuracy\": 1.0"));
}

TEST_CASE("Prediction and export need a trained model, and give classes and probabilities") {
  MnistConfig config = SmallConfig();
  const std::string images = config.base.data_dir + "/t10k-images-idx3-ubyte";
  MnistConfig predict = config;
  predict.predict = {images};
  CHECK(absl::IsNotFound(RunStatus(predict)));

  config.base.train_epochs = 8;
  config.base.epochs_between_evals = 8;
  config.model.learning_rate = 1e-3;
  config.base.export_dir = NewDirectory("export");
  Run(config);
  const std::string out = Run(predict);
  CHECK(std::count(out.begin(), out.end(), '\n') == 60);
  CHECK_THAT(out, Contains("\"index\": 7, \"class\": 7, \"probabilities\": ["));
  predict.predict = {config.base.data_dir + "/photo.jpg"};
  std::ofstream(predict.predict[0]) << "\xFF\xD8\xFF\xE0 and so on";
  CHECK_THAT(std::string(RunStatus(predict).message()),
             Contains(absl::StrCat("photo.jpg: expected a PNG or IDX file of 28x28 pixels")) &&
                 Contains("photo.jpg -colorspace Gray -negate -resize '28x28!' digit.png"));
  // Of several files the others follow.
  predict.predict = {config.base.data_dir + "/none.png", predict.predict[0], images};
  std::ostringstream of_several;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const absl::Status status = RunMnist(predict, of_several);
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "2 of 3 files are bad; the log names them");
  CHECK_THAT(log.Text(), Contains("none.png") && Contains("photo.jpg: expected a PNG or IDX file"));
  CHECK(of_several.str() == out);
  CHECK(files::ListDirectory(*config.base.export_dir)->size() == 1);
}

TEST_CASE("A number that is not finite stops the run before it is saved, and is named") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 20;
  config.train.save_checkpoints_steps = 1;
  SECTION("in the loss") {
    config.model.learning_rate = 1e18;
    const absl::Status status = RunStatus(config);
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK_THAT(std::string(status.message()), Contains("the first tensor that is not finite is") &&
                                                  Contains("the last one is of step") && Contains("--learning_rate"));
  }
  SECTION("in a weight") {
    config.model.learning_rate = 1e39;  // infinite as a float
    const absl::Status status = RunStatus(config);
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK_THAT(std::string(status.message()), Contains("kernel") || Contains("bias"));
  }
  const auto checkpoint = Checkpoint(config);
  for (const train::StoredTensor& tensor : checkpoint->ListTensors()) {
    if (tensor.dtype) CHECK_FALSE(compute::FindNonFinite(checkpoint->Read(tensor.name).value()));
  }
}

TEST_CASE("Evaluations are due at the same epochs however a run was stopped") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 4;
  config.base.epochs_between_evals = 2;
  config.performance.max_train_steps = 4;  // in the second epoch
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  config.performance.max_train_steps.reset();
  const std::string out = Run(config);
  CHECK(run::EvaluationsIn(out).size() == 2);
  CHECK_THAT(out, Contains("\"global_step\": 6") && Contains("\"global_step\": 12"));
  CHECK(Run(config) == NothingToDo(12));
  // As if it had been killed in the evaluation.
  std::filesystem::remove(config.train.model_dir + "/eval/evaluated_step");
  CHECK_THAT(Run(config), Contains("\"global_step\": 12"));
  CHECK(Run(config) == NothingToDo(12));
}

// The accuracies of evaluations, by their steps.
std::map<int64_t, double> Accuracies(const std::vector<std::string>& evaluations) {
  std::map<int64_t, double> accuracies;
  for (const std::string& evaluation : evaluations) {
    const nlohmann::json json = nlohmann::json::parse(evaluation);
    accuracies[json.at("global_step")] = json.at("accuracy");
  }
  return accuracies;
}

TEST_CASE("The best checkpoints are kept, also by a run in parts, and evaluate as they did") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 6;
  config.train.keep_checkpoint_max = 1;
  config.base.keep_best = {"accuracy", /*increases=*/true, 2};
  config.model.learning_rate = 0.02;  // so high that the accuracy goes up and down
  config.performance.max_train_steps = 7;
  std::map<int64_t, double> accuracies = Accuracies(run::EvaluationsIn(Run(config)));
  config.performance.max_train_steps.reset();
  accuracies.merge(Accuracies(run::EvaluationsIn(Run(config))));
  REQUIRE(accuracies.size() == 7);
  std::vector<int64_t> steps;
  for (const auto& [step, accuracy] : accuracies) steps.push_back(step);
  std::stable_sort(steps.begin(), steps.end(), [&](int64_t a, int64_t b) { return accuracies[a] > accuracies[b]; });
  const std::string best = config.train.model_dir + "/best";
  CHECK(train::ListCheckpoints(best).value() == std::vector<std::string>{absl::StrCat(best, "/model.ckpt-", steps[1]),
                                                                         absl::StrCat(best, "/model.ckpt-", steps[0])});

  MnistConfig evaluate = config;
  evaluate.base.eval_only = true;
  evaluate.base.keep_best.reset();
  evaluate.train.model_dir = best;
  CHECK(Accuracies(run::EvaluationsIn(Run(evaluate))) == std::map<int64_t, double>{{steps[0], accuracies[steps[0]]}});
}

TEST_CASE("--early_stop ends the training after evaluations without a better one, also when it is resumed") {
  MnistConfig config = SmallConfig();
  config.base.train_epochs = 9;
  config.model.learning_rate = 0;  // the accuracy stays as it is
  config.base.early_stop = {"accuracy", /*increases=*/true, 3};
  SECTION("in one run") {
    const std::string out = Run(config);
    CHECK(run::EvaluationsIn(out).size() == 4);
    CHECK(nlohmann::json::parse(out.substr(out.rfind('{')))["status"] == "early_stop");
  }
  SECTION("stopped before") {
    config.performance.max_train_steps = 7;
    CHECK(run::EvaluationsIn(Run(config)).size() == 3);
    config.performance.max_train_steps.reset();
    CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  }
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const int64_t end = Checkpoint(config)->Read("global_step")->scalar<int64_t>();
  CHECK(Run(config) == NothingToDo(end));
  CHECK_THAT(log.Text(),
             Contains("--early_stop has ended the training: accuracy has not increased in 3 evaluations; the "
                      "best was ") &&
                 Contains(" at step 3;"));
  MnistConfig dry = config;
  dry.rehearsal = run::Rehearsal::kDryRun;
  CHECK_THAT(Run(dry), Contains("where --early_stop has ended the training: ") && Contains("nothing is left"));
  // Killed before the last evaluation was finished, it is made again.
  REQUIRE(files::WriteFileAtomically(config.train.model_dir + "/eval/evaluated_step", "6\n").ok());
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  CHECK(Run(config) == NothingToDo(end));
  config.base.early_stop->number = 4;
  CHECK(run::EvaluationsIn(Run(config)).size() == 1);
  config.base.early_stop = {"loss", /*increases=*/false, 4};
  CHECK(run::EvaluationsIn(Run(config)).empty());
  config.base.early_stop = {"accuraccy", /*increases=*/true, 4};
  CHECK(RunStatus(config).message() ==
        "--early_stop: the evaluations of mnist have no metric accuraccy; use one of accuracy, loss");
}

// The training data of another configuration in the place of its own.
void TakeTrainingData(const MnistConfig& config, const MnistConfig& other) {
  for (const char* file : {"/train-images-idx3-ubyte", "/train-labels-idx1-ubyte"}) {
    std::filesystem::copy_file(other.base.data_dir + file, config.base.data_dir + file,
                               std::filesystem::copy_options::overwrite_existing);
  }
}

TEST_CASE("A run on training data that have changed says so, and ends") {
  MnistConfig config = SmallConfig();  // 250 examples
  config.base.batch_size = 8;
  config.base.train_epochs = 2;
  config.performance.max_train_steps = 10;
  Run(config);
  config.performance.max_train_steps.reset();
  const auto [examples, first_steps] = GENERATE(std::pair{80, 10},   // the place is the end of the epoch
                                                std::pair{72, 10},   // behind it
                                                std::pair{88, 11});  // before it
  CAPTURE(examples);
  TakeTrainingData(config, SmallConfig(examples));
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const std::string out = Run(config);
  CHECK_THAT(log.Text(), Contains("the training data have changed since the checkpoint was written: they were 250 "
                                  "examples, digest ") &&
                             Contains(absl::StrCat(", and are ", examples, " examples, digest ")));
  const bool behind = examples <= 80;
  CHECK((log.Text().find("that epoch counts as finished") != std::string::npos) == behind);
  CHECK(run::EvaluationsIn(out).size() == (behind ? 1 : 2));
  CHECK(Checkpoint(config)->Read("global_step")->scalar<int64_t>() == first_steps + examples / 8);

  // From now on these are its data.
  config.base.train_epochs = 3;
  const size_t before = log.Text().size();
  Run(config);
  CHECK_THAT(log.Text().substr(before), !Contains("have changed"));
}

TEST_CASE("--eval_only evaluates once, changes nothing and may export") {
  MnistConfig config = SmallConfig();
  config.base.eval_only = true;
  const absl::Status nothing = RunStatus(config);
  CHECK(absl::IsNotFound(nothing));
  CHECK_FALSE(files::Exists(config.train.model_dir));

  config.base.eval_only = false;
  const std::string trained = Run(config);
  MnistConfig evaluate = config;
  evaluate.base.eval_only = true;
  evaluate.base.train_epochs = 7;  // which are not trained
  evaluate.base.export_dir = NewDirectory("export");
  CHECK(run::EvaluationsIn(Run(evaluate)) == run::EvaluationsIn(trained));
  CHECK(files::ListDirectory(*evaluate.base.export_dir)->size() == 1);
  CHECK(Checkpoint(config)->Read("global_step")->scalar<int64_t>() == 3);

  // An evaluation that the training still owes is not made up for by one on other data.
  std::filesystem::remove(config.train.model_dir + "/eval/evaluated_step");
  Run(evaluate);
  CHECK_THAT(Run(config), Contains("\"global_step\": 3"));

  for (const char* file : {"images-idx3", "labels-idx1"}) {
    REQUIRE(std::filesystem::remove(absl::StrCat(config.base.data_dir, "/train-", file, "-ubyte")));
  }
  CHECK(run::EvaluationsIn(Run(evaluate)) == run::EvaluationsIn(trained));  // without the training set, too
}

TEST_CASE("A resumed run keeps its seed, and tells who asks for another") {
  MnistConfig config = SmallConfig();
  config.train.seed = 5;
  Run(config);
  config.base.train_epochs = 2;
  config.train.seed = 1;  // the default
  logs::CapturedLog log(logs::LogFormat::kSimple);
  Run(config);
  CHECK_THAT(log.Text(), !Contains("is not used"));
  config.base.train_epochs = 3;
  config.base.seed_given = true;
  Run(config);
  CHECK_THAT(log.Text(), Contains("--seed=1 is not used: this run started with seed 5"));
}

TEST_CASE("--resume") {
  MnistConfig config = SmallConfig();
  config.train.resume = train::Resume::kMust;
  CHECK(absl::IsNotFound(RunStatus(config)));
  config.train.resume = train::Resume::kNever;
  Run(config);
  const absl::Status again = RunStatus(config);
  CHECK(absl::IsFailedPrecondition(again));
  CHECK_THAT(std::string(again.message()), Contains("--resume=never") && Contains("model.ckpt-3"));
  config.train.resume = train::Resume::kMust;
  config.base.train_epochs = 2;
  Run(config);
  CHECK(Checkpoint(config)->Read("global_step")->scalar<int64_t>() == 6);
}

TEST_CASE("One run per model_dir, --clean included") {
  MnistConfig config = SmallConfig();
  Run(config);
  auto other = train::RunLock::Acquire(config.train.model_dir).value();
  config.base.clean = true;
  const absl::Status status = RunStatus(config);
  CHECK(absl::IsAlreadyExists(status));
  CHECK_THAT(std::string(status.message()), Contains("is in use by process"));
  CHECK(Checkpoint(config) != nullptr);
  other.reset();
  config.base.train_epochs = 2;
  Run(config);
  CHECK(Checkpoint(config)->Read("global_step")->scalar<int64_t>() == 6);
}

TEST_CASE("A run that has nothing to do says which flag has ended it") {
  MnistConfig config = SmallConfig();
  config.performance.max_train_steps = 2;
  Run(config);
  const auto log_of = [&config] {
    logs::CapturedLog log(logs::LogFormat::kSimple);
    Run(config);
    return log.Text();
  };
  CHECK_THAT(log_of(), Contains("is trained to step 2 of --max_train_steps=2; to continue, raise it or leave it out;"));
  config.performance.max_train_steps = 100;
  log_of();  // to the end of the epoch
  CHECK_THAT(log_of(), Contains("is trained to step 3, 1 of --train_epochs=1 epochs; to continue, raise "
                                "--train_epochs; to start again"));
}

TEST_CASE("Bad input is one clear error") {
  MnistConfig config = SmallConfig();
  SECTION("a batch that no machine holds: what would fit") {
    config.base.batch_size = 1000000000;
    const absl::Status status = RunStatus(config);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("--batch_size=1000000000 needs") && Contains("would fit"));
    CHECK(!files::Exists(config.train.model_dir + "/metric.log"));
  }
  SECTION("more GPUs than there are") {
    config.base.num_gpus = 1000;
    const absl::Status status = RunStatus(config);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("--num_gpus=1000: this machine"));
    CHECK(!files::Exists(config.train.model_dir));
  }
  SECTION("a model_dir of another data set") {
    Run(config);
    config.performance.use_synthetic_data = true;
    const absl::Status status = RunStatus(config);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains("holds a run on MNIST") &&
                   Contains("; give the data of that run (--data_dir), another --model_dir, or --clean"));
    config.base.eval_only = true;
    CHECK_THAT(std::string(RunStatus(config).message()),
               Contains("(--data_dir) or another --model_dir") && !Contains("--clean"));
  }
  SECTION("real data in a model_dir of synthetic ones") {
    config.performance.use_synthetic_data = true;
    config.performance.max_train_steps = 1;
    Run(config);
    config.performance.use_synthetic_data = false;
    CHECK_THAT(std::string(RunStatus(config).message()),
               Contains("holds a run on MNIST-synthetic and this run is on MNIST; give the data of that run "
                        "(--use_synthetic_data), another --model_dir, or --clean"));
  }
  SECTION("a checkpoint of another model") {
    std::filesystem::create_directories(config.train.model_dir);
    auto saver = train::CheckpointSaver::Open(config.train.model_dir, 5).value();
    REQUIRE(saver
                ->Save(3, {{"resnet_model/conv2d/kernel", Tensor(DType::kFloat32, {3, 3, 3, 16})},
                           {"dense/bias", Tensor(DType::kFloat32, {7})},
                           {"global_step", Tensor::Scalar<int64_t>(3)}})
                .ok());
    const absl::Status status = RunStatus(config);
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()),
               Contains("it has no conv2d/kernel") && Contains("dense/bias (float32[7]") && Contains("more"));
  }
  SECTION("a damaged checkpoint, and no other") {
    Run(config);
    for (const auto& entry : std::filesystem::directory_iterator(config.train.model_dir)) {
      if (entry.path().extension() == ".index") std::filesystem::resize_file(entry.path(), 20);
    }
    CHECK(absl::IsDataLoss(RunStatus(config)));
  }
  SECTION("a model_dir that is a file") {
    std::ofstream(config.train.model_dir) << "x";
    CHECK(!RunStatus(config).ok());
  }
  SECTION("images and labels that differ in number") {
    std::filesystem::copy_file(config.base.data_dir + "/t10k-labels-idx1-ubyte",
                               config.base.data_dir + "/train-labels-idx1-ubyte",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(absl::IsDataLoss(RunStatus(config)));
  }
}

}  // namespace
}  // namespace official::mnist
