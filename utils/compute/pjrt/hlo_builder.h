// HloBuilder: writes a graph as the text of a StableHLO module. The emitter of an op reads the values of the node's
// inputs, adds StableHLO ops and gives the node's outputs their values; it touches no device.
//
// A module is a function of values: a variable that the graph updates is one of its arguments and its new value one of
// its results.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

// Element types of StableHLO by their names there. The unsigned ones are those of random numbers.
namespace hlo {
inline constexpr char kF32[] = "f32", kF64[] = "f64", kI1[] = "i1", kI32[] = "i32", kI64[] = "i64", kUi32[] = "ui32",
                      kUi64[] = "ui64";
}  // namespace hlo
// The name of a DType's element type: "bf16".
std::string HloElement(DType dtype);

struct HloType {
  std::string element;
  Shape shape;

  // Returns "tensor<2x3xf32>".
  std::string ToString() const;
  friend bool operator==(const HloType& a, const HloType& b) = default;
};
HloType HloTypeOf(const TensorType& type);

// A value of the module: its name in the text, such as "%12", and its type.
struct HloValue {
  std::string name;
  HloType type;

  const std::string& element() const { return type.element; }
  const Shape& shape() const { return type.shape; }
};

// An error that depends on the data: a module has no way to fail, so it returns which check failed, and with what.
struct HloCheck {
  absl::StatusCode code;
  std::string message;  // $0, $1 and so on in it stand for the values
};

// The abilities of the device that a module is for.
struct HloOptions {
  // False for a device that has neither float64 nor integers of 64 bits and would emulate them, such as a TPU: sums are
  // then added up in float32, in which such a device adds many partial sums.
  bool has_64_bits = true;
  // False for a device that multiplies batches of matrices in float32 only, such as XLA for CPUs.
  bool has_narrow_products = false;
  // True for a device whose compiler would compute what a product takes inside it, however long that is, such as a
  // TPU's: the random numbers of dropout are drawn before.
  bool fuses_into_products = false;
};

class HloBuilder {
 public:
  // The arguments of the module in this order, sources of a graph.
  explicit HloBuilder(absl::Span<const Value> arguments, const HloOptions& options = {});

  const HloOptions& options() const { return options_; }

  // The value of a graph's value: what its node's emitter has set, an argument, a constant, the last value that the
  // graph gave a variable, or a view of one of these.
  HloValue In(Value v);
  // The same, converted to float32, in which ops compute whatever floats are stored as.
  HloValue InFloat(Value v) { return Convert(In(v), hlo::kF32); }
  // Sets the value of an output of a node, converted to its type.
  void Out(const Node& node, int output, const HloValue& value);
  // Values that several emitters use, by a key that they agree on; none until one of them has put them there.
  std::vector<HloValue>& Shared(const std::string& key) { return shared_[key]; }
  // Gives a variable a new value, unless a check has failed before, in this run or an earlier one whose error has not
  // been told yet: an update behind an error changes nothing.
  void Assign(Value variable, const HloValue& value);
  // The run fails with `code` if `failed`, a bool scalar, is true. In the message, which the name of the node precedes,
  // $0, $1 and so on are replaced by `values`, integer scalars, at most kMaxCheckValues. The first check that fails
  // counts.
  void Check(const Node& node, const HloValue& failed, absl::Span<const HloValue> values, absl::StatusCode code,
             absl::string_view message);
  static constexpr int kMaxCheckValues = 3;

  // Adds an op in MLIR's generic form: Op("add", {a, b}, type) is `"stablehlo.add"(%a, %b) : ...`. `attributes` is the
  // text within its braces, `region` that within its parentheses.
  HloValue Op(absl::string_view op, absl::Span<const HloValue> operands, HloType result,
              absl::string_view attributes = "", absl::string_view region = "");

  // Ops of one or two values of one type that give this type: "add", "exponential".
  HloValue Unary(absl::string_view op, const HloValue& x) { return Op(op, {x}, x.type); }
  HloValue Binary(absl::string_view op, const HloValue& a, const HloValue& b) { return Op(op, {a, b}, a.type); }
  HloValue Add(const HloValue& a, const HloValue& b) { return Binary("add", a, b); }
  HloValue Sub(const HloValue& a, const HloValue& b) { return Binary("subtract", a, b); }
  HloValue Mul(const HloValue& a, const HloValue& b) { return Binary("multiply", a, b); }
  HloValue Div(const HloValue& a, const HloValue& b) { return Binary("divide", a, b); }
  // `direction`: EQ, NE, LT, LE, GT or GE.
  HloValue Compare(absl::string_view direction, const HloValue& a, const HloValue& b);
  // `condition` has the shape of the others or is a scalar.
  HloValue Select(const HloValue& condition, const HloValue& if_true, const HloValue& if_false);

  // A constant with this value in all elements; for integers and bool the value is a whole number.
  HloValue Splat(double value, const HloType& type);
  HloValue SplatLike(double value, const HloValue& like) { return Splat(value, like.type); }
  HloValue Constant(const Tensor& tensor);

  // The value itself if it has this type or shape already.
  HloValue Convert(const HloValue& x, absl::string_view element);
  HloValue Reshape(const HloValue& x, const Shape& shape);
  // `x` in a larger shape by NumPy's rule.
  HloValue Broadcast(const HloValue& x, const Shape& shape);
  // Dimension i of x is dimension dims[i] of the shape.
  HloValue BroadcastInDim(const HloValue& x, const Shape& shape, absl::Span<const int64_t> dims);
  HloValue Transpose(const HloValue& x, absl::Span<const int64_t> perm);
  // The indices along dimension `dim`.
  HloValue Iota(const HloType& type, int dim);
  // The box [begin, end) at every stride-th place; no strides: all 1.
  HloValue Slice(const HloValue& x, absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                 std::vector<int64_t> strides = {});
  // Pads with the scalar `value`: `low` before, `high` after and `interior` between the elements of each dimension.
  // Negative numbers cut off.
  HloValue Pad(const HloValue& x, const HloValue& value, absl::Span<const int64_t> low, absl::Span<const int64_t> high,
               absl::Span<const int64_t> interior);
  HloValue Concatenate(absl::Span<const HloValue> values, int dim);
  // Reduces dimensions with "add", "maximum", "minimum" or "and", from `init`.
  HloValue Reduce(absl::string_view op, const HloValue& x, double init, absl::Span<const int64_t> dims);

  // The values themselves, which the compiler neither knows to be equal to `values` nor has before all of these: what
  // is computed from them is computed again, later.
  std::vector<HloValue> Barrier(absl::Span<const HloValue> values) { return OnEach("optimization_barrier", values); }

  // The sums of float32 values over all devices that run the module together, as many as there are. The values are
  // exchanged together, as one all_reduce.
  std::vector<HloValue> SumOverDevices(absl::Span<const HloValue> values);
  bool sums_over_devices() const { return sums_over_devices_; }

  // x as a factor of a product of batches of matrices: float32 where the device cannot multiply narrower numbers, which
  // are then multiplied exactly, too.
  HloValue Factor(const HloValue& x) { return options_.has_narrow_products ? x : Convert(x, hlo::kF32); }

  // Adds up dimensions of float32 values in float64, as kernels do, where the device has it.
  HloValue Sum(const HloValue& x, absl::Span<const int64_t> dims) { return Convert(WideSum(x, dims), hlo::kF32); }
  // The same, in the type in which it was added up.
  HloValue WideSum(const HloValue& x, absl::Span<const int64_t> dims);

  // The checks so far, by the number that the module returns.
  const std::vector<HloCheck>& checks() const { return checks_; }
  // The arguments that Assign has given a value, by their places.
  std::vector<int> updated() const;
  // True if the module has checks, or updates behind those of others.
  bool has_error() const { return !error_.name.empty(); }
  // The text of the module, whose function is @main(arguments). It returns the values of `fetches`, then the new values
  // of the updated arguments, whose buffers it takes. If it has_error() its last argument and its last result are
  // int64[1 + kMaxCheckValues]: the number of the first check that failed, or -1, and its values. The argument is the
  // result of the run before, and an error there is the result here.
  std::string Module(absl::Span<const Value> fetches);

 private:
  std::string NewName();
  // Adds a line to the body: a name that stands for the results, then what Op() describes.
  void AppendOp(absl::string_view name, absl::string_view op, absl::Span<const HloValue> operands,
                absl::string_view result_types, absl::string_view attributes, absl::string_view region);
  // Adds an op that has a result of the type of each operand.
  std::vector<HloValue> OnEach(absl::string_view op, absl::Span<const HloValue> operands,
                               absl::string_view attributes = "", absl::string_view region = "");
  // The number of the check that failed, or -1, as a scalar.
  HloValue FailedCheck();

  const HloOptions options_;
  std::vector<Value> arguments_;
  absl::flat_hash_map<Value, HloValue> values_;
  absl::flat_hash_map<std::string, HloValue> splats_;  // by their text: each is written once
  std::map<std::string, std::vector<HloValue>> shared_;
  std::vector<HloCheck> checks_;
  absl::flat_hash_set<Value> assigned_;
  HloValue error_;  // see Module()
  bool sums_over_devices_ = false;
  std::string body_;
  int num_names_ = 0;
};

// The attribute of products (convolution, dot_general) that keeps float32 operands whole: a TPU would round them to
// bfloat16.
inline constexpr char kHloExactProducts[] =
    "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";

// The region of an op that combines two scalars, such as "add", for reductions and scatter.
std::string HloCombine(absl::string_view op, absl::string_view element);

// "array<i64: 1, 2>"
std::string HloInts(absl::Span<const int64_t> values);

}  // namespace official::compute
