#include "utils/compute/cuda/cudnn_plans.h"

#include <algorithm>
#include <set>

namespace official::compute {
namespace {

using Descriptor = CudnnDescriptor;

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr int64_t kMaxWorkspace = int64_t{1} << 30;  // bytes

// The names that one of the three operations has for its attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t images, filters, output, window, alpha, beta;
};
Operation OperationOf(ConvResult result) {
  switch (result) {
    case ConvResult::kOutput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvResult::kImages:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvResult::kFilters:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

// A tensor that lies as [n, h, w, c]; cuDNN names dimensions in the order n, c, h, w whatever lies where.
absl::StatusOr<Descriptor> MakeTensor(int64_t id, DType dtype, const std::array<int64_t, 4>& dims) {
  const auto [n, h, w, c] = dims;
  ASSIGN_OR_RETURN(Descriptor tensor, Descriptor::Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const cudnnDataType_t type = dtype == DType::kFloat32    ? CUDNN_DATA_FLOAT
                               : dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16
                                                           : CUDNN_DATA_HALF;
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type));
  RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, c, h, w}));
  RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, std::array{h * w * c, int64_t{1}, w * c, c}));
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id));
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16}));
  RETURN_IF_ERROR(tensor.Finalize());
  return tensor;
}

absl::StatusOr<Descriptor> MakeWindow(const CudnnConvolution& c) {
  ASSIGN_OR_RETURN(Descriptor window, Descriptor::Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2}));
  RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION));
  RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.padding));
  RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.padding));
  RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilations));
  RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.strides));
  RETURN_IF_ERROR(window.Finalize());
  return window;
}

// Returns the descriptors of type `type` that `attribute` of `whole` consists of, `most` at most.
absl::StatusOr<std::vector<Descriptor>> PartsOf(const Descriptor& whole, cudnnBackendAttributeName_t attribute,
                                                cudnnBackendDescriptorType_t type, int64_t most) {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> to;
  for (int64_t i = 0; i < most; ++i) {
    ASSIGN_OR_RETURN(Descriptor part, Descriptor::Make(type));
    to.push_back(part.get());
    parts.push_back(std::move(part));
  }
  int64_t count = 0;
  CALL(cudnnBackendGetAttribute(whole.get(), attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, to.data()));
  parts.erase(parts.begin() + std::min(count, most), parts.end());
  return parts;
}

// Returns "engine 38, knobs 2=1 17=40": cuDNN's number of the engine, and how the configuration sets each type of knob.
absl::StatusOr<std::string> NameOf(const Descriptor& config, const Descriptor& engine) {
  int64_t index = 0, count = 0;
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index));
  ASSIGN_OR_RETURN(
      const std::vector<Descriptor> choices,
      PartsOf(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS));
  std::set<std::pair<int, int64_t>> knobs;
  for (const Descriptor& choice : choices) {
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t value = 0;
    CALL(cudnnBackendGetAttribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count,
                                  &type));
    CALL(
        cudnnBackendGetAttribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count, &value));
    knobs.emplace(static_cast<int>(type), value);
  }
  std::string name = absl::StrCat("engine ", index, knobs.empty() ? "" : ", knobs");
  for (const auto& [type, value] : knobs) absl::StrAppend(&name, " ", type, "=", value);
  return name;
}

// Whether an engine computes as Engines promises. With tensor cores, float32 is computed in TF32.
absl::StatusOr<bool> IsAllowed(const Descriptor& engine, bool tensor_cores) {
  int64_t count = 0;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
           (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !tensor_cores);
  });
}

// Whether cuDNN compiles an engine's kernels when a plan is made, for which it needs NVRTC.
absl::StatusOr<bool> IsCompiledAtRunTime(const Descriptor& engine) {
  int64_t count = 0;
  cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes));
  return std::find(notes, notes + count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes + count;
}

// What there is to know of a configuration of an engine before a plan is made of it.
struct ConfigFacts {
  std::string name;
  bool allowed, compiled_at_run_time;
};
absl::StatusOr<ConfigFacts> FactsOf(const Descriptor& config, bool tensor_cores) {
  ASSIGN_OR_RETURN(const std::vector<Descriptor> engines,
                   PartsOf(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.empty()) return absl::InternalError("a configuration without an engine");
  ConfigFacts facts;
  ASSIGN_OR_RETURN(facts.name, NameOf(config, engines[0]));
  ASSIGN_OR_RETURN(facts.allowed, IsAllowed(engines[0], tensor_cores));
  ASSIGN_OR_RETURN(facts.compiled_at_run_time, IsCompiledAtRunTime(engines[0]));
  return facts;
}

// The engines that cuDNN recommends, best first.
absl::StatusOr<std::vector<Descriptor>> Recommended(const Descriptor& graph, const Descriptor* properties,
                                                    cudnnBackendHeurMode_t mode, CudnnRefusals& refused) {
  ASSIGN_OR_RETURN(Descriptor heuristics, Descriptor::Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  RETURN_IF_ERROR(heuristics.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
  if (properties != nullptr) {
    RETURN_IF_ERROR(heuristics.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties));
  }
  // Some operations are unknown to some modes.
  if (const absl::Status status = heuristics.Finalize(); !status.ok()) {
    refused.Add(status);
    return std::vector<Descriptor>();
  }
  int64_t count = 0;
  CALL(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                &count, nullptr));
  return PartsOf(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

}  // namespace

absl::StatusOr<ConvPlans> ConvPlans::Make(cudnnHandle_t handle, const Descriptor* properties,
                                          const CudnnConvolution& c) {
  ASSIGN_OR_RETURN(Descriptor x, MakeTensor(kImagesId, c.dtype, c.images));
  ASSIGN_OR_RETURN(Descriptor w, MakeTensor(kFiltersId, c.dtype, c.filters));
  ASSIGN_OR_RETURN(Descriptor y, MakeTensor(kOutputId, c.dtype, c.output));
  ASSIGN_OR_RETURN(Descriptor window, MakeWindow(c));
  const Operation names = OperationOf(c.result);
  ASSIGN_OR_RETURN(Descriptor operation, Descriptor::Make(names.type));
  RETURN_IF_ERROR(operation.SetDescriptor(names.images, x));
  RETURN_IF_ERROR(operation.SetDescriptor(names.filters, w));
  RETURN_IF_ERROR(operation.SetDescriptor(names.output, y));
  RETURN_IF_ERROR(operation.SetDescriptor(names.window, window));
  RETURN_IF_ERROR(operation.Set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f));
  RETURN_IF_ERROR(operation.Set(names.beta, CUDNN_TYPE_FLOAT, 0.0f));
  RETURN_IF_ERROR(operation.Finalize());
  ASSIGN_OR_RETURN(Descriptor graph, Descriptor::Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  if (handle != nullptr) {
    RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  }
  RETURN_IF_ERROR(graph.SetDescriptor(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  RETURN_IF_ERROR(graph.Finalize());
  std::vector<Descriptor> parts;
  for (Descriptor* part : {&x, &w, &y, &window, &operation, &graph}) parts.push_back(std::move(*part));
  return ConvPlans(handle, properties, c.tensor_cores, std::move(parts));
}

absl::StatusOr<std::vector<ConvEngine>> ConvPlans::Engines(const EngineFilter& filter,
                                                           CudnnRefusals& not_compiled) const {
  std::vector<ConvEngine> engines;
  std::set<std::string> seen;
  CudnnRefusals refused;
  int compiled = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    ASSIGN_OR_RETURN(std::vector<Descriptor> configs, Recommended(graph(), properties_, mode, refused));
    for (size_t i = 0; i < configs.size() && engines.size() < filter.most; ++i) {
      absl::StatusOr<ConfigFacts> facts = FactsOf(configs[i], tensor_cores_);
      if (!facts.ok()) refused.Add(facts.status());
      if (!facts.ok() || !facts->allowed || (!filter.name.empty() && filter.name != facts->name)) continue;
      if (!seen.insert(facts->name).second) continue;
      if (facts->compiled_at_run_time && compiled == filter.most_compiled) continue;
      ASSIGN_OR_RETURN(Descriptor plan, Descriptor::Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
      if (handle_ != nullptr) {
        RETURN_IF_ERROR(plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_));
      } else {
        RETURN_IF_ERROR(plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_));
      }
      RETURN_IF_ERROR(plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]));
      if (const absl::Status status = plan.Finalize(); !status.ok()) {  // not for this device or these shapes
        refused.Add(status);
        if (facts->compiled_at_run_time) not_compiled.Add(status);
        continue;
      }
      if (facts->compiled_at_run_time) ++compiled;
      int64_t workspace_bytes = 0, count = 0;
      CALL(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                    &workspace_bytes));
      if (workspace_bytes > kMaxWorkspace) continue;
      engines.push_back({std::move(facts->name), std::move(configs[i]), std::move(plan), workspace_bytes});
    }
  }
  if (!engines.empty() || !filter.name.empty()) return engines;
  return absl::UnimplementedError(absl::StrCat(
      "cuDNN ", cudnnGetVersion(), " has no algorithm for this convolution",
      refused.count > 0 ? absl::StrCat("; of ", refused.count, " refusals the first is: ", refused.first) : ""));
}

}  // namespace official::compute
