#include "utils/compute/testing/op_test.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/random.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/recorded_kernels.h"

namespace official::compute::testing {
namespace {

struct Target {
  std::string device_kind;
  DType dtype;
};

// Where the case runs: the kernel's key type is the case's floating type if input 0 is floating, else fixed. Of the
// kinds of device that there are, one at least has what the case needs.
std::vector<Target> TargetsOf(const OpCase& test) {
  const std::vector<std::string> tested = KindsUnderTest();
  std::vector<Target> targets;
  bool found = false;
  const bool floating_key = !test.inputs.empty() && IsFloating(test.inputs[0].dtype());
  for (const std::string& kind : DeviceKinds()) {
    for (const DType dtype : StorageTypes()) {
      const DType key = floating_key ? dtype : test.inputs[0].dtype();
      const auto has_kernel = [&](OpName op) { return KernelRegistry::Global().Find(op, kind, key) != nullptr; };
      if (!has_kernel(test.op) || !std::all_of(test.needs.begin(), test.needs.end(), has_kernel)) continue;
      found = true;
      if (std::find(tested.begin(), tested.end(), kind) != tested.end()) targets.push_back({kind, dtype});
      if (!floating_key) break;
    }
  }
  REQUIRE(found);
  return targets;
}

// Inputs as the target gets them.
std::vector<Tensor> InputsFor(const OpCase& test, DType dtype) {
  std::vector<Tensor> inputs;
  for (const Tensor& t : test.inputs) inputs.push_back(IsFloating(t.dtype()) ? t.CastTo(dtype) : t);
  return inputs;
}

std::vector<Doubles> AllToDoubles(const std::vector<Tensor>& tensors) {
  std::vector<Doubles> result;
  for (const Tensor& t : tensors) result.push_back(ToDoubles(t));
  return result;
}

double ToleranceOf(const OpCase& test, DType dtype) {
  const OpDef* def = FindOp(test.op.text());
  REQUIRE(def != nullptr);
  return def->tolerance.Of(dtype);
}

void CheckClose(const Doubles& got, const Doubles& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    // Of an infinite `want` the tolerance would be infinite too.
    const bool close =
        (std::isfinite(want[i]) && std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i]))) ||
        (std::isnan(got[i]) && std::isnan(want[i])) || got[i] == want[i];
    if (!close) {
      CAPTURE(i, got[i], want[i], tolerance);
      CHECK(close);
      return;
    }
  }
}

Value AddInput(Graph& graph, const Tensor& tensor, size_t i) {
  return graph.Input(absl::StrCat("input", i), tensor.type());
}

std::string KernelName(OpName op, absl::string_view device_kind, absl::string_view type) {
  return absl::StrCat(op.text(), " ", device_kind, " ", type);
}

// The names of the kernels that were recorded.
std::set<std::string>& Recorded() {
  static auto* const recorded = new std::set<std::string>;
  return *recorded;
}

void Record(OpName op, absl::string_view device_kind, absl::string_view type, absl::string_view what,
            double tolerance) {
  const std::string kernel = KernelName(op, device_kind, type);
  if (what != "gradient") Recorded().insert(kernel);
  const char* path = std::getenv("OP_TEST_RECORD");
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  file << absl::StrCat(kernel, " ", what, " ", tolerance, "\n") << std::flush;
  REQUIRE(file.good());
}

// What the kernels of a program are recorded as: "forward" those of `op`, `others` the rest.
struct RecordAs {
  std::optional<OpName> op = {};
  std::string others = "part";
  double tolerance = 0;
};

// The op of a line of Program::DebugString: "<op>(<inputs>) -> <outputs>".
OpName OpOf(absl::string_view line) { return FindOp(line.substr(0, line.find('(')))->name; }

void RecordProgram(const Program& program, absl::string_view device_kind, const RecordAs& as) {
  const std::string text = program.DebugString();
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // "Op(name:0 float32[2,3], ...) -> name:0 float32[2]": the key type is that of the first input, or else output.
    const OpName op = OpOf(line);
    const bool has_inputs = line[op.text().size() + 1] != ')';
    const absl::string_view rest = line.substr(has_inputs ? op.text().size() : line.find("-> ") + 3);
    const absl::string_view type = rest.substr(rest.find(' ') + 1);
    Record(op, device_kind, type.substr(0, type.find('[')), op == as.op ? "forward" : as.others, as.tolerance);
  }
}

std::vector<Tensor> RunGraph(const Graph& graph, const GraphRoots& roots, const std::vector<Tensor>& feeds,
                             Device& device, CompileOptions options, const RecordAs& record_as) {
  VariableStore variables(device);
  Arena arena(device);
  options.arena = &arena;
  const absl::StatusOr<std::unique_ptr<Program>> program = Program::Compile(graph, roots, device, variables, options);
  INFO(program.status());
  REQUIRE(program.ok());
  // NaN in every floating type: a kernel that reads what nobody wrote shows it.
  const int64_t bytes = (*program)->arena_bytes();
  if (device.uses_host_memory() && bytes > 0) std::memset(arena.data(), 0xFF, bytes);
  // A device that makes recordings replays one in the second run.
  for (int run = 0; run < (device.uses_host_memory() ? 1 : 2); ++run) {
    const absl::Status status = (*program)->Run(feeds);
    INFO(status);
    REQUIRE(status.ok());
  }
  RecordProgram(**program, device.kind(), record_as);
  std::vector<Tensor> results;
  for (size_t i = 0; i < roots.fetches.size(); ++i) {
    const absl::StatusOr<Tensor> result = (*program)->Fetch(static_cast<int>(i));
    INFO(result.status());
    REQUIRE(result.ok());
    results.push_back(result->Clone());
  }
  return results;
}

}  // namespace

std::vector<std::string> KindsUnderTest() {
  // Where there is no driver this looks for one file.
  static const absl::Status cuda = LoadCudaBackend();
  if (const char* const only = std::getenv("OP_TEST_KIND")) return {only};
  return DeviceKinds();
}

absl::Status RunAndWait(Program& program, absl::Span<const Tensor> feeds, Device& device) {
  const absl::Status status = program.Run(feeds);
  const absl::Status later = device.Synchronize();
  return status.ok() ? later : status;
}

Doubles ToDoubles(const Tensor& tensor) {
  const Tensor doubles = tensor.CastTo(DType::kFloat64);
  const absl::Span<double> values = doubles.flat<double>();
  return Doubles(values.begin(), values.end());
}

Tensor RandomTensor(Shape shape, uint64_t seed, double low, double high) {
  Tensor result(DType::kFloat32, std::move(shape));
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    result.data<float>()[i] = static_cast<float>(low + (high - low) * UniformFloat(Philox(seed, 0, i)[0]));
  }
  return result;
}

Tensor RandomInts(Shape shape, uint64_t seed, int n) {
  Tensor result(DType::kInt32, std::move(shape));
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    result.data<int32_t>()[i] = static_cast<int32_t>(Philox(seed, 1, i)[0] % n);
  }
  return result;
}

void CheckForward(const OpCase& test) {
  for (const Target& target : TargetsOf(test)) {
    const std::vector<Tensor> inputs = InputsFor(test, target.dtype);
    Graph graph;
    GraphRoots roots;
    for (size_t i = 0; i < inputs.size(); ++i) roots.feeds.push_back(AddInput(graph, inputs[i], i));
    roots.fetches = test.build(roots.feeds);
    INFO(test.op << " on " << target.device_kind << " in " << DTypeName(target.dtype) << ": " << graph.status());
    REQUIRE(graph.status().ok());
    const std::vector<Doubles> want = test.reference(AllToDoubles(inputs));
    REQUIRE(want.size() == roots.fetches.size());
    const std::unique_ptr<Device> device = MakeDevice(target.device_kind).value();
    for (const bool fuse : {true, false}) {
      const std::vector<Tensor> got = RunGraph(graph, roots, inputs, *device, {.fuse = fuse},
                                               {.op = test.op, .tolerance = ToleranceOf(test, target.dtype)});
      for (size_t k = 0; k < got.size(); ++k) {
        INFO("output " << k << (fuse ? ", fused" : ", not fused"));
        CheckClose(ToDoubles(got[k]), want[k], ToleranceOf(test, target.dtype));
      }
    }
  }
}

void CheckGradients(const OpCase& test) {
  for (const Target& target : TargetsOf(test)) {
    const std::vector<Tensor> inputs = InputsFor(test, target.dtype);
    Graph graph;
    GraphRoots roots;
    std::vector<Tensor> feeds = inputs;
    for (size_t i = 0; i < inputs.size(); ++i) roots.feeds.push_back(AddInput(graph, inputs[i], i));
    std::vector<Value> xs;
    std::vector<size_t> x_index;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!IsFloating(inputs[i].dtype())) continue;
      xs.push_back(roots.feeds[i]);
      x_index.push_back(i);
    }
    std::vector<Value> ys, seeds;
    std::vector<Doubles> seed_values;
    const std::vector<Value> outputs = test.build(roots.feeds);
    for (size_t k = 0; k < outputs.size(); ++k) {
      INFO(test.op << ": " << graph.status());
      REQUIRE(outputs[k]);
      if (!IsFloating(outputs[k].dtype())) {
        seed_values.emplace_back();
        continue;
      }
      const Tensor seed = RandomTensor(outputs[k].shape(), 77 + k).CastTo(outputs[k].dtype());
      seeds.push_back(graph.Input(absl::StrCat("seed", k), seed.type()));
      roots.feeds.push_back(seeds.back());
      feeds.push_back(seed);
      ys.push_back(outputs[k]);
      seed_values.push_back(ToDoubles(seed));
    }
    roots.fetches = Gradients(ys, seeds, xs);
    INFO(test.op << " gradient on " << target.device_kind << " in " << DTypeName(target.dtype) << ": "
                 << graph.status());
    REQUIRE(graph.status().ok());
    for (const Value& gradient : roots.fetches) REQUIRE(gradient);

    // sum over k of <reference output k, seed k>
    const auto objective = [&](const std::vector<Doubles>& at) {
      const std::vector<Doubles> y = test.reference(at);
      double sum = 0;
      for (size_t k = 0; k < y.size(); ++k) {
        for (size_t i = 0; i < seed_values[k].size(); ++i) sum += y[k][i] * seed_values[k][i];
      }
      return sum;
    };
    Record(test.op, target.device_kind, DTypeName(inputs[0].dtype()), "gradient", ToleranceOf(test, target.dtype));
    const std::vector<Doubles> at = AllToDoubles(inputs);
    const std::unique_ptr<Device> device = MakeDevice(target.device_kind).value();
    for (const bool fuse : {true, false}) {
      const std::vector<Tensor> got =
          RunGraph(graph, roots, feeds, *device, {.fuse = fuse}, {.tolerance = ToleranceOf(test, target.dtype)});
      for (size_t g = 0; g < got.size(); ++g) {
        Doubles want;
        std::vector<Doubles> moved = at;
        for (double& x : moved[x_index[g]]) {
          constexpr double kStep = 1e-5;
          const double center = x;
          x = center + kStep;
          const double above = objective(moved);
          x = center - kStep;
          const double below = objective(moved);
          x = center;
          want.push_back((above - below) / (2 * kStep));
        }
        INFO("input " << x_index[g] << (fuse ? ", fused" : ", not fused"));
        CheckClose(ToDoubles(got[g]), want, ToleranceOf(test, target.dtype));
      }
    }
  }
}

std::vector<Tensor> RunOn(absl::string_view device_kind, const std::vector<Tensor>& inputs,
                          const std::function<std::vector<Value>(absl::Span<const Value>)>& build,
                          const CompileOptions& options) {
  Graph graph;
  GraphRoots roots;
  for (size_t i = 0; i < inputs.size(); ++i) roots.feeds.push_back(AddInput(graph, inputs[i], i));
  roots.fetches = build(roots.feeds);
  INFO(graph.status());
  REQUIRE(graph.status().ok());
  const std::unique_ptr<Device> device = MakeDevice(device_kind).value();
  return RunGraph(graph, roots, inputs, *device, options, {.others = "run"});
}

std::vector<Tensor> RunOnCpu(const std::vector<Tensor>& inputs,
                             const std::function<std::vector<Value>(absl::Span<const Value>)>& build,
                             const CompileOptions& options) {
  return RunOn("cpu", inputs, build, options);
}

std::vector<OpName> CompiledOps(const std::vector<TensorType>& inputs,
                                const std::function<std::vector<Value>(absl::Span<const Value>)>& build) {
  Graph graph;
  GraphRoots roots;
  for (size_t i = 0; i < inputs.size(); ++i) roots.feeds.push_back(graph.Input(absl::StrCat("input", i), inputs[i]));
  roots.fetches = build(roots.feeds);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const absl::StatusOr<std::unique_ptr<Program>> program = Program::Compile(graph, roots, *device, variables);
  INFO(program.status());
  REQUIRE(program.ok());
  std::vector<OpName> ops;
  for (const absl::string_view line : absl::StrSplit((*program)->DebugString(), '\n', absl::SkipEmpty())) {
    ops.push_back(OpOf(line));
  }
  return ops;
}

bool HasRun(OpName op, absl::string_view device_kind, DType dtype) {
  return Recorded().count(KernelName(op, device_kind, DTypeName(dtype))) > 0;
}

void RecordKernels(const Program& program, absl::string_view device_kind) {
  RecordProgram(program, device_kind, {.others = "run"});
}

void RecordGradient(OpName op, absl::string_view device_kind, DType dtype) {
  Record(op, device_kind, DTypeName(dtype), "gradient", 0);
}

absl::Status BuildStatus(const std::vector<TensorType>& inputs,
                         const std::function<std::vector<Value>(absl::Span<const Value>)>& build) {
  Graph graph;
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(graph.Input(absl::StrCat("input", i), inputs[i]));
  build(values);
  return graph.status();
}

}  // namespace official::compute::testing
