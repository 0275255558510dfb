// What the Estimator does when something goes wrong: numbers that are not finite, data that fail or do not come, links
// in place of its files.

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/hook.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/checkpointed_model.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;

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
    return Synchronize();
  }
  absl::StatusOr<std::unique_ptr<compute::FeedBuffers>> MakeFeedBuffers(absl::Span<const int64_t> bytes) override {
    ASSIGN_OR_RETURN(auto copied, Device::MakeFeedBuffers(bytes));
    return std::make_unique<Feeds>(*this, std::move(copied));
  }
  absl::StatusOr<std::unique_ptr<compute::HostBuffer>> MakeHostBuffer(int64_t bytes) override {
    ASSIGN_OR_RETURN(auto copied, cpu_->MakeHostBuffer(bytes));
    return std::make_unique<Value>(*this, std::move(copied));
  }
  void MakeCurrent() override { cpu_->MakeCurrent(); }
  absl::Status Synchronize() override {
    ++num_synchronized;
    return Tell();
  }

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

  // The runs that had begun between the start of a HostBuffer's copy and the wait for it, by wait.
  static inline std::vector<int64_t> runs_behind;
  // The number of waits for all that was given to a device.
  static inline std::atomic<int> num_synchronized = 0;

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
  struct Value : compute::HostBuffer {
    Value(LateDevice& device, std::unique_ptr<compute::HostBuffer> copied)
        : device(device), copied(std::move(copied)) {}
    absl::Status StartCopy(const void* from) override {
      fills = device.num_fills_;
      return copied->StartCopy(from);
    }
    absl::StatusOr<const void*> Wait() override {
      runs_behind.push_back(device.num_fills_ - fills);
      return copied->Wait();
    }
    LateDevice& device;
    std::unique_ptr<compute::HostBuffer> copied;
    int64_t fills = 0;
  };
  absl::Status Tell() { return std::exchange(error_, absl::OkStatus()); }

  std::unique_ptr<compute::Device> cpu_;
  absl::Status error_;
  int64_t num_fills_ = 0, failed_fill_ = 0;
};

std::unique_ptr<distribute::Strategy> LateStrategy(int num_replicas) {
  static const bool registered =
      compute::RegisterDeviceKind({.name = "late",
                                   .make_device =
                                       [](const compute::DeviceOptions& options) {
                                         return absl::StatusOr<std::unique_ptr<compute::Device>>(
                                             std::make_unique<LateDevice>(options));
                                       }}) &&
      (LateDevice::RegisterKernels(), true);
  REQUIRE(registered);
  return distribute::Strategy::Create({.device_kind = "late", .num_replicas = num_replicas, .num_threads = 2}).value();
}

TEST_CASE("A device that tells of a bad number only later has the right step and tensor named, and nothing saved") {
  const int bad_step = GENERATE(2, 7, 10), num_replicas = GENERATE(1, 2);
  CAPTURE(bad_step, num_replicas);
  EstimatorConfig config = Config();
  config.save_checkpoints_steps = GENERATE(1, 5, 100);  // told by the next save, one some steps later, or never
  config.log_every_n_steps = GENERATE(100, 3);
  const auto estimator = Estimator::Create(Line(), config, LateStrategy(num_replicas)).value();
  const absl::Status status = estimator->Train(Input(NAN, bad_step - 1), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  const int64_t last = (bad_step - 1) / *config.save_checkpoints_steps * *config.save_checkpoints_steps;
  CHECK_THAT(std::string(status.message()),
             Contains(absl::StrCat("step ", bad_step, ": the first tensor that is not finite is features (Input")) &&
                 Contains(absl::StrCat("the last one is of step ", last, ")")));
  CHECK(estimator->global_step() == bad_step - 1);
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

// The files of a directory and what they hold.
std::map<std::string, std::string> FilesIn(const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    all[entry.path().string()] = files::ReadFile(entry.path().string(), /*max_bytes=*/1 << 20).value();
  }
  return all;
}

TEST_CASE("A checkpoint of another model is an error each time that it is read, and stays as it is") {
  EstimatorConfig config = Config();
  REQUIRE(CheckpointSaver::Open(config.model_dir, 5)
              .value()
              ->Save(3, {{"v", Tensor(DType::kFloat32, {2, 1})}, {"global_step", Tensor::Scalar<int64_t>(3)}})
              .ok());
  const int num_replicas = GENERATE(1, 2);
  if (GENERATE(false, true)) config.ema_decay = 0.9;
  const data::ElementSpec spec = Input(1)({}).value()->spec();
  const auto fails_twice = [&](const std::function<absl::Status(Estimator&)>& use) {
    const auto estimator = MakeEstimator(config, num_replicas);
    const auto before = FilesIn(config.model_dir);
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = use(*estimator);
      CHECK(absl::IsDataLoss(status));
      CHECK_THAT(std::string(status.message()), Contains("is not of this model (line); it has no w"));
    }
    CHECK(FilesIn(config.model_dir) == before);
  };
  fails_twice([&](Estimator& e) { return e.Predict(spec, {Tensor(DType::kFloat32, {4, 2})}).status(); });
  fails_twice([&](Estimator& e) { return e.Train(Input(1), 5, {}); });
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

TEST_CASE("A metric's sum that is not finite because of the batch is not named as the first such tensor") {
  Model model = Line();
  model.model_fn = [line = Line()](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    ASSIGN_OR_RETURN(ModelSpec spec, line.model_fn(in));
    spec.metrics = {{"error", spec.loss, in.graph.Constant(Tensor::Scalar(1.0f))}};
    return spec;
  };
  const int num_replicas = GENERATE(1, 2);
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  const auto estimator = Estimator::Create(model, Config(), std::move(strategy)).value();
  REQUIRE(estimator->Train(Input(1), 3, {}).ok());
  const absl::Status status = estimator->Evaluate(Input(1e30f), 2).status();  // its square is infinite
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             Contains("the loss of the evaluation is not finite: the first tensor that is not finite is ") &&
                 !Contains("_local/"));
}

TEST_CASE("Evaluation does not wait for each batch, gives the same numbers and names the batch's first bad tensor") {
  const int num_replicas = GENERATE(1, 2);
  const auto on_cpu = MakeEstimator(Config(), num_replicas);
  REQUIRE(on_cpu->Train(Input(1), 3, {}).ok());
  const auto late = Estimator::Create(Line(), Config(), LateStrategy(num_replicas)).value();
  REQUIRE(late->Train(Input(1), 3, {}).ok());
  REQUIRE(late->Evaluate(Input(1), 1).ok());  // what is done once
  const auto synchronized_for = [&](int batches) {
    LateDevice::num_synchronized = 0;
    LateDevice::runs_behind.clear();
    const EvalResults results = late->Evaluate(Input(1), batches).value();
    CHECK(results == on_cpu->Evaluate(Input(1), batches).value());
    CHECK(LateDevice::runs_behind.size() == static_cast<size_t>(batches * num_replicas));
    return LateDevice::num_synchronized.load();
  };
  CHECK(synchronized_for(10) == synchronized_for(20));
  CHECK(LateDevice::runs_behind.front() == compute::kMaxRunsBehind);

  const int bad_batch = GENERATE(0, 5, 9);
  const absl::Status status = late->Evaluate(Input(NAN, bad_batch), 10).status();
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(
      std::string(status.message()),
      Contains("the loss of the evaluation is not finite: the first tensor that is not finite is features (Input"));
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

// Its file cannot be written after step 4.
class FailsAfterFourthStep : public logs::Hook {
 public:
  explicit FailsAfterFourthStep(absl::Status error) : error_(std::move(error)) {}
  absl::Status AfterStep(const logs::StepInfo& step) override {
    return step.global_step == 4 ? error_ : absl::OkStatus();
  }

 private:
  const absl::Status error_;
};

TEST_CASE("An error of a hook comes out as it is, after its step is saved") {
  const EstimatorConfig config = Config();
  const absl::Status full = absl::AbortedError("cannot write 99 bytes to metric.log: No space left on device");
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<FailsAfterFourthStep>(full));
  CHECK(MakeEstimator(config)->Train(Input(1), 20, hooks) == full);
  CHECK(MakeEstimator(config)->global_step() == 4);
}

// A directory in place of a file of the checkpoint of `step`, which can therefore not be saved while it lives.
class Obstacle {
 public:
  Obstacle(const EstimatorConfig& config, int64_t step)
      : path_(absl::StrCat(config.model_dir, "/model.ckpt-", step, ".data-00000-of-00001")) {
    REQUIRE(files::MakeDirectories(path_).ok());
  }
  ~Obstacle() { std::filesystem::remove(path_); }

 private:
  const std::string path_;
};

TEST_CASE("A save on request that the storage fails is a warning, and training goes on") {
  EstimatorConfig config = Config();
  const Obstacle obstacle(config, 3);
  const Estimator* running = nullptr;
  bool asked = false;
  config.interruption = [&] {
    const bool asks = running->global_step() == 3 && !std::exchange(asked, true);
    return asks ? Interruption::kSave : Interruption::kNone;
  };
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const auto estimator = MakeEstimator(config);
  running = estimator.get();
  CHECK(estimator->Train(Input(1), 5, {}).ToString() == "OK");
  CHECK(asked);
  CHECK_THAT(log.Text(), Contains("step 3: the checkpoint of step 3") && Contains("; the next save, if the run") &&
                             !Contains("on SIGUSR2"));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-5.index"));
}

TEST_CASE("A save that the storage has failed is tried again at the same step, once") {
  const EstimatorConfig config = Config();
  const auto model =
      CheckpointedModel::Open(Line(), config, distribute::Strategy::Create({.num_threads = 2}).value()).value();
  REQUIRE(model->dir().BeginTraining(0, compute::Graph()).ok());
  std::optional<Obstacle> obstacle;
  obstacle.emplace(config, 0);
  REQUIRE(model->Save().ok());
  CHECK_FALSE(model->dir().WaitForSave().ok());
  SECTION("there is room again") {
    obstacle.reset();
    CHECK(model->Save().ok());
    CHECK(model->dir().WaitForSave().ok());
    CHECK(files::Exists(config.model_dir + "/model.ckpt-0.index"));
  }
  SECTION("there is none yet") {
    const absl::Status second = model->Save();
    CHECK_FALSE(second.ok());
    CHECK(model->dir().WaitForSave() == second);
  }
}

TEST_CASE("Links in place of the files of a run are refused before anything is trained") {
  for (const std::string name : {"flags.txt", "algorithms.txt", "eval/evaluated_step", "eval/results.txt"}) {
    const EstimatorConfig config = Config();
    REQUIRE(files::MakeDirectories(config.model_dir + "/eval").ok());
    std::filesystem::create_symlink("/nowhere", config.model_dir + "/" + name);
    const absl::Status status =
        Estimator::Create(Line(), config, distribute::Strategy::Create({.num_threads = 2}).value()).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Contains(name + ": it is a symbolic link"));
  }
  const EstimatorConfig config = Config();
  REQUIRE(files::MakeDirectories(config.model_dir).ok());
  std::filesystem::create_symlink("/nowhere", config.model_dir + "/eval");
  const absl::Status status =
      Estimator::Create(Line(), config, distribute::Strategy::Create({.num_threads = 2}).value()).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Contains("/eval: it is a symbolic link, not a directory"));
}

}  // namespace
}  // namespace official::train
