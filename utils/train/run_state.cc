#include "utils/train/run_state.h"

#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/train/step.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr char kSeed[] = "_run/seed";
constexpr char kEpoch[] = "_run/epoch";
constexpr char kIndex[] = "_run/index";
constexpr char kNoMetric[] = "none";  // in the bytes of a state
constexpr char kWorkerPositions[] = "_run/worker_positions";

// More than any run writes, and so few that no sum or product of steps overflows.
constexpr int64_t kMaxCount = int64_t{1} << 53;                     // of steps or examples
constexpr int64_t kMaxEpoch = std::numeric_limits<int32_t>::max();  // --train_epochs is an int

// The scalar int64 `name` of a bundle, or `missing` if it has none.
absl::StatusOr<int64_t> ReadInt(const BundleReader& bundle, const std::string& name, int64_t missing) {
  const std::optional<StoredTensor> found = bundle.Find(name);
  if (!found) return missing;
  if (found->dtype != compute::DType::kInt64 || found->shape.rank() != 0) {
    return absl::DataLossError(absl::StrCat(name, " in the checkpoint is ", found->dtype_name, found->shape.ToString(),
                                            " instead of int64[]"));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, bundle.Read(name));
  return tensor.scalar<int64_t>();
}

// Returns a value of `name` that counts something; DataLoss if it is negative or above `max`.
absl::StatusOr<int64_t> CheckCount(const BundleReader& bundle, const std::string& name, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return value;
  return absl::DataLossError(absl::StrCat(name, " in the checkpoint ", bundle.prefix(), " is ", value,
                                          ", which no run has written (at most ", max,
                                          "); remove that checkpoint, or choose another --model_dir"));
}

// The count `name` of a bundle, checked; 0 if it has none.
absl::StatusOr<int64_t> ReadCount(const BundleReader& bundle, const std::string& name, int64_t max) {
  ASSIGN_OR_RETURN(const int64_t value, ReadInt(bundle, name, 0));
  return CheckCount(bundle, name, value, max);
}

// The epoch and the index of each worker in turn; nothing if the bundle has none.
absl::StatusOr<std::vector<data::Position>> ReadWorkerPositions(const BundleReader& bundle) {
  const std::optional<StoredTensor> found = bundle.Find(kWorkerPositions);
  std::vector<data::Position> positions;
  if (!found) return positions;
  const compute::Shape& shape = found->shape;
  if (found->dtype != compute::DType::kInt64 || shape.rank() != 2 || shape.dim(1) != 2) {
    return absl::DataLossError(absl::StrCat(kWorkerPositions, " in the checkpoint is ", found->dtype_name,
                                            shape.ToString(), " instead of int64[workers, 2]"));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, bundle.Read(kWorkerPositions));
  const int64_t* const numbers = tensor.data<int64_t>();
  for (int64_t w = 0; w < shape.dim(0); ++w) {
    data::Position& position = positions.emplace_back();
    ASSIGN_OR_RETURN(position.epoch, CheckCount(bundle, kWorkerPositions, numbers[2 * w], kMaxEpoch));
    ASSIGN_OR_RETURN(position.index, CheckCount(bundle, kWorkerPositions, numbers[2 * w + 1], kMaxCount));
  }
  return positions;
}

}  // namespace

absl::StatusOr<RunState> ReadRunState(const BundleReader& checkpoint, uint64_t seed) {
  RunState state;
  ASSIGN_OR_RETURN(state.global_step, ReadCount(checkpoint, kGlobalStep, kMaxCount));
  ASSIGN_OR_RETURN(state.position.epoch, ReadCount(checkpoint, kEpoch, kMaxEpoch));
  ASSIGN_OR_RETURN(state.position.index, ReadCount(checkpoint, kIndex, kMaxCount));
  ASSIGN_OR_RETURN(const int64_t saved_seed, ReadInt(checkpoint, kSeed, static_cast<int64_t>(seed)));
  state.seed = static_cast<uint64_t>(saved_seed);
  ASSIGN_OR_RETURN(state.worker_positions, ReadWorkerPositions(checkpoint));
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
  if (state.worker_positions.empty()) return;
  Tensor positions(compute::DType::kInt64, {static_cast<int64_t>(state.worker_positions.size()), 2});
  int64_t* number = positions.data<int64_t>();
  for (const data::Position& position : state.worker_positions) {
    *number++ = position.epoch;
    *number++ = position.index;
  }
  tensors[kWorkerPositions] = {positions.num_bytes(), [positions = std::move(positions)] { return positions.Clone(); }};
}

std::string BytesOf(const RunState& state) {
  std::string bytes =
      absl::StrCat(state.global_step, " ", state.position.epoch, " ", state.position.index, " ", state.seed, " ",
                   state.evaluated_step.value_or(-1), " ",
                   state.evaluated_metric ? absl::StrFormat("%.17g", *state.evaluated_metric) : kNoMetric);
  for (const data::Position& position : state.worker_positions) {
    absl::StrAppend(&bytes, " ", position.epoch, " ", position.index);
  }
  return bytes;
}

absl::StatusOr<RunState> RunStateFrom(absl::string_view bytes) {
  const std::vector<absl::string_view> fields = absl::StrSplit(bytes, ' ');
  RunState state;
  int64_t evaluated = -1;
  double metric = 0;
  if (fields.size() < 6 || fields.size() % 2 != 0 || !absl::SimpleAtoi(fields[0], &state.global_step) ||
      !absl::SimpleAtoi(fields[1], &state.position.epoch) || !absl::SimpleAtoi(fields[2], &state.position.index) ||
      !absl::SimpleAtoi(fields[3], &state.seed) || !absl::SimpleAtoi(fields[4], &evaluated) ||
      (fields[5] != kNoMetric && !absl::SimpleAtod(fields[5], &metric))) {
    return absl::DataLossError(absl::StrCat("the chief has sent no state of a run: ", bytes));
  }
  if (evaluated >= 0) state.evaluated_step = evaluated;
  if (fields[5] != kNoMetric) state.evaluated_metric = metric;
  for (size_t i = 6; i < fields.size(); i += 2) {
    data::Position& position = state.worker_positions.emplace_back();
    if (!absl::SimpleAtoi(fields[i], &position.epoch) || !absl::SimpleAtoi(fields[i + 1], &position.index)) {
      return absl::DataLossError(absl::StrCat("the chief has sent no state of a run: ", bytes));
    }
  }
  return state;
}

}  // namespace official::train
