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
#include "utils/compute/graph/views.h"
#include "utils/compute/program/lowering.h"
#include "utils/compute/program/memory_plan.h"

namespace official::compute {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The call of a node's kernel.
struct Call {
  const Node* node;
  const KernelDef* def;
  Kernel kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* scratch = nullptr;
};

// Moves the calls that run early to right after the last one that makes or may update an input of theirs.
void MoveEarly(std::vector<Call>& calls) {
  for (size_t c = 0; c < calls.size(); ++c) {
    if (!calls[c].node->op().runs_early) continue;
    const auto writes_input = [&](const Call& other) {
      const auto inputs = calls[c].node->inputs();
      return std::any_of(inputs.begin(), inputs.end(), [&](const Value& v) {
        const Node* const base = Base(v).node();
        return base == other.node || (base->Is(op::Variable) && other.node->op().has_side_effect);
      });
    };
    size_t first = c;
    while (first > 0 && !calls[first - 1].node->op().runs_early && !writes_input(calls[first - 1])) --first;
    std::rotate(calls.begin() + first, calls.begin() + c, calls.begin() + c + 1);
  }
}

// A place of a call's inputs that takes a feed's address before a run.
struct FeedSlot {
  int feed, call, input;
};

// The buffers of the values that a program computes, and of its scratch memory.
struct Buffers {
  std::vector<BufferRequest> requests;
  absl::flat_hash_map<Value, int> of_output;  // the request that holds it
  std::vector<int> of_scratch;                // of each call; -1: it has none
};

// Returns the last call that reads each base. Fetched values live to the end.
absl::flat_hash_map<Value, int> LastUses(const std::vector<Call>& calls, const std::vector<Value>& fetches) {
  const int num_calls = static_cast<int>(calls.size());
  absl::flat_hash_map<Value, int> last_use;
  for (int c = 0; c < num_calls; ++c) {
    for (const Value& v : calls[c].node->inputs()) last_use[Base(v)] = c;
  }
  for (const Value& v : fetches) last_use[Base(v)] = num_calls;
  return last_use;
}

// Returns the request of an input of call `c` whose buffer output `i` may take: the kernel works in place, and nothing
// else reads the input, in this call or later.
std::optional<int> RequestToTake(const Call& call, int c, int i, const Buffers& buffers,
                                 const absl::flat_hash_map<Value, int>& last_use) {
  const Node& node = *call.node;
  std::vector<std::pair<int, int>> pairs = call.def->in_place;
  if (call.def->each_in_place) pairs = {{i, i}};
  for (const auto& [out, in] : pairs) {
    if (out != i || in >= node.num_inputs()) continue;
    const Value input = node.input(in), base = Base(input), output = node.output(i);
    const auto it = buffers.of_output.find(base);
    if (it == buffers.of_output.end() || last_use.at(base) != c || buffers.requests[it->second].last_call > c) continue;
    if (input.type().num_bytes() != output.type().num_bytes() || input.dtype() != output.dtype()) continue;
    const auto inputs = node.inputs();
    if (std::count_if(inputs.begin(), inputs.end(), [&](const Value& v) { return Base(v) == base; }) == 1) {
      return it->second;
    }
  }
  return std::nullopt;
}

Buffers RequestBuffers(const std::vector<Call>& calls, const std::vector<Value>& fetches) {
  const absl::flat_hash_map<Value, int> last_use = LastUses(calls, fetches);
  Buffers buffers;
  for (int c = 0; c < static_cast<int>(calls.size()); ++c) {
    const Node& node = *calls[c].node;
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value output = node.output(i);
      const auto used = last_use.find(output);
      const int last = used == last_use.end() ? c : used->second;
      if (const std::optional<int> taken = RequestToTake(calls[c], c, i, buffers, last_use)) {
        buffers.requests[*taken].last_call = last;
        buffers.of_output[output] = *taken;
      } else {
        buffers.of_output[output] = static_cast<int>(buffers.requests.size());
        buffers.requests.push_back({output.type().num_bytes(), c, last});
      }
    }
    const int64_t scratch_bytes = calls[c].kernel.scratch_bytes;
    buffers.of_scratch.push_back(scratch_bytes > 0 ? static_cast<int>(buffers.requests.size()) : -1);
    if (scratch_bytes > 0) buffers.requests.push_back({scratch_bytes, c, c});
  }
  return buffers;
}

}  // namespace

struct Program::Plan {
  Device* device = nullptr;
  PlannedLayouts lowered;  // the graph that is run, and its layouts
  std::vector<Call> calls;
  std::vector<FeedSlot> feed_slots;
  std::unique_ptr<Arena> own_arena;
  Arena* arena = nullptr;
  int64_t arena_bytes = 0;                      // of it, that this program needs
  size_t first_update = 0;                      // the call from which on a run is not left
  char* arena_address = nullptr;                // where it was when the addresses were set
  std::vector<std::shared_ptr<void>> owned;     // constants; all buffers that are not in the arena
  std::unique_ptr<FeedBuffers> feed_buffers;    // of a device with memory of its own
  absl::flat_hash_map<Value, void*> addresses;  // of all bases but feeds that the host lends
  std::vector<const void*> lent_feeds;          // addresses of the last run
  absl::flat_hash_map<const Node*, int> feed_index;
  bool has_run = false, has_recorded = false, is_recording = false;
  std::unique_ptr<Recording> recording;  // of all calls, if the device makes recordings

  // Internal if another device could update a variable that devices share while a call of this one still reads it.
  absl::Status CheckReadsOfShared() const;
  // Gives all that calls read and write its address.
  absl::Status Place(VariableStore& variables);
  absl::Status PlaceFixed(VariableStore& variables);
  // Returns an address for each request: in the arena or, on a device that checks memory or has no addresses, of a
  // buffer of its own.
  absl::StatusOr<std::vector<void*>> Allocate(const std::vector<BufferRequest>& requests);
  // Follows the arena to where it has moved. ResourceExhausted if it was lost when a larger one was asked for, and
  // there is still no memory for it.
  absl::Status FollowArena();
  const void* AddressOf(Value v) const;
  // OutOfRange, naming `v` and the op that made it, if an element is not finite.
  absl::Status CheckNumerics(Value v, OpName op);
  // Makes the outputs and the scratch memory of a call unwritten, on a device that checks memory.
  absl::Status ForgetResults(const Call& call);
  // "float32[2,3]", with "blocked" behind it in another layout than the row-major one.
  std::string TypeText(const Value& v) const;
  absl::Status AddTimings(int64_t start_ns, DeviceTimer& timer, std::vector<KernelTiming>& timings) const;
  absl::Status CheckVariables();  // and the feeds
  // Takes what a run is given.
  absl::Status Feed(absl::Span<const Tensor> feeds);
  absl::Status RunCalls(const RunOptions& options);
  absl::Status RecordCalls();
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
  for (const Call& call : calls) {
    const OpDef& op = call.node->op();
    if (op.precedes_updates) met = true;
    if (met == op.is_update) continue;  // reads before, updates after
    for (const Value& v : call.node->inputs()) {
      if (!Base(v).node()->Is(op::Variable) || v.shape().rank() == 0) continue;
      return absl::InternalError(absl::StrCat(call.node->name(), " (", op.name.text(), ") uses variable ",
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
  const Buffers buffers = RequestBuffers(calls, lowered.graph.roots.fetches);
  ASSIGN_OR_RETURN(const std::vector<void*> placed, Allocate(buffers.requests));
  for (const auto& [value, request] : buffers.of_output) addresses[value] = placed[request];
  for (int c = 0; c < static_cast<int>(calls.size()); ++c) {
    Call& call = calls[c];
    for (int i = 0; i < call.node->num_inputs(); ++i) {
      const Value base = Base(call.node->input(i));
      if (device->uses_host_memory() && feed_index.contains(base.node())) {
        feed_slots.push_back({feed_index[base.node()], c, i});
        call.inputs.push_back(nullptr);
      } else {
        call.inputs.push_back(addresses[base]);
      }
    }
    for (int i = 0; i < call.node->num_outputs(); ++i) call.outputs.push_back(addresses[call.node->output(i)]);
    if (buffers.of_scratch[c] >= 0) call.scratch = placed[buffers.of_scratch[c]];
  }
  return absl::OkStatus();
}

absl::Status Program::Plan::FollowArena() {
  if (arena->bytes() < arena_bytes) RETURN_IF_ERROR(arena->ReserveForRun(arena_bytes));
  char* const begin = arena->data();
  if (begin == arena_address) return absl::OkStatus();
  const auto moved = [&](const void* address) {
    const char* const p = static_cast<const char*>(address);
    const bool inside = p >= arena_address && p < arena_address + arena_bytes;
    return inside ? begin + (p - arena_address) : const_cast<char*>(p);
  };
  for (Call& call : calls) {
    for (const void*& input : call.inputs) input = moved(input);
    for (void*& output : call.outputs) output = moved(output);
    call.scratch = moved(call.scratch);
  }
  for (auto& [value, address] : addresses) address = moved(address);
  arena_address = begin;
  recording.reset();
  has_recorded = false;
  return absl::OkStatus();
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

absl::Status Program::Plan::ForgetResults(const Call& call) {
  for (int i = 0; i < call.node->num_outputs(); ++i) {
    // An output in place is an input, too.
    if (std::find(call.inputs.begin(), call.inputs.end(), call.outputs[i]) != call.inputs.end()) continue;
    RETURN_IF_ERROR(device->Forget(call.outputs[i], call.node->output_types()[i].num_bytes()));
  }
  return call.scratch == nullptr ? absl::OkStatus() : device->Forget(call.scratch, call.kernel.scratch_bytes);
}

std::string Program::Plan::TypeText(const Value& v) const {
  return absl::StrCat(v.type().ToString(), lowered.LayoutOf(v) == Layout::kRowMajor ? "" : " blocked");
}

absl::Status Program::Plan::RunCalls(const RunOptions& options) {
  if (options.check_numerics) RETURN_IF_ERROR(CheckVariables());
  const int64_t start = NowNs();
  std::unique_ptr<DeviceTimer> timer;
  if (options.timings != nullptr) {
    ASSIGN_OR_RETURN(timer, device->MakeTimer());
    RETURN_IF_ERROR(timer->Mark());
  }
  const std::atomic<int>* const stop = device->uses_host_memory() ? options.stop : nullptr;
  for (size_t c = 0; c < calls.size(); ++c) {
    if (stop != nullptr && c <= first_update && stop->load(std::memory_order_relaxed) != 0) {
      return absl::CancelledError("stopped between two kernels");
    }
    Call& call = calls[c];
    if (device->checks_memory()) RETURN_IF_ERROR(ForgetResults(call));
    absl::Status status =
        call.kernel.run({absl::MakeConstSpan(call.inputs), absl::MakeConstSpan(call.outputs), call.scratch});
    if (status.ok() && is_recording) status = device->CheckRecording();
    if (absl::IsCancelled(status)) return status;  // it says why this run ends, which is not the op's matter
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(call.node->name(), ": ", status.message()));
    // What runs early may still be under way.
    if (options.check_numerics && !call.node->op().runs_early) {
      for (int i = 0; i < call.node->num_outputs(); ++i) {
        RETURN_IF_ERROR(CheckNumerics(call.node->output(i), call.node->op().name));
      }
    }
    if (timer != nullptr) RETURN_IF_ERROR(timer->Mark());
  }
  return timer == nullptr ? absl::OkStatus() : AddTimings(start, *timer, *options.timings);
}

absl::Status Program::Plan::AddTimings(int64_t start_ns, DeviceTimer& timer, std::vector<KernelTiming>& timings) const {
  ASSIGN_OR_RETURN(const std::vector<int64_t> marks, timer.Read());
  for (size_t c = 0; c < calls.size(); ++c) {
    const Node& node = *calls[c].node;
    timings.push_back({.name = node.name(),
                       .op = std::string(node.op().name.text()),
                       .result = node.num_outputs() == 0 ? "" : TypeText(node.output(0)),
                       .algorithm = calls[c].kernel.algorithm,
                       .start_ns = start_ns + marks[c],
                       .duration_ns = marks[c + 1] - marks[c],
                       .flops = FlopsOf(node),
                       .bytes = BytesOf(node)});
  }
  return absl::OkStatus();
}

Program::Program(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
// The feeds go first: they wait for the device, which may still use the rest.
Program::~Program() { plan_->feed_buffers.reset(); }

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
    plan->calls.push_back({.node = node.get(), .def = def, .kernel = std::move(kernel), .inputs = {}, .outputs = {}});
  }
  MoveEarly(plan->calls);
  plan->first_update = static_cast<size_t>(
      std::find_if(plan->calls.begin(), plan->calls.end(),
                   [](const Call& call) { return call.node->op().precedes_updates || call.node->op().is_update; }) -
      plan->calls.begin());
  if (variables.update_part().parts > 1) RETURN_IF_ERROR(plan->CheckReadsOfShared());
  RETURN_IF_ERROR(plan->Place(variables));
  return std::unique_ptr<Program>(new Program(std::move(plan)));
}

absl::Status Program::Plan::Feed(absl::Span<const Tensor> feeds) {
  const std::vector<Value>& expected = lowered.graph.roots.feeds;
  OFFICIAL_CHECK(feeds.size() == expected.size()) << feeds.size() << " feeds, " << expected.size() << " expected";
  device->MakeCurrent();
  RETURN_IF_ERROR(FollowArena());
  lent_feeds.resize(feeds.size());
  for (size_t i = 0; i < feeds.size(); ++i) {
    OFFICIAL_CHECK(feeds[i].type() == expected[i].type())
        << "feed " << expected[i].node()->name() << " is " << feeds[i].type().ToString() << ", the program takes "
        << expected[i].type().ToString();
    lent_feeds[i] = feeds[i].raw_data();
  }
  if (feed_buffers != nullptr) RETURN_IF_ERROR(feed_buffers->Fill(lent_feeds));
  for (const FeedSlot& slot : feed_slots) calls[slot.call].inputs[slot.input] = lent_feeds[slot.feed];
  return absl::OkStatus();
}

absl::Status Program::Plan::RecordCalls() {
  RETURN_IF_ERROR(FollowArena());
  has_recorded = true;
  is_recording = true;
  absl::StatusOr<std::unique_ptr<Recording>> made = device->Record([this] { return RunCalls({}); });
  is_recording = false;
  RETURN_IF_ERROR(made.status());
  recording = *std::move(made);
  return absl::OkStatus();
}

bool Program::RecordingIsDue() const {
  const Plan& plan = *plan_;
  return plan.has_run && (!plan.has_recorded || plan.arena->data() != plan.arena_address) &&
         plan.arena->bytes() >= plan.arena_bytes && plan.device->recordings() != Recordings::kOff &&
         !plan.device->uses_host_memory();
}

absl::Status Program::Record() {
  plan_->device->MakeCurrent();
  return plan_->RecordCalls();
}

bool Program::has_recording() const {
  return plan_->recording != nullptr && plan_->arena->data() == plan_->arena_address;
}

absl::Status Program::HandleNoRecording(const absl::Status& error, Device& device) {
  // Sums of several devices end so, whether or not they are recorded.
  const bool others_fail = absl::IsCancelled(error) || absl::IsDeadlineExceeded(error);
  if (others_fail || device.recordings() == Recordings::kMust) return error;
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
    if (const absl::Status status = plan.RecordCalls(); !status.ok()) {
      RETURN_IF_ERROR(HandleNoRecording(status, *plan.device));
    }
  }
  if (replay && plan.recording != nullptr) return plan.recording->Replay();
  plan.has_run = true;
  return plan.RunCalls(options);
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
  for (const Call& call : plan_->calls) {
    const Attrs& attrs = call.node->attrs();
    absl::StrAppend(&text, attrs.Has(kMergedNodes)
                               ? attrs.Get<std::string>(kMergedNodes)
                               : KernelLine(*call.node, [&](const Value& v) { return plan_->TypeText(v); }));
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
