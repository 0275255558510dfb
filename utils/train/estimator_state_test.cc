// What a run of the Estimator keeps in its model_dir, when, and what the next run makes of it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/line_model.h"
#include "utils/train/run_lock.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

TEST_CASE("An interruption stops after its step, which is saved, and the run continues from there") {
  EstimatorConfig config = Config();
  int asked = 0;
  config.interruption = [&] { return ++asked == 5 ? Interruption::kStop : Interruption::kNone; };
  {
    const auto estimator = MakeEstimator(config);
    const absl::Status status = estimator->Train(Input(1), 20, {});
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()), Contains("stopped at step 5"));
  }
  const auto resumed = MakeEstimator(config);
  CHECK(resumed->global_step() == 5);
  REQUIRE(resumed->Train(Input(1), 20, {}).ok());
  const auto whole = MakeEstimator(Config());
  REQUIRE(whole->Train(Input(1), 20, {}).ok());
  const Tensor a = resumed->Variable("w").value(), b = whole->Variable("w").value();
  CHECK(std::equal(a.data<float>(), a.data<float>() + 2, b.data<float>()));
}

TEST_CASE("A request to save is met between the regular ones") {
  EstimatorConfig config = Config();
  int asked = 0;
  config.interruption = [&] { return ++asked == 5 ? Interruption::kSave : Interruption::kNone; };
  REQUIRE(MakeEstimator(config)->Train(Input(1), 20, {}).ok());
  CHECK(files::Exists(config.model_dir + "/model.ckpt-5.index"));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-20.index"));
}

TEST_CASE("A warm start takes a trainable variable whose name begins as that of another") {
  Model model = Line();
  model.model_fn = [line = model.model_fn](const ModelInputs& in) {
    const Value gain = in.graph.Variable({"w/gain", {DType::kFloat32, {}}, compute::Initializer::Constant(1)});
    ModelInputs scaled = in;
    scaled.features[0] = compute::Mul(in.features[0], gain);
    return line(scaled);
  };
  const auto gain_after = [&](const EstimatorConfig& config, int64_t steps) {
    auto strategy = distribute::Strategy::Create({.num_threads = 1}).value();
    const auto estimator = Estimator::Create(model, config, std::move(strategy)).value();
    REQUIRE(estimator->Train(Input(1), steps, {}).ok());
    return estimator->Variable("w/gain").value().scalar<float>();
  };
  const EstimatorConfig first = Config();
  const float trained = gain_after(first, 3);
  CHECK(trained != 1);
  model.learning_rate = [](int64_t) { return 0.0; };
  EstimatorConfig second = Config();
  second.warm_start = first.model_dir;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  CHECK(gain_after(second, 1) == trained);
  CHECK_THAT(log.Text(), Contains("took 2 of 2 variables"));
}

constexpr compute::OpName kTestChoosing("TestChoosing");

// Its kernel has two algorithms. One is chosen as if by timing, and counted.
int choices_made = 0;
const bool registered_choosing =
    compute::RegisterOp(
        {.name = kTestChoosing,
         .infer = compute::SameTypeAsInput,
         .gradient = [](const compute::Node&, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; }}) &&
    compute::RegisterKernel(
        {.op = kTestChoosing,
         .device_kind = "cpu",
         .dtypes = {DType::kFloat32},
         .make = [](const compute::KernelSpec& spec) -> absl::StatusOr<compute::Kernel> {
           std::string algorithm = "default";
           if (spec.choices != nullptr) {
             ASSIGN_OR_RETURN(algorithm,
                              spec.choices->FindOrChoose(absl::StrCat("TestChoosing ", spec.device.Hardware()),
                                                         []() -> absl::StatusOr<std::string> {
                                                           ++choices_made;
                                                           return "chosen";
                                                         }));
           }
           return compute::Kernel{[bytes = spec.input(0).num_bytes(), algorithm](const compute::KernelArgs& args) {
             std::memcpy(args.outputs[0], args.inputs[0], bytes);
             return algorithm == "foreign" ? absl::InternalError("foreign algorithm") : absl::OkStatus();
           }};
         }});

TEST_CASE("What was chosen by timing is chosen again by the next run") {
  Model model = Line();
  model.model_fn = [line = model.model_fn](const ModelInputs& in) {
    ModelInputs chosen = in;
    chosen.features[0] = compute::Apply(kTestChoosing, {in.features[0]});
    return line(chosen);
  };
  EstimatorConfig config = Config();
  config.winograd = true;
  const std::string file = config.model_dir + "/algorithms.txt";
  const auto train = [&](int64_t steps) {
    choices_made = 0;
    auto strategy = distribute::Strategy::Create({.num_replicas = 2, .num_threads = 2}).value();
    return Estimator::Create(model, config, std::move(strategy)).value()->Train(Input(1), steps, {});
  };
  REQUIRE(train(2).ok());
  CHECK(choices_made == 1);  // the two replicas are alike
  const std::string text = files::ReadFile(file, 1000).value();
  CHECK_THAT(text, Contains("TestChoosing ") && Contains("1 thread, ") && Contains("\tchosen\n"));
  REQUIRE(train(4).ok());
  CHECK(choices_made == 0);

  // The file decides, not the kernel.
  REQUIRE(files::WriteFileAtomically(file, absl::StrReplaceAll(text, {{"chosen", "foreign"}})).ok());
  CHECK_THAT(std::string(train(6).message()), Contains("foreign algorithm"));
  REQUIRE(files::WriteFileAtomically(file, "not a choice\n").ok());
  REQUIRE(train(6).ok());
  CHECK(choices_made == 1);
  CHECK(files::ReadFile(file, 1000).value() == text);

  REQUIRE(files::RemoveFile(file).ok());
  config.winograd = false;
  REQUIRE(train(8).ok());
  CHECK(choices_made == 0);
  CHECK_FALSE(files::Exists(file));
}

TEST_CASE("Facts of a run are kept in its checkpoints and compared when it resumes") {
  EstimatorConfig config = Config();
  const auto difference = [](absl::string_view before) { return absl::StrCat("the words were ", before); };
  const auto resume = [&](const std::string& value, bool must_match) {
    config.facts = {{.name = "words", .value = value, .difference = difference, .must_match = must_match}};
    return Estimator::Create(Line(), config, distribute::Strategy::Create({}).value());
  };
  // A checkpoint of before there was such a fact.
  REQUIRE(MakeEstimator(config)->Train(Input(1), 1, {}).ok());
  logs::CapturedLog log(logs::LogFormat::kSimple);
  REQUIRE(resume("ten", /*must_match=*/true).value()->Train(Input(1), 2, {}).ok());
  REQUIRE(resume("ten", /*must_match=*/true).value()->Train(Input(1), 3, {}).ok());
  CHECK_THAT(log.Text(), !Contains("the words were"));

  const absl::Status refused = resume("two", /*must_match=*/true).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(refused.message() == "the words were ten");
  CHECK_THAT(log.Text(), !Contains("the words were"));
  REQUIRE(resume("two", /*must_match=*/false).ok());
  CHECK_THAT(log.Text(), Contains("the words were ten"));

  // A run that does not know a fact keeps the checkpoint's; one that has another value, its own.
  REQUIRE(resume("", /*must_match=*/true).value()->Train(Input(1), 4, {}).ok());
  CHECK(resume("two", /*must_match=*/true).status().message() == "the words were ten");
  REQUIRE(resume("two", /*must_match=*/false).value()->Train(Input(1), 5, {}).ok());
  CHECK(resume("ten", /*must_match=*/true).status().message() == "the words were two");
}

TEST_CASE("Who has other data than a directory's run is told how to get those, if a flag gives them") {
  EstimatorConfig config = Config();
  const std::string end = "another --model_dir, or --clean to start again there";
  for (const auto& [before, advice] : std::map<std::string, std::string>{
           {"MNIST", "; give the data of that run (--data_dir), " + end},
           {"MNIST-synthetic", "; give the data of that run (--use_synthetic_data), " + end},
           {"ratings", "; give the data of that run (--ratings_file), " + end},
           {"generated ml-1m", "; give " + end},
           {"drawn digits", "; give " + end}}) {
    config.model_dir = Config().model_dir;
    config.dataset = before;
    REQUIRE(MakeEstimator(config)->Train(Input(1), 1, {}).ok());
    config.dataset = "others";
    const absl::Status refused = Estimator::Create(Line(), config, distribute::Strategy::Create({}).value()).status();
    CHECK(refused.message() == absl::StrCat("--model_dir=", config.model_dir, " holds a run on ", before,
                                            " and this run is on others", advice));
  }
}

TEST_CASE("Counters that no run has written are refused") {
  const std::vector<std::tuple<std::string, int64_t, bool>> cases = {
      {"global_step", int64_t{1} << 53, true},  {"global_step", (int64_t{1} << 53) + 1, false},
      {"global_step", int64_t{1} << 62, false}, {"global_step", -1, false},
      {"_run/epoch", int64_t{1} << 31, false},  {"_run/index", int64_t{1} << 62, false}};
  for (const auto& [name, value, good] : cases) {
    const EstimatorConfig config = Config();
    REQUIRE(CheckpointSaver::Open(config.model_dir, 5).value()->Save(1, {{name, Tensor::Scalar(value)}}).ok());
    auto strategy = distribute::Strategy::Create({.num_threads = 2}).value();
    const absl::Status status = Estimator::Create(Line(), config, std::move(strategy)).status();
    CHECK(status.ok() == good);
    if (good) continue;
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()),
               Contains(absl::StrCat(name, " in the checkpoint ", config.model_dir, "/model.ckpt-1 is ", value)));
  }
}

TEST_CASE("Positions of workers that no run has written are refused") {
  const auto status_with = [](const Tensor& positions) {
    const EstimatorConfig config = Config();
    const auto saver = CheckpointSaver::Open(config.model_dir, 5).value();
    REQUIRE(saver->Save(1, {{"_run/worker_positions", positions}}).ok());
    return Estimator::Create(Line(), config, distribute::Strategy::Create({.num_threads = 2}).value()).status();
  };
  const auto positions = [](int64_t epoch, int64_t index) {
    Tensor tensor(compute::DType::kInt64, {2, 2});
    for (int64_t i = 0; i < 4; ++i) tensor.data<int64_t>()[i] = i < 2 ? 0 : i == 2 ? epoch : index;
    return tensor;
  };
  CHECK(status_with(positions(3, 100)).ok());
  for (const auto& [epoch, index] :
       {std::pair<int64_t, int64_t>{-1, 0}, {int64_t{1} << 31, 0}, {0, int64_t{1} << 62}}) {
    const absl::Status status = status_with(positions(epoch, index));
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()),
               Contains("_run/worker_positions in the checkpoint") && Contains(absl::StrCat("is ", epoch + index)));
  }
  for (const Tensor& other : {Tensor(compute::DType::kInt64, {2, 3}), Tensor(compute::DType::kInt64, {4}),
                              Tensor(compute::DType::kFloat32, {2, 2})}) {
    const absl::Status status = status_with(other);
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()), Contains("instead of int64[workers, 2]"));
  }
}

TEST_CASE("The last evaluation is remembered") {
  const EstimatorConfig config = Config();
  const InputFn once = [](data::Position) { return data::Prefetch(Input(1)({}).value(), 0); };
  {
    const auto estimator = MakeEstimator(config, 2);
    REQUIRE(estimator->Train(Input(1), 3, {}).ok());
    CHECK_FALSE(estimator->state().evaluated_step);
    REQUIRE(estimator->Evaluate(once, 2).ok());
    CHECK_FALSE(estimator->state().evaluated_step);
    REQUIRE(estimator->KeepEvaluatedStep().ok());
    CHECK(estimator->state().evaluated_step == 3);
  }
  CHECK(MakeEstimator(config)->state().evaluated_step == 3);
  CHECK_FALSE(MakeEstimator(config)->state().evaluated_metric);
  REQUIRE(MakeEstimator(config)->KeepEvaluatedStep(0.6).ok());
  CHECK(MakeEstimator(config)->state().evaluated_step == 3);
  CHECK(MakeEstimator(config)->state().evaluated_metric == 0.6);
}

TEST_CASE("The evaluation of a checkpoint that is lost is forgotten") {
  EstimatorConfig config = Config();
  {
    const auto estimator = MakeEstimator(config);
    REQUIRE(estimator->Train(Input(1), 2, {}).ok());
    REQUIRE(estimator->Train(Input(1), 3, {}).ok());
    REQUIRE(estimator->Evaluate([](data::Position) { return data::Prefetch(Input(1)({}).value(), 0); }, 2).ok());
    REQUIRE(estimator->KeepEvaluatedStep().ok());
  }
  const std::string file = config.model_dir + "/eval/evaluated_step";
  const auto remove = [&](int64_t step) {
    std::filesystem::remove(absl::StrCat(config.model_dir, "/model.ckpt-", step, ".index"));
    std::filesystem::remove(absl::StrCat(config.model_dir, "/model.ckpt-", step, ".data-00000-of-00001"));
  };
  remove(3);
  config.trains = GENERATE(false, true);
  CHECK(MakeEstimator(config)->state().evaluated_step == 1);  // so that one of step 2 may be due
  CHECK(files::ReadFile(file, 100).value() == (config.trains ? "1\n" : "3\n"));

  remove(0);
  remove(2);
  std::filesystem::remove(config.model_dir + "/checkpoint");
  const std::string history = config.model_dir + "/eval/results.txt";
  REQUIRE(files::WriteFileAtomically(history, "3 loss=1\n").ok());
  const auto fresh = MakeEstimator(config);
  CHECK(fresh->origin() == "fresh");
  CHECK_FALSE(fresh->state().evaluated_step);
  CHECK(files::Exists(file) == !config.trains);
  CHECK(files::Exists(history) == !config.trains);
}

TEST_CASE("An evaluation leaves alone what the training of the directory above is writing") {
  EstimatorConfig config = Config();
  const std::string above = config.model_dir;
  config.model_dir = files::JoinPath(above, "best");
  REQUIRE(MakeEstimator(config)->Train(Input(1), 3, {}).ok());
  std::vector<std::unique_ptr<files::AtomicFile>> written;
  for (const char* const name : {"checkpoint", "model.ckpt-5.data-00000-of-00001"}) {
    written.push_back(files::AtomicFile::Create(files::JoinPath(config.model_dir, name)).value());
    REQUIRE(written.back()->Finish().ok());
  }
  const auto unfinished = [&] {
    const std::vector<std::string> names = files::ListDirectory(config.model_dir).value();
    return std::count_if(names.begin(), names.end(), [](const auto& name) { return files::FinalNameOf(name); });
  };
  config.trains = false;
  auto training = RunLock::Acquire(above).value();
  REQUIRE(MakeEstimator(config)->Evaluate(Input(1), 2).ok());
  CHECK(unfinished() == 2);
  // When nobody trains there, it belongs to a run that was killed.
  training = nullptr;
  REQUIRE(MakeEstimator(config)->Evaluate(Input(1), 2).ok());
  CHECK(unfinished() == 0);
}

}  // namespace
}  // namespace official::train
