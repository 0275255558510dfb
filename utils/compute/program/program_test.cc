#include "utils/compute/program/program.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/program/memory_plan.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

constexpr OpName kTestSquare("TestSquare"), kTestSquareGrad("TestSquareGrad"), kTestAccumulate("TestAccumulate");

// A toy op, x -> x * x, with all the parts of a real one.
const bool op = RegisterOp({
    .name = kTestSquare,
    .infer = SameTypeAsInput,
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply(kTestSquareGrad, {node.input(0), dy[0]})};
        },
});
const bool grad_op = RegisterOp({.name = kTestSquareGrad, .infer = SameTypeAsInput});
const bool add_op = RegisterOp({.name = kTestAccumulate, .infer = SameTypeAsInput, .has_side_effect = true});

Kernel FloatKernel(const KernelSpec& spec, std::function<void(const KernelArgs&, int64_t n)> f) {
  return {[f = std::move(f), n = spec.node.input(0).shape().num_elements()](const KernelArgs& args) {
    f(args, n);
    return absl::OkStatus();
  }};
}

const bool kernel = RegisterKernel({
    .op = kTestSquare,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return FloatKernel(spec, [](const KernelArgs& args, int64_t n) {
        for (int64_t i = 0; i < n; ++i) args.output<float>(0)[i] = args.input<float>(0)[i] * args.input<float>(0)[i];
      });
    },
    .in_place = {{0, 0}},
});
const bool grad_kernel = RegisterKernel({
    .op = kTestSquareGrad,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return FloatKernel(spec, [](const KernelArgs& args, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          args.output<float>(0)[i] = 2 * args.input<float>(0)[i] * args.input<float>(1)[i];
        }
      });
    },
    .in_place = {{0, 1}},
});
const bool accumulate_kernel = RegisterKernel({
    .op = kTestAccumulate,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return FloatKernel(spec, [](const KernelArgs& args, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          args.variable<float>(0)[i] += args.input<float>(1)[i];
          args.output<float>(0)[i] = 0;
        }
      });
    },
});

Value Square(Value x) { return Apply(kTestSquare, {x}); }

TEST_CASE("A program computes a chain and its gradient") {
  const testing::OpCase test{
      .op = kTestSquare,
      .inputs = {testing::RandomTensor({3, 5}, 1)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{Square(Square(in[0]))}; },
      .reference =
          [](const std::vector<testing::Doubles>& in) {
            testing::Doubles y;
            for (const double x : in[0]) y.push_back(x * x * x * x);
            return std::vector<testing::Doubles>{y};
          },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Buffers are shared in place and dead nodes removed") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {1024}});
  const Value unused = Square(x);
  Value y = x;
  for (int i = 0; i < 10; ++i) y = Square(y);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{x}, {y}, {}}, *device, variables).value();
  CHECK(program->arena_bytes() == 4096);  // ten results, one buffer: nothing reads the earlier ones again
  const std::string text = program->DebugString();
  CHECK(std::count(text.begin(), text.end(), '\n') == 10);
  CHECK(unused.node()->name() == "TestSquare");
}

TEST_CASE("A result takes the buffer of rows that are the first of a value") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {4, 256}});
  const Value first = Square(FirstRows(Square(x), 3));
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{x}, {first}, {}}, *device, variables).value();
  CHECK(program->arena_bytes() == 4096);
  REQUIRE(program->Run({testing::RandomTensor({4, 256}, 1)}).ok());
  const Tensor y = program->Fetch(0).value();
  CHECK(y.type().ToString() == "float32[3,256]");
  const Tensor fed = testing::RandomTensor({4, 256}, 1);
  for (int64_t i = 0; i < 3 * 256; ++i) {
    const float square = fed.data<float>()[i] * fed.data<float>()[i];
    REQUIRE(y.data<float>()[i] == square * square);
  }
}

// TestRead(x, number) = x, and TestNumbers(x), as many int32 as x has elements. TestRead's output may take the buffer
// of either input.
constexpr OpName kTestNumbers("TestNumbers"), kTestRead("TestRead");
const bool numbers_ops = RegisterOp({.name = kTestNumbers,
                                     .infer =
                                         [](const InferContext& c) {
                                           return std::vector<TensorType>{{DType::kInt32, c.shape(0)}};
                                         }}) &&
                         RegisterOp({.name = kTestRead, .infer = SameTypeAsInput});
const bool numbers_kernel = RegisterKernel({
    .op = kTestNumbers,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return FloatKernel(spec, [](const KernelArgs& args, int64_t n) { std::fill_n(args.output<int32_t>(0), n, 1); });
    },
});
const bool read_kernel = RegisterKernel({
    .op = kTestRead,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return FloatKernel(
          spec, [](const KernelArgs& args, int64_t n) { std::copy_n(args.input<float>(0), n, args.output<float>(0)); });
    },
    .in_place = {{0, 1}, {0, 0}},
});

TEST_CASE("A result takes the buffer of an input of its own element type only") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {1024}});
  const Value numbers = Apply(kTestNumbers, {x});
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const auto arena_bytes = [&](Value a, Value b) {
    return Program::Compile(graph, {{x}, {Apply(kTestRead, {a, b})}, {}}, *device, variables).value()->arena_bytes();
  };
  CHECK(arena_bytes(x, numbers) == 2 * 4096);
  CHECK(arena_bytes(x, Square(x)) == 4096);
  CHECK(arena_bytes(Square(x), numbers) == 2 * 4096);
}

TEST_CASE("Variables keep their values between runs and targets run for their effect") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value v = graph.Variable({"v", {DType::kFloat32, {2}}, Initializer::Ones()});
  Node* update = ApplyNode(kTestAccumulate, {v, x});
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{x}, {}, {update}}, *device, variables).value();
  const Tensor feed = Tensor::Of<float>({2}, {1, 2});
  REQUIRE(program->Run({feed}).ok());
  REQUIRE(program->Run({feed}).ok());
  CHECK(variables.Read("v")->data<float>()[1] == 5);
  CHECK(absl::IsNotFound(variables.Read("w").status()));
}

// A device with memory of its own that takes recordings; its kernels work at once or, while it records, are kept.
class Recorder : public Device {
 public:
  absl::string_view kind() const override { return "recorder"; }
  absl::string_view name() const override { return "recorder:0"; }
  std::string Description() const override { return "recorder:0"; }
  std::string Hardware() const override { return "recorder"; }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override {
    if (bytes > limit) return absl::ResourceExhaustedError("the limit is reached");
    return std::shared_ptr<void>(std::calloc(1, bytes + 1), std::free);
  }
  bool uses_host_memory() const override { return false; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, bytes);
    return absl::OkStatus();
  }
  void MakeCurrent() override {}
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> run) override {
    auto recording = std::make_unique<Kept>();
    recording_ = &recording->work;
    const absl::Status status = run();
    recording_ = nullptr;
    if (!status.ok()) return status;
    return recording;
  }

  absl::Status CheckRecording() override {
    return static_cast<int>(recording_->size()) == refused ? refusal : absl::OkStatus();
  }

  void Do(std::function<void()> work) {
    ++calls;
    recording_ == nullptr ? work() : recording_->push_back(std::move(work));
  }
  int calls = 0;
  int64_t limit = std::numeric_limits<int64_t>::max();  // of the bytes of a buffer
  int refused = 0;                                      // the number of the kernel, from 1, that cannot be recorded
  absl::Status refusal = absl::UnavailableError("not here");

 private:
  struct Kept : Recording {
    std::vector<std::function<void()>> work;
    absl::Status Replay() override {
      for (const auto& f : work) f();
      return absl::OkStatus();
    }
  };
  std::vector<std::function<void()>>* recording_ = nullptr;
};

const bool recorder_kernel = RegisterKernel({
    .op = kTestAccumulate,
    .device_kind = "recorder",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return Kernel{[&device = static_cast<Recorder&>(spec.device)](const KernelArgs& args) {
        device.Do([to = args.variable<float>(0), from = args.input<float>(1)] { *to += *from; });
        return absl::OkStatus();
      }};
    },
});

const bool recorder_square = RegisterKernel({
    .op = kTestSquare,
    .device_kind = "recorder",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return Kernel{[&device = static_cast<Recorder&>(spec.device),
                     n = spec.input(0).shape.num_elements()](const KernelArgs& args) {
        device.Do([n, y = args.output<float>(0), x = args.input<float>(0)] {
          for (int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i];
        });
        return absl::OkStatus();
      }};
    },
});

TEST_CASE("The second run is recorded, and replayed from then on with new feeds") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {}});
  const Value v = graph.Variable({"v", {DType::kFloat32, {}}, Initializer::Zeros()});
  Node* update = ApplyNode(kTestAccumulate, {v, x});
  Recorder device;
  VariableStore variables(device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{x}, {}, {update}}, device, variables).value();
  for (const float feed : {1.0f, 2.0f, 4.0f, 8.0f}) REQUIRE(program->Run({Tensor::Scalar(feed)}).ok());
  CHECK(variables.Read("v")->scalar<float>() == 15);
  CHECK(device.calls == 2);  // run and recorded; no kernel is called for a replay
  std::vector<KernelTiming> timings;
  REQUIRE(program->Run({Tensor::Scalar(16.0f)}, {.timings = &timings}).ok());
  REQUIRE(timings.size() == 1);
  CHECK(timings[0].bytes == 16);  // of x, of v, which is read and written, and of the result
  CHECK_FALSE(timings[0].flops.has_value());
  CHECK(variables.Read("v")->scalar<float>() == 31);
}

// v += x * x on a recorder.
struct Sum {
  explicit Sum(Recordings recordings) : variables(device) {
    device.set_recordings(recordings);
    device.set_warn([this](const std::string& text) { warnings.push_back(text); });
    const Value x = graph.Input("x", {DType::kFloat32, {}});
    const Value v = graph.Variable({"v", {DType::kFloat32, {}}, Initializer::Zeros()});
    Node* const update = ApplyNode(kTestAccumulate, {v, Square(x)});
    REQUIRE(variables.Create(graph, 1).ok());
    program = Program::Compile(graph, {{x}, {}, {update}}, device, variables).value();
  }
  absl::Status Add(float x, bool replay = true) { return program->Run({Tensor::Scalar(x)}, {.replay = replay}); }

  Graph graph;
  Recorder device;
  VariableStore variables;
  std::unique_ptr<Program> program;
  std::vector<std::string> warnings;
};

TEST_CASE("Where a kernel cannot be recorded, the program says which and runs without a recording") {
  Sum sum(Recordings::kAuto);
  sum.device.refused = 2;
  for (const float x : {1.0f, 2.0f, 3.0f, 4.0f}) REQUIRE(sum.Add(x).ok());
  CHECK(sum.variables.Read("v")->scalar<float>() == 30);
  CHECK(sum.device.recordings() == Recordings::kOff);
  REQUIRE(sum.warnings.size() == 1);
  CHECK_THAT(sum.warnings[0], Catch::Contains("CUDA graph") && Catch::Contains(": TestAccumulate: not here"));
  CHECK_FALSE(sum.program->RecordingIsDue());
}

TEST_CASE("Where a recording must be made, that it cannot is an error") {
  Sum sum(Recordings::kMust);
  sum.device.refused = 1;
  REQUIRE(sum.Add(1).ok());
  const absl::Status status = sum.Add(2);
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "TestSquare: not here");
  CHECK(sum.warnings.empty());
  CHECK(sum.variables.Read("v")->scalar<float>() == 1);
}

TEST_CASE("The failure of others while a step is recorded is no reason to run it without a recording") {
  Sum sum(Recordings::kAuto);
  sum.device.refused = 1;
  sum.device.refusal = GENERATE(absl::CancelledError("worker 1 is lost"), absl::DeadlineExceededError("too late"));
  REQUIRE(sum.Add(1).ok());
  CHECK(sum.Add(2).code() == sum.device.refusal.code());
  CHECK(sum.warnings.empty());
  CHECK(sum.device.recordings() == Recordings::kAuto);
  CHECK(sum.variables.Read("v")->scalar<float>() == 1);
}

TEST_CASE("Nothing is recorded where recordings are off, and nothing replayed where that is not wanted") {
  Sum off(Recordings::kOff);
  for (const float x : {1.0f, 2.0f, 3.0f}) REQUIRE(off.Add(x).ok());
  CHECK(off.device.calls == 6);
  Sum sum(Recordings::kMust);
  REQUIRE(sum.Add(1).ok());
  CHECK(sum.program->RecordingIsDue());
  REQUIRE(sum.Add(2, /*replay=*/false).ok());
  CHECK(sum.device.calls == 4);
  REQUIRE(sum.program->Record().ok());
  CHECK(sum.device.calls == 6);
  REQUIRE(sum.Add(3).ok());
  CHECK(sum.device.calls == 6);
  REQUIRE(sum.Add(4, /*replay=*/false).ok());
  CHECK(sum.device.calls == 8);
  CHECK(sum.variables.Read("v")->scalar<float>() == 30);
}

TEST_CASE("Programs of one arena run in turn, and follow it where it moves") {
  Recorder device;
  Arena arena(device);
  VariableStore variables(device);
  struct One {
    Graph graph;
    std::unique_ptr<Program> program;
  };
  std::vector<std::unique_ptr<One>> all;
  const auto check = [](Program& program, int64_t n) {
    Tensor x(DType::kFloat32, {n});
    for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = static_cast<float>(i % 5);
    REQUIRE(program.Run({x}).ok());
    const Tensor y = program.Fetch(0).value();
    for (int64_t i = 0; i < n; ++i) CHECK(y.data<float>()[i] == std::pow(static_cast<float>(i % 5), 8.0f));
  };
  for (const int64_t n : {10, 10000, 100}) {
    auto one = std::make_unique<One>();
    const Value x = one->graph.Input("x", {DType::kFloat32, {n}});
    one->program =
        Program::Compile(one->graph, {{x}, {Square(Square(Square(x)))}, {}}, device, variables, {.arena = &arena})
            .value();
    // Often enough that the first ones have been recorded when the arena moves.
    for (int i = 0; i < 3; ++i) check(*one->program, n);
    all.push_back(std::move(one));
  }
  const int calls = device.calls;
  check(*all[0]->program, 10);
  CHECK(device.calls == calls + 3);  // recorded anew
  check(*all[1]->program, 10000);
  check(*all[0]->program, 10);
  CHECK(device.calls == calls + 3);
}

TEST_CASE("Where an arena cannot grow, the programs before it still have their place") {
  Recorder device;
  Arena arena(device);
  VariableStore variables(device);
  Graph graph;
  // Fetches x^2, x^4 and so on of x [n], so that each has its own place.
  const auto compile = [&](int64_t n, int num_squares) {
    const Value x = graph.Input("x", {DType::kFloat32, {n}});
    std::vector<Value> squares;
    for (int i = 0; i < num_squares; ++i) squares.push_back(Square(i == 0 ? x : squares.back()));
    return Program::Compile(graph, {{x}, squares, {}}, device, variables, {.arena = &arena});
  };
  const auto check = [](Program& program, int64_t n) {
    const Tensor x(DType::kFloat32, {n});
    std::fill_n(x.data<float>(), n, 3.0f);
    REQUIRE(program.Run({x}).ToString() == "OK");
    const Tensor y = program.Fetch(1).value();
    CHECK(std::all_of(y.data<float>(), y.data<float>() + n, [](float v) { return v == 81; }));
  };
  const auto first = compile(1000, 2).value();
  for (int i = 0; i < 3; ++i) check(*first, 1000);  // also with a recording
  device.limit = 10000;
  for (int i = 0; i < 2; ++i) {
    CHECK(absl::IsResourceExhausted(compile(1000, 5).status()));
    check(*first, 1000);
    const auto smaller = compile(10, 2).value();
    check(*smaller, 10);
    check(*first, 1000);
  }
  device.limit = 1000;
  CHECK(absl::IsResourceExhausted(compile(10, 200).status()));
  CHECK(absl::IsResourceExhausted(first->Run({Tensor(DType::kFloat32, {1000})})));
  const auto smaller = compile(10, 2).value();
  check(*smaller, 10);
  CHECK(absl::IsResourceExhausted(first->Run({Tensor(DType::kFloat32, {1000})})));
  CHECK_FALSE(first->RecordingIsDue());
  device.limit = 10000;
  for (int i = 0; i < 3; ++i) check(*first, 1000);
  check(*smaller, 10);
}

TEST_CASE("A failed graph does not compile and says why") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2}});
  const Value y = Apply(OpName("NoSuchOp"), {x});
  CHECK(!y);
  CHECK(!Square(y));
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const absl::Status status = Program::Compile(graph, {{x}, {}, {}}, *device, variables).status();
  CHECK_THAT(std::string(status.message()), Catch::Contains("NoSuchOp"));
}

TEST_CASE("An op that the device has no kernel for is refused by its name") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kInt32, {2}});
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const absl::Status status = Program::Compile(graph, {{x}, {Square(x)}, {}}, *device, variables).status();
  CHECK(absl::IsUnimplemented(status));
  CHECK(status.message() == "op TestSquare has no kernel for int32 on cpu devices");
}

TEST_CASE("Constants are folded") {
  Graph graph;
  const Value x = graph.Constant(Tensor::Of<float>({2}, {3, 4}));
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{}, {Square(x)}, {}}, *device, variables).value();
  CHECK(program->DebugString().empty());
  REQUIRE(program->Run({}).ok());
  CHECK(program->Fetch(0)->data<float>()[1] == 16);
}

TEST_CASE("The memory plan reuses what is dead and never overlaps what is alive") {
  const std::vector<BufferRequest> requests = {{100, 0, 1}, {1000, 1, 2}, {100, 2, 3}, {900, 3, 4}, {64, 0, 4}};
  const MemoryPlan plan = PlanMemory(requests);
  CHECK(plan.arena_bytes == 1024 + 128 + 64);
  for (size_t a = 0; a < requests.size(); ++a) {
    for (size_t b = a + 1; b < requests.size(); ++b) {
      const bool together =
          requests[a].first_call <= requests[b].last_call && requests[b].first_call <= requests[a].last_call;
      const bool apart = plan.offsets[a] + requests[a].bytes <= plan.offsets[b] ||
                         plan.offsets[b] + requests[b].bytes <= plan.offsets[a];
      CHECK((!together || apart));
    }
  }
}

}  // namespace
}  // namespace official::compute
