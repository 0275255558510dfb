#include "utils/distribute/custom_loop/per_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using compute::DType;
using compute::Shape;
using compute::Tensor;

// Returns `axis` counted from the front.
absl::StatusOr<int> CheckedAxis(const Shape& shape, int axis) {
  if (axis >= -shape.rank() && axis < shape.rank()) return axis < 0 ? axis + shape.rank() : axis;
  return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is not one of a value of shape ", shape.ToString()));
}

Shape WithoutAxis(const Shape& shape, int axis) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return Shape(dims);
}

// InvalidArgument if the tensors differ in more than the size of `axis`, if there is one.
absl::Status CheckSameTypes(absl::Span<const Tensor> replicas, std::optional<int> axis) {
  for (size_t r = 1; r < replicas.size(); ++r) {
    compute::TensorType first = replicas[0].type(), type = replicas[r].type();
    if (axis && first.shape.rank() == type.shape.rank()) {
      first.shape = WithoutAxis(first.shape, *axis);
      type.shape = WithoutAxis(type.shape, *axis);
    }
    if (type == first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", r, " has ", replicas[r].type().ToString(), ", and replica 0 ", replicas[0].type().ToString(),
        axis ? absl::StrCat("; they may differ in dimension ", *axis, " only")
             : "; without an axis all replicas need the same shape"));
  }
  return absl::OkStatus();
}

// Adds what of `x` lies along the axis to `sum`, which is `inner` elements for each of the `outer` places before it.
template <typename T>
void AddAlongAxis(const Tensor& x, int64_t outer, int64_t size, int64_t inner, T* sum) {
  const T* from = x.data<T>();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t i = 0; i < inner; ++i) sum[o * inner + i] += *from++;
    }
  }
}

}  // namespace

absl::StatusOr<Tensor> ReduceTensors(ReduceOp op, absl::Span<const Tensor> replicas, std::optional<int> axis) {
  const Tensor& first = replicas[0];
  if (axis) {
    ASSIGN_OR_RETURN(axis, CheckedAxis(first.shape(), *axis));
  }
  RETURN_IF_ERROR(CheckSameTypes(replicas, axis));
  if (first.dtype() == DType::kBool) return absl::InvalidArgumentError("bool values have no sum or mean");
  const bool is_floating = compute::IsFloating(first.dtype());
  const int rank = first.shape().rank();
  const int64_t outer = axis ? first.shape().Product(0, *axis) : 1;
  const int64_t inner = axis ? first.shape().Product(*axis + 1, rank) : first.num_elements();
  Tensor sum(is_floating ? DType::kFloat64 : DType::kInt64, axis ? WithoutAxis(first.shape(), *axis) : first.shape());
  int64_t count = 0;
  for (const Tensor& x : replicas) {
    const int64_t size = axis ? x.shape().dim(*axis) : 1;
    count += size;
    if (is_floating) {
      AddAlongAxis(x.CastTo(DType::kFloat64), outer, size, inner, sum.data<double>());
    } else {
      AddAlongAxis(x.CastTo(DType::kInt64), outer, size, inner, sum.data<int64_t>());
    }
  }
  if (op == ReduceOp::kSum) return sum.CastTo(first.dtype());
  const Tensor mean = sum.CastTo(DType::kFloat64);
  for (double& element : mean.flat<double>()) element /= static_cast<double>(count);
  return is_floating ? mean.CastTo(first.dtype()) : mean;
}

absl::StatusOr<Tensor> ReduceTensorsBy(CrossDeviceOps& ops, ReduceOp op, absl::Span<const Tensor> replicas,
                                       std::optional<int> axis) {
  RETURN_IF_ERROR(ReduceTensors(op, replicas, axis).status());
  std::vector<Tensor> values;
  int64_t count = 0;
  for (const Tensor& x : replicas) {
    ASSIGN_OR_RETURN(Tensor value, axis ? ReduceTensors(ReduceOp::kSum, {x}, axis) : x);
    if (op == ReduceOp::kMean && !compute::IsFloating(x.dtype())) value = value.CastTo(DType::kFloat64);
    if (axis) count += x.shape().dim(*axis < 0 ? *axis + x.shape().rank() : *axis);
    values.push_back(std::move(value));
  }
  ASSIGN_OR_RETURN(Tensor result, ops.Reduce(axis ? ReduceOp::kSum : op, values));
  RETURN_IF_ERROR(CheckReduced(result, values[0].type()));
  if (!axis || op == ReduceOp::kSum) return result;
  const Tensor mean = result.CastTo(DType::kFloat64);
  for (double& element : mean.flat<double>()) element /= static_cast<double>(count);
  return mean.CastTo(result.dtype());
}

absl::Status CheckPlainSum(const Tensor& value) {
  const Tensor elements = value.CastTo(DType::kFloat64);
  const auto other = std::find_if(elements.flat<double>().begin(), elements.flat<double>().end(),
                                  [](double element) { return element != 0; });
  if (other == elements.flat<double>().end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "A non-DistributedValues value ", value.shape().rank() == 0 ? absl::StrCat(*other) : value.type().ToString(),
      " cannot be reduced with the given reduce op ReduceOp.SUM."));
}

absl::StatusOr<Tensor> ConcatTensors(absl::Span<const Tensor> replicas, int axis) {
  const Tensor& first = replicas[0];
  ASSIGN_OR_RETURN(axis, CheckedAxis(first.shape(), axis));
  RETURN_IF_ERROR(CheckSameTypes(replicas, axis));
  Shape shape = first.shape();
  int64_t size = 0;
  for (const Tensor& x : replicas) size += x.shape().dim(axis);
  shape.set_dim(axis, size);
  Tensor joined(first.dtype(), shape);
  char* to = static_cast<char*>(joined.raw_data());
  for (int64_t o = 0; o < shape.Product(0, axis); ++o) {
    for (const Tensor& x : replicas) {
      const int64_t bytes = x.shape().Product(axis, shape.rank()) * compute::SizeOf(x.dtype());
      to = std::copy_n(static_cast<const char*>(x.raw_data()) + o * bytes, bytes, to);
    }
  }
  return joined;
}

absl::StatusOr<std::vector<std::vector<Tensor>>> ArgumentsOfReplicas(absl::Span<const DistributedValue> arguments,
                                                                     int num_replicas) {
  std::vector<std::vector<Tensor>> of_replicas(num_replicas);
  for (const DistributedValue& argument : arguments) {
    const auto* const per_replica = std::get_if<PerReplica>(&argument);
    if (per_replica != nullptr && static_cast<int>(per_replica->values.size()) != num_replicas) {
      return absl::InvalidArgumentError(absl::StrCat("a per-replica argument has ", per_replica->values.size(),
                                                     " components, and this worker ", num_replicas, " replicas"));
    }
    for (int r = 0; r < num_replicas; ++r) {
      of_replicas[r].push_back(per_replica != nullptr ? per_replica->values[r] : std::get<Tensor>(argument));
    }
  }
  return of_replicas;
}

}  // namespace official::distribute
