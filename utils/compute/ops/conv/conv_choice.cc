#include "utils/compute/ops/conv/conv_choice.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv/winograd.h"

namespace official::compute {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAlgorithms[] = {"direct", "winograd"};

// Whether there is a choice.
bool HasSeveralAlgorithms(const Node& node) {
  const DType dtype = node.input(0).dtype();
  const bool has_bias = node.Is(op::FusedConv2D) || node.Is(op::FusedConv2DBackpropFilter);
  return !has_bias && !MultipliesTiles(node) && (dtype == DType::kFloat32 || dtype == DType::kBFloat16) &&
         WinogradSupports(ConvGeometryOf(node));
}

// Adds the node to `graph` with this algorithm, for at most `most_images` images.
Node* CopyNode(const Node& node, const char* algorithm, int64_t most_images, Graph& graph) {
  const auto cut = [&](std::vector<int64_t> dims) {
    dims[0] = std::min(dims[0], most_images);
    return dims;
  };
  Attrs attrs = node.attrs();
  attrs.Set("algorithm", std::string(algorithm));
  if (node.Is(op::Conv2DBackpropInput)) {
    attrs.Set("input_shape", cut(attrs.Get<std::vector<int64_t>>("input_shape")));
  }
  const int filters = node.Is(op::Conv2DBackpropInput) ? int{conv2d_backprop_input::kFilters} : int{conv2d::kFilters};
  std::vector<Value> inputs;
  for (int i = 0; i < node.num_inputs(); ++i) {
    TensorType type = node.input(i).type();
    const bool is_filters = i == filters && !node.Is(op::Conv2DBackpropFilter);
    if (!is_filters) type.shape = Shape(cut({type.shape.dims().begin(), type.shape.dims().end()}));
    inputs.push_back(graph.Input(absl::StrCat("input", i), type));
  }
  return graph.AddNode(node.op().name, inputs, std::move(attrs));
}

// A kernel of the node and the memory that it works on. All is zero: how long a convolution takes does not depend on
// the numbers. Each has its own: in a step, too, most of what a convolution reads is in no cache.
class Candidate {
 public:
  static absl::StatusOr<Candidate> Make(const KernelSpec& spec, const char* algorithm, int64_t most_images) {
    Candidate c;
    c.graph_ = std::make_unique<Graph>();
    const Node* const copy = CopyNode(spec.node, algorithm, most_images, *c.graph_);
    RETURN_IF_ERROR(c.graph_->status());
    const KernelDef* const def = KernelRegistry::Global().Find(copy->op().name, spec.device.kind(), KeyType(*copy));
    ASSIGN_OR_RETURN(c.kernel_, def->make(KernelSpec{*copy, spec.device, spec.input_layouts, spec.output_layouts}));
    const auto allocate = [&](int64_t bytes) -> absl::StatusOr<void*> {
      ASSIGN_OR_RETURN(std::shared_ptr<void> buffer, spec.device.Allocate(bytes));
      c.memory_.push_back(buffer);
      return buffer.get();
    };
    for (const Value& v : copy->inputs()) {
      ASSIGN_OR_RETURN(const void* const input, allocate(v.type().num_bytes()));
      c.inputs_.push_back(input);
    }
    ASSIGN_OR_RETURN(c.output_, allocate(copy->output(0).type().num_bytes()));
    ASSIGN_OR_RETURN(c.scratch_, allocate(c.kernel_.scratch_bytes));
    return c;
  }

  absl::StatusOr<Clock::duration> Run() {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(kernel_.run({inputs_, absl::MakeConstSpan(&output_, 1), scratch_}));
    return Clock::now() - start;
  }

 private:
  std::unique_ptr<Graph> graph_;
  Kernel kernel_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<const void*> inputs_;
  void* output_ = nullptr;
  void* scratch_ = nullptr;
};

absl::StatusOr<std::string> FastestAlgorithm(const KernelSpec& spec) {
  // As many images as direct convolution computes in about 20 ms, on a machine that does 4e11 operations a second.
  constexpr int64_t kOperations = 8'000'000'000;
  const ConvGeometry g = ConvGeometryOf(spec.node);
  const int64_t per_image = 2 * g.filters.shape.num_elements() * g.output.shape.dim(1) * g.output.shape.dim(2);
  const int64_t most_images = std::max<int64_t>(kOperations / per_image, 1);
  std::vector<Candidate> candidates;
  for (const char* const algorithm : kAlgorithms) {
    ASSIGN_OR_RETURN(Candidate candidate, Candidate::Make(spec, algorithm, most_images));
    candidates.push_back(std::move(candidate));
  }
  // In turn, so that what else the machine does meets all; the first round, which meets cold memory, does not count.
  // The more often, the closer they are: the best of many times is that of an undisturbed run.
  constexpr int kRoundsIfFar = 3, kRounds = 5, kRoundsIfClose = 9;
  constexpr Clock::duration kEnough = std::chrono::milliseconds(20), kEnoughIfClose = std::chrono::milliseconds(40);
  std::vector<Clock::duration> best(candidates.size(), Clock::duration::max());
  std::vector<Clock::duration> worst(candidates.size(), Clock::duration::zero());
  // In this order: nothing is multiplied before both are timed.
  const auto are_close = [&] { return best[1] < best[0] && best[1] > best[0] * 8 / 10; };
  // Each run of one was much faster than each of the other; Winograd's must be it by more (below).
  const auto are_far = [&] { return worst[1] < best[0] * 7 / 10 || worst[0] < best[1] * 8 / 10; };
  Clock::duration spent{};
  for (int round = 0; round < (are_close() ? kRoundsIfClose : kRounds); ++round) {
    if (spent >= (are_close() ? kEnoughIfClose : kEnough) || (round >= kRoundsIfFar && are_far())) break;
    for (size_t i = 0; i < candidates.size(); ++i) {
      ASSIGN_OR_RETURN(const Clock::duration time, candidates[i].Run());
      if (round == 0) continue;
      best[i] = std::min(best[i], time);
      worst[i] = std::max(worst[i], time);
      spent += time;
    }
  }
  // Winograd's must win clearly: it rounds more, and what its transformed images push out of the caches others miss,
  // which no time of it alone shows.
  return kAlgorithms[best[1] < best[0] * 9 / 10 ? 1 : 0];
}

}  // namespace

absl::StatusOr<ConvAlgorithm> ChooseConvAlgorithm(const KernelSpec& spec) {
  const Node& node = spec.node;
  if (node.attrs().Has("algorithm")) return ConvAlgorithmOf(node.attrs());
  if (spec.choices == nullptr || !HasSeveralAlgorithms(node)) return ConvAlgorithm::kDirect;
  // Nothing of the machine: with other threads or on another processor too a run goes on as it began.
  std::string key(node.op().name.text());
  for (const Value& v : node.inputs()) absl::StrAppend(&key, " ", v.type().ToString());
  absl::StrAppend(&key, " ", node.attrs().ToString(), " on ", spec.device.kind());
  const auto choose = [&] { return FastestAlgorithm(spec); };
  ASSIGN_OR_RETURN(std::string algorithm, spec.choices->FindOrChoose(key, choose));
  if (std::find(std::begin(kAlgorithms), std::end(kAlgorithms), algorithm) == std::end(kAlgorithms)) {
    // Of another version of this program.
    spec.choices->Forget(key);
    ASSIGN_OR_RETURN(algorithm, spec.choices->FindOrChoose(key, choose));
  }
  return algorithm == "winograd" ? ConvAlgorithm::kWinograd : ConvAlgorithm::kDirect;
}

bool MultipliesTiles(const Node& node) {
  const bool asks = node.attrs().Has("algorithm") && ConvAlgorithmOf(node.attrs()) == ConvAlgorithm::kWinograd;
  return node.input(0).dtype() == DType::kBFloat16 && OnednnHasAmx() && !asks;
}

}  // namespace official::compute
