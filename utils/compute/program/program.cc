#include "utils/compute/program/program.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/node_cost.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/program/lowering.h"
#include "utils/compute/program/memory_plan.h"

namespace official::compute {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Step {
  const Node* node;
  const KernelDef* def;
  Kernel kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch = nullptr;
};

// Moves the steps that run early to right after the last one that makes an input of theirs.
void MoveEarly(std::vector<Step>& steps) {
  for (size_t s = 0; s < steps.size(); ++s) {
    if (!steps[s].node->op().runs_early) continue;
    const auto makes_input = [&](const Step& other) {
      const auto inputs = steps[s].node->inputs();
      return std::any_of(inputs.begin(), inputs.end(), [&](const Value& v) { return Base(v).node() == other.node; });
    };
    size_t first = s;
    while (first > 0 && !steps[first - 1].node->op().runs_early && !makes_input(steps[first - 1])) --first;
    std::rotate(steps.begin() + first, steps.begin() + s, steps.begin() + s + 1);
  }
}

// A place of a step's inputs that takes a feed's address before a run.
struct FeedSlot {
  int feed, step, input;
};

// The buffers of the values that a program computes, and of its scratch memory.
struct Buffers {
  std::vector<BufferRequest> requests;
  absl::flat_hash_map<Value, int> of_output;  // the request that holds it
  std::vector<int> of_scratch;                // of each step; -1: it has none
};

// Returns the last step that reads each base. Fetched values live to the end.
absl::flat_hash_map<Value, int> LastUses(const std::vector<Step>& steps, const std::vector<Value>& fetches) {
  const int num_steps = static_cast<int>(steps.size());
  absl::flat_hash_map<Value, int> last_use;
  for (int s = 0; s < num_steps; ++s) {
    for (const Value& v : steps[s].node->inputs()) last_use[Base(v)] = s;
  }
  for (const Value& v : fetches) last_use[Base(v)] = num_steps;
  return last_use;
}

// Returns the request of an input of step `s` whose buffer output `i` may take: the kernel works in place, and nothing
// else reads the input, in this step or later.
std::optional<int> RequestToTake(const Step& step, int s, int i, const Buffers& buffers,
                                 const absl::flat_hash_map<Value, int>& last_use) {
  const Node& node = *step.node;
  std::vector<std::pair<int, int>> pairs = step.def->in_place;
  if (step.def->each_in_place) pairs = {{i, i}};
  for (const auto& [out, in] : pairs) {
    if (out != i || in >= node.num_inputs()) continue;
    const Value input = node.input(in), base = Base(input), output = node.output(i);
    const auto it = buffers.of_output.find(base);
    if (it == buffers.of_output.end() || last_use.at(base) != s || buffers.requests[it->second].last_step > s) continue;
    if (input.type().num_bytes() != output.type().num_bytes() || input.dtype() != output.dtype()) continue;
    const auto inputs = node.inputs();
    if (std::count_if(inputs.begin(), inputs.end(), [&](const Value& v) { return Base(v) == base; }) == 1) {
      return it->second;
    }
  }
  return std::nullopt;
}

Buffers RequestBuffers(const std::vector<Step>& steps, const std::vector<Value>& fetches) {
  const absl::flat_hash_map<Value, int> last_use = LastUses(steps, fetches);
  Buffers buffers;
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    const Node& node = *steps[s].node;
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value output = node.output(i);
      const auto used = last_use.find(output);
      const int last = used == last_use.end() ? s : used->second;
      if (const std::optional<int> taken = RequestToTake(steps[s], s, i, buffers, last_use)) {
        buffers.requests[*taken].last_step = last;
        buffers.of_output[output] = *taken;
      } else {
        buffers.of_output[output] = static_cast<int>(buffers.requests.size());
        buffers.requests.push_back({output.type().num_bytes(), s, last});
      }
    }
    const int64_t scratch_bytes = steps[s].kernel.scratch_bytes;
    buffers.of_scratch.push_back(scratch_bytes > 0 ? static_cast<int>(buffers.requests.size()) : -1);
    if (scratch_bytes > 0) buffers.requests.push_back({scratch_bytes, s, s});
  }
  return buffers;
}

}  // namespace

struct Program::Plan {
  Device* device = nullptr;
  PlannedLayouts lowered;  // the graph that is run, and its layouts
  std::vector<Step> steps;
  std::vector<FeedSlot> feed_slots;
  std::unique_ptr<Arena> own_arena;
  Arena* arena = nullptr;
  int64_t arena_bytes = 0;                      // of it, that this program needs
  size_t first_update = 0;                      // the step from which on a run is not left
  char* arena_address = nullptr;                // where it was when the addresses were set
  std::vector<std::shared_ptr<void>> owned;     // constants; all buffers that are not in the arena
  std::unique_ptr<FeedBuffers> feed_buffers;    // of a device with memory of its own
  absl::flat_hash_map<Value, void*> addresses;  // of all bases but feeds that the host lends
  std::vector<const void*> lent_feeds;          // addresses of the last run
  absl::flat_hash_map<const Node*, int> feed_index;
  bool has_run = false, has_recorded = false, is_recording = false;
  std::unique_ptr<Recording> recording;  // of all steps, if the device makes recordings

  // Internal if another device could update a variable that devices share while a step of this one still reads it.
  absl::Status CheckReadsOfShared() const;
  // Gives all that steps read and write its address.
  absl::Status Place(VariableStore& variables);
  absl::Status PlaceFixed(VariableStore& variables);
  // Returns an address for each request: in the arena or, on a device that checks memory or has no addresses, of a
  // buffer of its own.
  absl::StatusOr<std::vector<void*>> Allocate(const std::vector<BufferRequest>& requests);
  // Follows the arena to where it has moved.
  void FollowArena();
  const void* AddressOf(Value v) const;
  // OutOfRange, naming `v` and the op that made it, if an element is not finite.
  absl::Status CheckNumerics(Value v, OpName op);
  // Makes the outputs and the scratch memory of a step unwritten, on a device that checks memory.
  absl::Status ForgetResults(const Step& step);
  // "float32[2,3]", with "blocked" behind it in another layout than the row-major one.
  std::string TypeText(const Value& v) const;
  absl::Status AddTimings(int64_t start_ns, DeviceTimer& timer, std::vector<KernelTiming>& timings) const;
  absl::Status CheckVariables();  // and the feeds
  // Takes what a run is given.
  absl::Status Feed(absl::Span<const Tensor> feeds);
  absl::Status RunSteps(const RunOptions& options);
  absl::Status RecordSteps();
};

// Gives inputs, variables and constants their addresses.
absl::Status Program::Plan::PlaceFixed(VariableStore& variables) {
  const std::vector<Value>& feeds = lowered.graph.roots.feeds;
  std::vector<int64_t> feed_bytes;
  for (const Value& feed : feeds) {
    feed_index[feed.node()] = static_cast<int>(feed_bytes.size());
    feed_bytes.push_back(feed.type().num_bytes());
  }
  if (!device->uses_host_memory()) {
    ASSIGN_OR_RETURN(feed_buffers, device->MakeFeedBuffers(feed_bytes));
    for (size_t i = 0; i < feeds.size(); ++i) addresses[feeds[i]] = feed_buffers->data(static_cast<int>(i));
  }
  for (const auto& node : lowered.graph.graph->nodes()) {
    if (node->Is(op::Variable)) {
      void* data = variables.data(node->name());
      if (data == nullptr) return absl::NotFoundError(absl::StrCat("variable ", node->name(), " was not created"));
      addresses[node->output(0)] = data;
    } else if (node->Is(op::Constant)) {
      const Tensor& value = node->attrs().Get<Tensor>("value");
      ASSIGN_OR_RETURN(std::shared_ptr<void> buffer, device->Allocate(value.num_bytes()));
      RETURN_IF_ERROR(device->CopyToDevice(buffer.get(), value.raw_data(), value.num_bytes()));
      addresses[node->output(0)] = buffer.get();
      owned.push_back(std::move(buffer));
    } else if (node->Is(op::Input) && !feed_index.contains(node.get())) {
      return absl::InvalidArgumentError(absl::StrCat("input ", node->name(), " is needed but not among the feeds"));
    }
  }
  return absl::OkStatus();
}

absl::Status Program::Plan::CheckReadsOfShared() const {
  bool met = false;
  for (const Step& step : steps) {
    const OpDef& op = step.node->op();
    if (op.precedes_updates) met = true;
    if (met == op.is_update) continue;  // reads before, updates after
    for (const Value& v : step.node->inputs()) {
      if (!Base(v).node()->Is(op::Variable) || v.shape().rank() == 0) continue;
      return absl::InternalError(absl::StrCat(step.node->name(), " (", op.name.text(), ") uses variable ",
                                              Base(v).node()->name(), ", which devices share, ",
                                              met ? "while they update it" : "before they have met"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<void*>> Program::Plan::Allocate(const std::vector<BufferRequest>& requests) {
  std::vector<void*> buffers;
  if (device->checks_memory() || !device->has_addresses()) {
    for (const BufferRequest& request : requests) {
      ASSIGN_OR_RETURN(std::shared_ptr<void> buffer, device->Allocate(request.bytes));
      buffers.push_back(buffer.get());
      owned.push_back(std::move(buffer));
    }
    return buffers;
  }
  const MemoryPlan plan = PlanMemory(requests);
  arena_bytes = plan.arena_bytes;
  RETURN_IF_ERROR(arena->Reserve(arena_bytes));
  arena_address = arena->data();
  for (const int64_t offset : plan.offsets) buffers.push_back(arena_address + offset);
  return buffers;
}

absl::Status Program::Plan::Place(VariableStore& variables) {
  RETURN_IF_ERROR(PlaceFixed(variables));
  const Buffers buffers = RequestBuffers(steps, lowered.graph.roots.fetches);
  ASSIGN_OR_RETURN(const std::vector<void*> placed, Allocate(buffers.requests));
  for (const auto& [value, request] : buffers.of_output) addresses[value] = placed[request];
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    Step& step = steps[s];
    for (int i = 0; i < step.node->num_inputs(); ++i) {
      const Value base = Base(step.node->input(i));
      if (device->uses_host_memory() && feed_index.contains(base.node())) {
        feed_slots.push_back({feed_index[base.node()], s, i});
        step.inputs.push_back(nullptr);
      } else {
        step.inputs.push_back(addresses[base]);
      }
    }
    for (int i = 0; i < step.node->num_outputs(); ++i) step.outputs.push_back(addresses[step.node->output(i)]);
    if (buffers.of_scratch[s] >= 0) step.scratch = placed[buffers.of_scratch[s]];
  }
  return absl::OkStatus();
}

void Program::Plan::FollowArena() {
  char* const begin = arena->data();
  if (begin == arena_address) return;
  const auto moved = [&](const void* address) {
    const char* const p = static_cast<const char*>(address);
    const bool inside = p >= arena_address && p < arena_address + arena_bytes;
    return inside ? begin + (p - arena_address) : const_cast<char*>(p);
  };
  for (Step& step : steps) {
    for (const void*& input : step.inputs) input = moved(input);
    for (void*& output : step.outputs) output = moved(output);
    step.scratch = moved(step.scratch);
  }
  for (auto& [value, address] : addresses) address = moved(address);
  arena_address = begin;
  recording.reset();
  has_recorded = false;
}

absl::Status Program::Plan::CheckNumerics(Value v, OpName op) {
  if (!IsFloating(v.dtype()) || v.shape().num_elements() == 0) return absl::OkStatus();
  Tensor copy(v.type());
  RETURN_IF_ERROR(device->CopyToHost(copy.raw_data(), AddressOf(v), copy.num_bytes()));
  const std::optional<int64_t> found = FindNonFinite(copy);
  if (!found) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("the first tensor that is not finite is ", v.node()->name(), " (",
                                            op.text(), ", ", v.type().ToString(), "): its element ", *found, " is ",
                                            copy.CastTo(DType::kFloat64).data<double>()[*found]));
}

absl::Status Program::Plan::CheckVariables() {
  for (const auto& node : lowered.graph.graph->nodes()) {
    if (node->Is(op::Variable) || node->Is(op::Input)) RETURN_IF_ERROR(CheckNumerics(node->output(0), node->op().name));
  }
  return absl::OkStatus();
}

const void* Program::Plan::AddressOf(Value v) const {
  const Value base = Base(v);
  if (const auto it = addresses.find(base); it != addresses.end()) return it->second;
  return lent_feeds[feed_index.at(base.node())];
}

absl::Status Program::Plan::ForgetResults(const Step& step) {
  for (int i = 0; i < step.node->num_outputs(); ++i) {
    // An output in place is an input, too.
    if (std::find(step.inputs.begin(), step.inputs.end(), step.outputs[i]) != step.inputs.end()) continue;
    RETURN_IF_ERROR(device->Forget(step.outputs[i], step.node->output_types()[i].num_bytes()));
  }
  return step.scratch == nullptr ? absl::OkStatus() : device->Forget(step.scratch, step.kernel.scratch_bytes);
}

std::string Program::Plan::TypeText(const Value& v) const {
  return absl::StrCat(v.type().ToString(), lowered.LayoutOf(v) == Layout::kRowMajor ? "" : " blocked");
}

absl::Status Program::Plan::RunSteps(const RunOptions& options) {
  if (options.check_numerics) RETURN_IF_ERROR(CheckVariables());
  const int64_t start = NowNs();
  std::unique_ptr<DeviceTimer> timer;
  if (options.timings != nullptr) {
    ASSIGN_OR_RETURN(timer, device->MakeTimer());
    RETURN_IF_ERROR(timer->Mark());
  }
  const std::atomic<int>* const stop = device->uses_host_memory() ? options.stop : nullptr;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (stop != nullptr && s <= first_update && stop->load(std::memory_order_relaxed) != 0) {
      return absl::CancelledError("stopped between two kernels");
    }
    Step& step = steps[s];
    if (device->checks_memory()) RETURN_IF_ERROR(ForgetResults(step));
    absl::Status status =
        step.kernel.run({absl::MakeConstSpan(step.inputs), absl::MakeConstSpan(step.outputs), step.scratch});
    if (status.ok() && is_recording) status = device->CheckRecording();
    if (absl::IsCancelled(status)) return status;  // it says why this run ends, which is not the op's matter
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(step.node->name(), ": ", status.message()));
    // What runs early may still be under way.
    if (options.check_numerics && !step.node->op().runs_early) {
      for (int i = 0; i < step.node->num_outputs(); ++i) {
        RETURN_IF_ERROR(CheckNumerics(step.node->output(i), step.node->op().name));
      }
    }
    if (timer != nullptr) RETURN_IF_ERROR(timer->Mark());
  }
  return timer == nullptr ? absl::OkStatus() : AddTimings(start, *timer, *options.timings);
}

absl::Status Program::Plan::AddTimings(int64_t start_ns, DeviceTimer& timer, std::vector<KernelTiming>& timings) const {
  ASSIGN_OR_RETURN(const std::vector<int64_t> marks, timer.Read());
  for (size_t s = 0; s < steps.size(); ++s) {
    const Node& node = *steps[s].node;
    timings.push_back({.name = node.name(),
                       .op = std::string(node.op().name.text()),
                       .result = node.num_outputs() == 0 ? "" : TypeText(node.output(0)),
                       .algorithm = steps[s].kernel.algorithm,
                       .start_ns = start_ns + marks[s],
                       .duration_ns = marks[s + 1] - marks[s],
                       .flops = FlopsOf(node),
                       .bytes = BytesOf(node)});
  }
  return absl::OkStatus();
}

Program::Program(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Program::~Program() = default;

absl::StatusOr<std::unique_ptr<Program>> Program::Compile(const Graph& graph, const GraphRoots& roots, Device& device,
                                                          VariableStore& variables, const CompileOptions& options) {
  // A kernel may be able to read the memory of another device, which the emulation does not notice.
  if (!device.uses_host_memory() && &variables.device() != &device) {
    return absl::InternalError("a program's variables are in the memory of another device than its own");
  }
  device.MakeCurrent();
  auto plan = std::make_unique<Plan>();
  plan->device = &device;
  plan->arena = options.arena;
  if (plan->arena == nullptr) {
    plan->own_arena = std::make_unique<Arena>(device);
    plan->arena = plan->own_arena.get();
  }
  ASSIGN_OR_RETURN(plan->lowered, Lower(graph, roots, device.kind(), options.fuse));

  for (const auto& node : plan->lowered.graph.graph->nodes()) {
    if (!NeedsKernel(*node)) continue;
    ASSIGN_OR_RETURN(const KernelDef* const def, KernelFor(*node, device.kind()));
    std::vector<Layout> input_layouts, output_layouts;
    for (const Value& v : node->inputs()) input_layouts.push_back(plan->lowered.LayoutOf(v));
    for (int i = 0; i < node->num_outputs(); ++i) output_layouts.push_back(plan->lowered.LayoutOf(node->output(i)));
    ASSIGN_OR_RETURN(Kernel kernel, def->make(KernelSpec{*node, device, input_layouts, output_layouts, options.choices,
                                                         variables.update_part()}));
    plan->steps.push_back({.node = node.get(), .def = def, .kernel = std::move(kernel), .inputs = {}, .outputs = {}});
  }
  MoveEarly(plan->steps);
  plan->first_update = static_cast<size_t>(
      std::find_if(plan->steps.begin(), plan->steps.end(),
                   [](const Step& step) { return step.node->op().precedes_updates || step.node->op().is_update; }) -
      plan->steps.begin());
  if (variables.update_part().parts > 1) RETURN_IF_ERROR(plan->CheckReadsOfShared());
  RETURN_IF_ERROR(plan->Place(variables));
  return std::unique_ptr<Program>(new Program(std::move(plan)));
}

absl::Status Program::Plan::Feed(absl::Span<const Tensor> feeds) {
  const std::vector<Value>& expected = lowered.graph.roots.feeds;
  OFFICIAL_CHECK(feeds.size() == expected.size()) << feeds.size() << " feeds, " << expected.size() << " expected";
  device->MakeCurrent();
  FollowArena();
  lent_feeds.resize(feeds.size());
  for (size_t i = 0; i < feeds.size(); ++i) {
    OFFICIAL_CHECK(feeds[i].type() == expected[i].type())
        << "feed " << expected[i].node()->name() << " is " << feeds[i].type().ToString() << ", the program takes "
        << expected[i].type().ToString();
    lent_feeds[i] = feeds[i].raw_data();
  }
  if (feed_buffers != nullptr) RETURN_IF_ERROR(feed_buffers->Fill(lent_feeds));
  for (const FeedSlot& slot : feed_slots) steps[slot.step].inputs[slot.input] = lent_feeds[slot.feed];
  return absl::OkStatus();
}

absl::Status Program::Plan::RecordSteps() {
  FollowArena();
  has_recorded = true;
  is_recording = true;
  absl::StatusOr<std::unique_ptr<Recording>> made = device->Record([this] { return RunSteps({}); });
  is_recording = false;
  RETURN_IF_ERROR(made.status());
  recording = *std::move(made);
  return absl::OkStatus();
}

bool Program::RecordingIsDue() const {
  const Plan& plan = *plan_;
  return plan.has_run && (!plan.has_recorded || plan.arena->data() != plan.arena_address) &&
         plan.device->recordings() != Recordings::kOff && !plan.device->uses_host_memory();
}

absl::Status Program::Record() {
  plan_->device->MakeCurrent();
  return plan_->RecordSteps();
}

bool Program::has_recording() const {
  return plan_->recording != nullptr && plan_->arena->data() == plan_->arena_address;
}

absl::Status Program::HandleNoRecording(const absl::Status& error, Device& device) {
  if (device.recordings() == Recordings::kMust) return error;
  device.Warn(
      absl::StrCat("a step cannot be recorded as a CUDA graph, so each kernel is launched on its own, which is ",
                   "slower: ", error.message()));
  device.set_recordings(Recordings::kOff);
  return absl::OkStatus();
}

absl::Status Program::Run(absl::Span<const Tensor> feeds, const RunOptions& options) {
  Plan& plan = *plan_;
  RETURN_IF_ERROR(plan.Feed(feeds));
  const bool replay = options.replay && options.timings == nullptr && !options.check_numerics;
  if (replay && RecordingIsDue()) {
    if (const absl::Status status = plan.RecordSteps(); !status.ok()) {
      RETURN_IF_ERROR(HandleNoRecording(status, *plan.device));
    }
  }
  if (replay && plan.recording != nullptr) return plan.recording->Replay();
  plan.has_run = true;
  return plan.RunSteps(options);
}

absl::StatusOr<Tensor> Program::Fetch(int i) const {
  const Value value = plan_->lowered.graph.roots.fetches[i];
  void* const address = const_cast<void*>(plan_->AddressOf(value));
  if (plan_->device->uses_host_memory()) return Tensor(value.type(), address);
  Tensor copy(value.type());
  RETURN_IF_ERROR(plan_->device->CopyToHost(copy.raw_data(), address, copy.num_bytes()));
  return copy;
}

absl::Status Program::StartFetch(int i, HostBuffer& buffer) const {
  return buffer.StartCopy(plan_->AddressOf(plan_->lowered.graph.roots.fetches[i]));
}

int64_t Program::arena_bytes() const { return plan_->arena_bytes; }

std::string Program::DebugString() const {
  std::string text;
  for (const Step& step : plan_->steps) {
    const Attrs& attrs = step.node->attrs();
    absl::StrAppend(&text, attrs.Has(kMergedNodes)
                               ? attrs.Get<std::string>(kMergedNodes)
                               : KernelLine(*step.node, [&](const Value& v) { return plan_->TypeText(v); }));
  }
  return text;
}

absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const GraphRoots& roots,
                                             absl::Span<const Tensor> feeds, Device& device,
                                             const CompileOptions& options) {
  VariableStore variables(device);
  ASSIGN_OR_RETURN(std::unique_ptr<Program> program, Program::Compile(graph, roots, device, variables, options));
  RETURN_IF_ERROR(program->Run(feeds));
  std::vector<Tensor> results;
  for (size_t i = 0; i < roots.fetches.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor result, program->Fetch(static_cast<int>(i)));
    results.push_back(result.Clone());
  }
  return results;
}

}  // namespace official::compute
