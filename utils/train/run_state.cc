#include "utils/train/run_state.h"

#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/train/step.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr char kSeed[] = "_run/seed";
constexpr char kEpoch[] = "_run/epoch";
constexpr char kIndex[] = "_run/index";

// More than any run writes, and so few that no sum or product of steps overflows.
constexpr int64_t kMaxCount = int64_t{1} << 53;                     // of steps or examples
constexpr int64_t kMaxEpoch = std::numeric_limits<int32_t>::max();  // --train_epochs is an int

// The scalar int64 `name` of a bundle, or `missing` if it has none.
absl::StatusOr<int64_t> ReadInt(const BundleReader& bundle, const std::string& name, int64_t missing) {
  const std::optional<BundleTensor> found = bundle.Find(name);
  if (!found) return missing;
  if (found->dtype != compute::DType::kInt64 || found->shape.rank() != 0) {
    return absl::DataLossError(absl::StrCat(name, " in the checkpoint is ", found->dtype_name, found->shape.ToString(),
                                            " instead of int64[]"));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, bundle.Read(name));
  return tensor.scalar<int64_t>();
}

// The same of something counted; 0 if the bundle has none, DataLoss if it is negative or above `max`.
absl::StatusOr<int64_t> ReadCount(const BundleReader& bundle, const std::string& name, int64_t max) {
  ASSIGN_OR_RETURN(const int64_t value, ReadInt(bundle, name, 0));
  if (value >= 0 && value <= max) return value;
  return absl::DataLossError(absl::StrCat(name, " in the checkpoint ", bundle.prefix(), " is ", value,
                                          ", which no run has written (at most ", max,
                                          "); remove that checkpoint, or choose another --model_dir"));
}

}  // namespace

absl::StatusOr<RunState> ReadRunState(const BundleReader& checkpoint, uint64_t seed) {
  RunState state;
  ASSIGN_OR_RETURN(state.global_step, ReadCount(checkpoint, kGlobalStep, kMaxCount));
  ASSIGN_OR_RETURN(state.position.epoch, ReadCount(checkpoint, kEpoch, kMaxEpoch));
  ASSIGN_OR_RETURN(state.position.index, ReadCount(checkpoint, kIndex, kMaxCount));
  ASSIGN_OR_RETURN(const int64_t saved_seed, ReadInt(checkpoint, kSeed, static_cast<int64_t>(seed)));
  state.seed = static_cast<uint64_t>(saved_seed);
  return state;
}

bool HasRunState(const BundleReader& checkpoint) { return checkpoint.Find(kEpoch).has_value(); }

void AddRunState(const RunState& state, std::map<std::string, SavedTensor>& tensors) {
  const auto add = [&](const char* name, int64_t value) {
    tensors[name] = {sizeof(value), [value] { return Tensor::Scalar(value); }};
  };
  add(kSeed, static_cast<int64_t>(state.seed));
  add(kEpoch, state.position.epoch);
  add(kIndex, state.position.index);
}

std::string BytesOf(const RunState& state) {
  return absl::StrCat(state.global_step, " ", state.position.epoch, " ", state.position.index, " ", state.seed, " ",
                      state.evaluated_step.value_or(-1));
}

absl::StatusOr<RunState> RunStateFrom(absl::string_view bytes) {
  const std::vector<absl::string_view> fields = absl::StrSplit(bytes, ' ');
  RunState state;
  int64_t evaluated = -1;
  if (fields.size() != 5 || !absl::SimpleAtoi(fields[0], &state.global_step) ||
      !absl::SimpleAtoi(fields[1], &state.position.epoch) || !absl::SimpleAtoi(fields[2], &state.position.index) ||
      !absl::SimpleAtoi(fields[3], &state.seed) || !absl::SimpleAtoi(fields[4], &evaluated)) {
    return absl::DataLossError(absl::StrCat("the chief has sent no state of a run: ", bytes));
  }
  if (evaluated >= 0) state.evaluated_step = evaluated;
  return state;
}

}  // namespace official::train
