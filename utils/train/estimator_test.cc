// The parts of the Estimator that a whole program does not show; official/*/*_test.cc run the rest.

#include "utils/train/estimator.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/event.pb.h"
#include "utils/protos/graph.pb.h"
#include "utils/protos/step_stats.pb.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Fits x [batch, 2] * w to the labels [batch].
Model Line() {
  return {.name = "line",
          .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
            const Value w = in.graph.Variable({"w", {DType::kFloat32, {2, 1}}, compute::Initializer::Zeros()});
            const Value y = compute::Reshape(compute::MatMul(in.features[0], w), {in.features[0].shape().dim(0)});
            if (in.mode == Mode::kPredict) return ModelSpec{.loss = {}, .predictions = {{"y", y}}};
            return ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0]))),
                             .predictions = {},
                             .metrics = {},
                             .logged = {},
                             .moving_averages = {}};
          },
          .optimizer = compute::GradientDescent,
          .learning_rate = [](int64_t) { return 0.1; }};
}

// Batches of 4 examples; the last feature of each batch, or only of batch number `of_batch`, is `last`.
InputFn Input(float last, std::optional<int> of_batch = {}) {
  return [last, of_batch](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const int batches = 20;
    Tensor x(DType::kFloat32, {4 * batches, 2}), y(DType::kFloat32, {4 * batches});
    for (int i = 0; i < 8 * batches; ++i) {
      const bool here = i % 8 == 7 && of_batch.value_or(i / 8) == i / 8;
      x.data<float>()[i] = here ? last : static_cast<float>(i % 3);
    }
    for (int i = 0; i < 4 * batches; ++i) y.data<float>()[i] = static_cast<float>(i % 2);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = 4, .start = start, .end_epoch = data::kEndless});
  };
}

// As Input(1), but with something that happens when the first example of the fourth batch is read.
InputFn InputWithFault(std::function<absl::Status()> fault) {
  return [fault](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {8, 2}), y(DType::kFloat32, {8});
    const data::DatasetPtr zeros = data::TensorSlices({{"", x}}, {{"", y}});
    const auto read = std::make_shared<int>(0);
    ASSIGN_OR_RETURN(data::BatchSourcePtr batches,
                     data::Batches(data::Map(zeros, zeros->spec(), /*seed=*/1,
                                             [fault, read](const data::Example&, data::Random&, const data::Example&) {
                                               return ++*read == 13 ? fault() : absl::OkStatus();
                                             }),
                                   {.batch_size = 4, .start = start, .end_epoch = data::kEndless}));
    return data::Prefetch(std::move(batches), /*depth=*/2);
  };
}

EstimatorConfig Config() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/estimator-", getpid(), "-", ++counter);
  return config;
}

std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas = 1) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(Line(), std::move(config), std::move(strategy)).value();
}

TEST_CASE("A number that is not finite in the share of one replica ends all at once") {
  const int bad_replica_of = GENERATE(1, 2, 4);
  const auto estimator = MakeEstimator(Config(), bad_replica_of);
  REQUIRE(estimator->Train(Input(1), 3, {}).ok());
  const absl::Status status = estimator->Train(Input(NAN), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             Contains("step 4: the first tensor that is not finite is features (Input") &&
                 Contains("the last one is of step 3)"));
  CHECK(estimator->global_step() == 3);
}

// Asks for a trace of step 2.
class TracesSecondStep : public logs::Hook {
 public:
  logs::StepRequest BeforeStep(int64_t next_step, logs::TimePoint) override { return {.trace = next_step == 2}; }
};

TEST_CASE("The event file has the graph of the training and what a traced step took") {
  const EstimatorConfig config = Config();
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<TracesSecondStep>());
  REQUIRE(MakeEstimator(config)->Train(Input(1), 3, hooks).ok());

  tensorflow::GraphDef graph;
  tensorflow::RunMetadata metadata;
  int graphs = 0, traces = 0;
  const std::vector<std::string> names = files::ListDirectory(config.model_dir).value();
  for (const std::string& name : names) {
    if (!absl::StrContains(name, "tfevents")) continue;
    const auto reader = data::TFRecordReader::Open(files::JoinPath(config.model_dir, name)).value();
    for (std::string record; reader->Next(&record).value();) {
      tensorflow::Event event;
      REQUIRE(event.ParseFromString(record));
      if (event.has_graph_def() && ++graphs) REQUIRE(graph.ParseFromString(event.graph_def()));
      if (!event.has_tagged_run_metadata()) continue;
      ++traces;
      CHECK(event.step() == 2);
      CHECK(event.tagged_run_metadata().tag() == "step_2");
      REQUIRE(metadata.ParseFromString(event.tagged_run_metadata().run_metadata()));
    }
  }
  REQUIRE(graphs == 1);
  const auto& nodes = graph.node();
  CHECK(
      std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.name() == "w" && n.op() == "VariableV2"; }));
  CHECK(std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.op() == "MatMul"; }));
  REQUIRE(traces == 1);
  REQUIRE(metadata.step_stats().dev_stats_size() == 1);
  CHECK(metadata.step_stats().dev_stats(0).device() == "/device:CPU:0");
  CHECK(metadata.step_stats().dev_stats(0).node_stats_size() > 0);
}

TEST_CASE("Replicas whose variables have come apart end the run before they are saved") {
  // A sum of what each replica sees of the batches, 8 and 10 after two, which nobody adds up.
  Model model = Line();
  const auto x = std::make_shared<Value>();
  model.model_fn = [x, line = model.model_fn](const ModelInputs& in) {
    *x = in.features[0];
    return line(in);
  };
  model.optimizer = [x](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
    std::vector<compute::Node*> targets = compute::GradientDescent(inputs, variables);
    const Value drift = x->graph()->Variable({"drift", {DType::kFloat32, {}}, compute::Initializer::Zeros(), false});
    targets.push_back(compute::AssignAdd(drift, compute::Sum(*x)));
    return targets;
  };
  EstimatorConfig config = Config();
  config.check_replicas_steps = 2;
  auto strategy = distribute::Strategy::Create({.num_replicas = 2, .num_threads = 2}).value();
  const auto estimator = Estimator::Create(model, config, std::move(strategy)).value();
  const absl::Status status = estimator->Train(Input(2), 20, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("drift is no longer the same on replica 0 and replica 1"));
  CHECK(estimator->global_step() == 2);
  CHECK_FALSE(files::Exists(config.model_dir + "/model.ckpt-2.index"));
}

// Batches of 6 examples [4] that are 1 where they count, of which as many as the example's number in its batch do.
InputFn Ragged() {
  return [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {60, 4});
    for (int i = 0; i < 240; ++i) x.data<float>()[i] = i % 4 < i / 4 % 5 ? 1 : 0;
    return data::Batches(data::TensorSlices({{"", x}}, {}),
                         {.batch_size = 6, .start = start, .end_epoch = data::kEndless});
  };
}

// The mean of (i w - 1)^2 over all numbers that count, packed: i is the place of a number among its share's.
Model Packed() {
  Model model = Line();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {1}}, compute::Initializer::Zeros()});
    const Value error = compute::Sub(compute::Mul(in.features[0], w), in.features[1]);
    const Value one = in.graph.Constant(Tensor::Scalar(1.0f));
    const Value count = compute::Maximum(compute::Sum(in.features[1]), one);
    return ModelSpec{.loss = compute::Div(compute::Sum(compute::Square(error)), count)};
  };
  // Numbers 1 to 4 of each example that counts, behind each other; then ones for those; both padded to a multiple of 8.
  model.share = [](Mode, const data::Batch& batch, const compute::Share& examples) {
    std::vector<float> numbers;
    for (int64_t i = 4 * examples.begin; i < 4 * examples.end; ++i) {
      if (batch.features[0].data<float>()[i] == 1) numbers.push_back(static_cast<float>(i % 4 + 1));
    }
    const auto rows = static_cast<int64_t>(std::max<size_t>(1, (numbers.size() + 7) / 8) * 8);
    Tensor x(DType::kFloat32, {rows}), counts(DType::kFloat32, {rows});
    for (size_t i = 0; i < numbers.size(); ++i) {
      x.data<float>()[i] = numbers[i];
      counts.data<float>()[i] = 1;
    }
    return BatchShare{examples, {x, counts}, {}, static_cast<int64_t>(numbers.size())};
  };
  return model;
}

TEST_CASE("Shares may have shapes of their own, and count by what they hold") {
  const auto train = [&](int num_replicas) {
    auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
    const auto estimator = Estimator::Create(Packed(), Config(), std::move(strategy)).value();
    REQUIRE(estimator->Train(Ragged(), 10, {}).ok());
    return estimator->Variable("w")->data<float>()[0];
  };
  // The same by hand.
  double w = 0;
  for (int step = 0; step < 10; ++step) {
    double gradient = 0;
    int count = 0;
    for (int example = 6 * step; example < 6 * step + 6; ++example) {
      for (int i = 1; i <= example % 5; ++i, ++count) gradient += 2.0 * i * (i * w - 1);
    }
    w -= 0.1 * gradient / count;
  }
  for (const int num_replicas : {1, 2, 3, 7}) {
    CAPTURE(num_replicas);
    CHECK(train(num_replicas) == Approx(w).epsilon(1e-6));
  }
}

// A device of kind "late", as a GPU is: it has memory of its own, and tells what only the data tell when it is next
// read from, or some runs later. Its kernels are the CPU's; after such an error they leave the variables alone.
class LateDevice : public compute::Device {
 public:
  explicit LateDevice(const compute::DeviceOptions& options) : cpu_(compute::MakeDevice("cpu", options).value()) {}
  absl::string_view kind() const override { return "late"; }
  absl::string_view name() const override { return "late:0"; }
  std::string Description() const override { return "late:0"; }
  std::string Hardware() const override { return "late"; }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  bool uses_host_memory() const override { return false; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override {
    return cpu_->CopyToDevice(device, host, bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override {
    RETURN_IF_ERROR(cpu_->CopyToHost(host, device, bytes));
    return Tell();
  }
  absl::StatusOr<std::unique_ptr<compute::FeedBuffers>> MakeFeedBuffers(absl::Span<const int64_t> bytes) override {
    ASSIGN_OR_RETURN(auto copied, Device::MakeFeedBuffers(bytes));
    return std::make_unique<Feeds>(*this, std::move(copied));
  }
  void MakeCurrent() override { cpu_->MakeCurrent(); }
  absl::Status Synchronize() override { return Tell(); }

  static void RegisterKernels() {
    for (const compute::KernelDef* def : compute::KernelRegistry::Global().All()) {
      if (def->device_kind != "cpu") continue;
      compute::KernelDef late = *def;
      late.device_kind = "late";
      late.make = [make = def->make](const compute::KernelSpec& spec) -> absl::StatusOr<compute::Kernel> {
        ASSIGN_OR_RETURN(compute::Kernel kernel, make(spec));
        auto& device = static_cast<LateDevice&>(spec.device);
        const absl::string_view op = spec.node.op().name.text();
        const bool writes_variables =
            absl::StartsWith(op, "Apply") || absl::StartsWith(op, "Assign") || absl::StartsWith(op, "Update");
        kernel.run = [&device, writes_variables, run = std::move(kernel.run)](const compute::KernelArgs& args) {
          if (writes_variables && !device.error_.ok()) return absl::OkStatus();
          const absl::Status status = run(args);
          if (!absl::IsOutOfRange(status)) return status;
          if (device.error_.ok()) device.failed_fill_ = device.num_fills_;
          device.error_.Update(status);
          return absl::OkStatus();
        };
        return kernel;
      };
      compute::RegisterKernel(std::move(late));
    }
  }

 private:
  struct Feeds : compute::FeedBuffers {
    Feeds(LateDevice& device, std::unique_ptr<compute::FeedBuffers> copied)
        : device(device), copied(std::move(copied)) {}
    void* data(int i) const override { return copied->data(i); }
    absl::Status Fill(absl::Span<const void* const> feeds) override {
      if (device.num_fills_ + 1 - device.failed_fill_ >= compute::kMaxRunsBehind) RETURN_IF_ERROR(device.Tell());
      ++device.num_fills_;
      return copied->Fill(feeds);
    }
    LateDevice& device;
    std::unique_ptr<compute::FeedBuffers> copied;
  };
  absl::Status Tell() { return std::exchange(error_, absl::OkStatus()); }

  std::unique_ptr<compute::Device> cpu_;
  absl::Status error_;
  int64_t num_fills_ = 0, failed_fill_ = 0;
};

TEST_CASE("A device that tells of a bad number only later has the right step and tensor named, and nothing saved") {
  static const bool registered =
      compute::RegisterDeviceKind({.name = "late",
                                   .make_device =
                                       [](const compute::DeviceOptions& options) {
                                         return absl::StatusOr<std::unique_ptr<compute::Device>>(
                                             std::make_unique<LateDevice>(options));
                                       }}) &&
      (LateDevice::RegisterKernels(), true);
  REQUIRE(registered);
  const int bad_step = GENERATE(2, 7, 10), num_replicas = GENERATE(1, 2);
  CAPTURE(bad_step, num_replicas);
  EstimatorConfig config = Config();
  config.save_checkpoints_steps = GENERATE(1, 5, 100);  // told by the next save, one some steps later, or never
  config.log_every_n_steps = GENERATE(100, 3);
  auto strategy =
      distribute::Strategy::Create({.device_kind = "late", .num_replicas = num_replicas, .num_threads = 2}).value();
  const auto estimator = Estimator::Create(Line(), config, std::move(strategy)).value();
  const absl::Status status = estimator->Train(Input(NAN, bad_step - 1), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  const int64_t last = (bad_step - 1) / *config.save_checkpoints_steps * *config.save_checkpoints_steps;
  CHECK_THAT(std::string(status.message()),
             Contains(absl::StrCat("step ", bad_step, ": the first tensor that is not finite is features (Input")) &&
                 Contains(absl::StrCat("the last one is of step ", last, ")")));
  CHECK(estimator->global_step() == bad_step - 1);
}

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

TEST_CASE("A stop and a wish to save are met while a read of data hangs") {
  std::promise<void> disk;
  const auto alive = std::make_shared<int>();
  const InputFn input = InputWithFault([back = disk.get_future().share(), alive] {
    back.wait();
    return absl::OkStatus();
  });
  EstimatorConfig config = Config();
  const Estimator* running = nullptr;
  int asked = 0;  // after three steps; the first time is after the third, the others are while it waits
  bool saved = false;
  config.interruption = [&] {
    if (running->global_step() < 3 || ++asked == 1) return Interruption::kNone;
    if (asked == 2) return Interruption::kSave;
    saved |= files::Exists(config.model_dir + "/model.ckpt-3.index");
    return saved || asked == 300 ? Interruption::kStop : Interruption::kNone;
  };
  {
    const auto estimator = MakeEstimator(config);
    running = estimator.get();
    const absl::Status status = estimator->Train(input, 20, {});
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()), Contains("stopped at step 3"));
    CHECK(saved);
  }
  CHECK(MakeEstimator(config)->global_step() == 3);
  CHECK(alive.use_count() > 1);
  disk.set_value();
  while (alive.use_count() > 2) std::this_thread::yield();  // this one and that of `input`
}

TEST_CASE("A stop is met where not even the first batch comes, and in an evaluation") {
  std::promise<void> disk;
  const auto alive = std::make_shared<int>();
  const auto hangs = [alive, back = disk.get_future().share()](data::Position) {
    Tensor x(DType::kFloat32, {4, 2}), y(DType::kFloat32, {4});
    const data::DatasetPtr zeros = data::TensorSlices({{"", x}}, {{"", y}});
    return data::Prefetch(
        data::Batches(data::Map(zeros, zeros->spec(), /*seed=*/1,
                                [alive, back](const data::Example&, data::Random&, const data::Example&) {
                                  back.wait();
                                  return absl::OkStatus();
                                }),
                      {.batch_size = 4})
            .value(),
        /*depth=*/2);
  };
  EstimatorConfig config = Config();
  bool stop = true;
  config.interruption = [&] { return stop ? Interruption::kStop : Interruption::kNone; };
  const auto estimator = MakeEstimator(config);
  const absl::Status train = estimator->Train(hangs, 20, {});
  CHECK(absl::IsCancelled(train));
  CHECK_THAT(std::string(train.message()), Contains("stopped before step 1 had its data"));
  CHECK_FALSE(files::Exists(config.model_dir + "/checkpoint"));
  stop = false;
  REQUIRE(estimator->Train(Input(1), 2, {}).ok());
  int asked = 0;
  config.interruption = [&] { return ++asked == 3 ? Interruption::kStop : Interruption::kNone; };
  CHECK(absl::IsCancelled(MakeEstimator(config)->Evaluate(hangs, 1).status()));
  disk.set_value();
  while (alive.use_count() > 2) std::this_thread::yield();
}

TEST_CASE("An error of the data comes out as it is, after what was trained until then is saved") {
  const EstimatorConfig config = Config();
  const absl::Status lost = absl::AbortedError("cannot read 16 bytes at offset 48 of train: Input/output error");
  CHECK(MakeEstimator(config)->Train(InputWithFault([&] { return lost; }), 20, {}) == lost);
  CHECK(MakeEstimator(config)->global_step() == 3);
}

TEST_CASE("A request to save is met between the regular ones") {
  EstimatorConfig config = Config();
  int asked = 0;
  config.interruption = [&] { return ++asked == 5 ? Interruption::kSave : Interruption::kNone; };
  REQUIRE(MakeEstimator(config)->Train(Input(1), 20, {}).ok());
  CHECK(files::Exists(config.model_dir + "/model.ckpt-5.index"));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-20.index"));
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

TEST_CASE("A variable of the checkpoint that is not finite is an error of what reads it, which names it") {
  const EstimatorConfig config = Config();
  Tensor w(DType::kFloat32, {2, 1});
  w.data<float>()[1] = NAN;
  REQUIRE(CheckpointSaver::Open(config.model_dir, 5)
              .value()
              ->Save(3, {{"w", w}, {"global_step", Tensor::Scalar<int64_t>(3)}})
              .ok());
  const int num_replicas = GENERATE(1, 2);
  const auto estimator = MakeEstimator(config, num_replicas);
  const data::ElementSpec spec = Input(1)({}).value()->spec();
  const absl::Status statuses[] = {
      estimator->Evaluate(Input(1), 2).status(),
      estimator->Predict(spec, {Tensor(DType::kFloat32, {4, 2})}).status(),
      estimator->BuildForExport(spec).status(),
  };
  for (const absl::Status& status : statuses) {
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()),
               Contains("variable w (float32[2,1]) at step 3 is not finite: its element 1 is nan, in the checkpoint"));
  }
  // Nor is it trained on.
  CHECK_THAT(std::string(estimator->Train(Input(1), 4, {}).message()),
             Contains("step 4: the first tensor that is not"));
}

TEST_CASE("A loss that is not finite with variables that are is an error, which names the first such tensor") {
  const int num_replicas = GENERATE(1, 2);
  const auto estimator = MakeEstimator(Config(), num_replicas);
  REQUIRE(estimator->Train(Input(1), 3, {}).ok());
  const absl::Status status = estimator->Evaluate(Input(NAN), 2).status();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(
      std::string(status.message()),
      Contains("the loss of the evaluation is not finite: the first tensor that is not finite is features (Input"));
  CHECK(estimator->Evaluate(Input(1), 2).ok());
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

TEST_CASE("Links in place of the files of a run are refused before anything is trained") {
  for (const std::string name : {"flags.txt", "algorithms.txt", "eval/evaluated_step"}) {
    const EstimatorConfig config = Config();
    REQUIRE(files::MakeDirectories(config.model_dir + "/eval").ok());
    std::filesystem::create_symlink("/nowhere", config.model_dir + "/" + name);
    const absl::Status status =
        Estimator::Create(Line(), config, distribute::Strategy::Create({.num_threads = 2}).value()).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Contains(name + ": it is a symbolic link"));
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
}

}  // namespace
}  // namespace official::train
