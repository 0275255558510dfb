#include "utils/compute/pjrt/hlo_builder.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

std::string TypesOf(absl::Span<const HloValue> values) {
  return absl::StrJoin(values, ", ",
                       [](std::string* out, const HloValue& v) { absl::StrAppend(out, v.type.ToString()); });
}

std::string NamesOf(absl::Span<const HloValue> values) {
  return absl::StrJoin(values, ", ", [](std::string* out, const HloValue& v) { absl::StrAppend(out, v.name); });
}

std::string BitsOf(double value, const std::string& element) {
  if (element == "f64") return absl::StrFormat("0x%016X", std::bit_cast<uint64_t>(value));
  if (element == "f32") return absl::StrFormat("0x%08X", std::bit_cast<uint32_t>(static_cast<float>(value)));
  if (element == "bf16") return absl::StrFormat("0x%04X", std::bit_cast<uint16_t>(BFloat16(static_cast<float>(value))));
  if (element == "f16") return absl::StrFormat("0x%04X", std::bit_cast<uint16_t>(Half(static_cast<float>(value))));
  return "";
}

// A number as MLIR reads it back without loss.
std::string Literal(double value, const std::string& element) {
  if (element == "i1") return value != 0 ? "true" : "false";
  if (std::string bits = BitsOf(value, element); !bits.empty()) return bits;
  return absl::StrCat(static_cast<int64_t>(value));
}

std::vector<int64_t> Range(int n) {
  std::vector<int64_t> range(n);
  std::iota(range.begin(), range.end(), 0);
  return range;
}

}  // namespace

std::string HloElement(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "f32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "f16";
    case DType::kFloat64:
      return "f64";
    case DType::kInt32:
      return "i32";
    case DType::kInt64:
      return "i64";
    case DType::kUInt8:
      return "ui8";
    case DType::kBool:
      return "i1";
  }
  OFFICIAL_CHECK(false) << "no such type";
  return "";
}

std::string HloType::ToString() const {
  std::string text = "tensor<";
  for (const int64_t dim : shape.dims()) absl::StrAppend(&text, dim, "x");
  return absl::StrCat(text, element, ">");
}

HloType HloTypeOf(const TensorType& type) { return {HloElement(type.dtype), type.shape}; }

std::string HloInts(absl::Span<const int64_t> values) {
  return values.empty() ? "array<i64>" : absl::StrCat("array<i64: ", absl::StrJoin(values, ", "), ">");
}

std::string HloCombine(absl::string_view op, absl::string_view element) {
  const std::string type = absl::StrCat("tensor<", element, ">");
  return absl::StrCat("{\n    ^bb0(%a: ", type, ", %b: ", type, "):\n      %c = \"stablehlo.", op, "\"(%a, %b) : (",
                      type, ", ", type, ") -> ", type, "\n      \"stablehlo.return\"(%c) : (", type, ") -> ()\n    }");
}

HloBuilder::HloBuilder(absl::Span<const Value> arguments, const HloOptions& options)
    : options_(options), arguments_(arguments.begin(), arguments.end()) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    values_[arguments[i]] = {absl::StrCat("%arg", i), HloTypeOf(arguments[i].type())};
  }
}

std::string HloBuilder::NewName() { return absl::StrCat("%", num_names_++); }

// Views are made where they are read: a variable may have a new value by then.
HloValue HloBuilder::In(Value v) {
  const Node& node = *v.node();
  if (node.op().is_view && v.index() == 0) {
    HloValue base = In(node.input(0));
    if (v.shape().num_elements() != base.shape().num_elements()) {  // the first rows
      const Shape& shape = base.shape();
      std::vector<int64_t> end(shape.dims().begin(), shape.dims().end());
      end[0] = v.shape().dim(0);
      return Slice(base, std::vector<int64_t>(end.size(), 0), end);
    }
    return Reshape(base, v.shape());
  }
  const auto it = values_.find(v);
  if (it != values_.end()) return it->second;
  OFFICIAL_CHECK(node.Is(op::Constant)) << node.name() << " has not been emitted";
  return values_[v] = Constant(node.attrs().Get<Tensor>("value"));
}

void HloBuilder::Out(const Node& node, int output, const HloValue& value) {
  const TensorType& type = node.output_types()[output];
  OFFICIAL_CHECK(value.shape() == type.shape)
      << node.name() << " is emitted as " << value.type.ToString() << ", not as " << type.ToString();
  values_[node.output(output)] = Convert(value, HloElement(type.dtype));
}

HloValue HloBuilder::FailedCheck() {
  if (error_.name.empty()) error_ = {"%error", {hlo::kI64, {1 + kMaxCheckValues}}};
  return Reshape(Slice(error_, {0}, {1}), {});
}

void HloBuilder::Assign(Value variable, const HloValue& value) {
  OFFICIAL_CHECK(variable.node()->Is(op::Variable)) << variable.node()->name() << " is no variable";
  const HloValue current = values_.at(variable);
  OFFICIAL_CHECK(value.type == current.type) << variable.node()->name() << " becomes " << value.type.ToString();
  assigned_.insert(variable);
  const HloValue number = FailedCheck();
  values_[variable] = Select(Compare("LT", number, SplatLike(0, number)), value, current);
}

void HloBuilder::Check(const Node& node, const HloValue& failed, absl::Span<const HloValue> values,
                       absl::StatusCode code, absl::string_view message) {
  OFFICIAL_CHECK(values.size() <= kMaxCheckValues) << values.size() << " values of a check";
  const HloType scalar{hlo::kI64, {}};
  std::vector<HloValue> parts = {Splat(static_cast<double>(checks_.size()), {hlo::kI64, {1}})};
  for (const HloValue& value : values) parts.push_back(Reshape(Convert(value, hlo::kI64), {1}));
  while (parts.size() < 1 + kMaxCheckValues) parts.push_back(Splat(0, {hlo::kI64, {1}}));
  const HloValue first = FailedCheck();
  const HloValue is_first = Compare("LT", first, Splat(0, scalar));
  error_ = Select(Binary("and", failed, is_first), Concatenate(parts, 0), error_);
  checks_.push_back({code, absl::StrCat(node.name(), ": ", message)});
}

HloValue HloBuilder::Op(absl::string_view op, absl::Span<const HloValue> operands, HloType result,
                        absl::string_view attributes, absl::string_view region) {
  HloValue value{NewName(), std::move(result)};
  AppendOp(value.name, op, operands, value.type.ToString(), attributes, region);
  return value;
}

void HloBuilder::AppendOp(absl::string_view name, absl::string_view op, absl::Span<const HloValue> operands,
                          absl::string_view result_types, absl::string_view attributes, absl::string_view region) {
  absl::StrAppend(&body_, "    ", name, " = \"stablehlo.", op, "\"(", NamesOf(operands), ")");
  if (!region.empty()) absl::StrAppend(&body_, " (", region, ")");
  if (!attributes.empty()) absl::StrAppend(&body_, " {", attributes, "}");
  absl::StrAppend(&body_, " : (", TypesOf(operands), ") -> ", result_types, "\n");
}

std::vector<HloValue> HloBuilder::OnEach(absl::string_view op, absl::Span<const HloValue> operands,
                                         absl::string_view attributes, absl::string_view region) {
  const std::string name = NewName();
  AppendOp(absl::StrCat(name, ":", operands.size()), op, operands, absl::StrCat("(", TypesOf(operands), ")"),
           attributes, region);
  std::vector<HloValue> results;
  for (const HloValue& operand : operands) {
    results.push_back({absl::StrCat(name, "#", results.size()), operand.type});
  }
  return results;
}

HloValue HloBuilder::Compare(absl::string_view direction, const HloValue& a, const HloValue& b) {
  // Without the type, a compiler has been seen to compare constants of signed integers as unsigned ones.
  const std::string& element = a.element();
  const bool is_signed = element == hlo::kI32 || element == hlo::kI64;
  const char* const type = is_signed ? "SIGNED" : element == hlo::kI1 || element[0] == 'u' ? "UNSIGNED" : "FLOAT";
  return Op("compare", {a, b}, {hlo::kI1, a.shape()},
            absl::StrCat("comparison_direction = #stablehlo<comparison_direction ", direction,
                         ">, compare_type = #stablehlo<comparison_type ", type, ">"));
}

HloValue HloBuilder::Select(const HloValue& condition, const HloValue& if_true, const HloValue& if_false) {
  return Op("select", {condition, if_true, if_false}, if_true.type);
}

HloValue HloBuilder::Splat(double value, const HloType& type) {
  const std::string literal = type.shape.num_elements() == 0 ? "" : Literal(value, type.element);
  const std::string text = absl::StrCat("value = dense<", literal, "> : ", type.ToString());
  HloValue& splat = splats_[text];
  if (splat.name.empty()) splat = Op("constant", {}, type, text);
  return splat;
}

HloValue HloBuilder::Constant(const Tensor& tensor) {
  const HloType type = HloTypeOf(tensor.type());
  std::string text;
  if (tensor.dtype() == DType::kBool) {
    // Its elements are one bit each in the form below.
    text = absl::StrCat("[",
                        absl::StrJoin(tensor.flat<bool>(), ", ",
                                      [](std::string* out, bool v) { absl::StrAppend(out, v ? "true" : "false"); }),
                        "]");
    if (tensor.num_elements() == 0) text = "";
    const HloValue row = Op("constant", {}, {type.element, {tensor.num_elements()}},
                            absl::StrCat("value = dense<", text, "> : tensor<", tensor.num_elements(), "xi1>"));
    return Reshape(row, type.shape);
  }
  if (tensor.num_elements() > 0) {
    const absl::string_view bytes(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
    text = absl::StrCat("\"0x", absl::AsciiStrToUpper(absl::BytesToHexString(bytes)), "\"");
  }
  return Op("constant", {}, type, absl::StrCat("value = dense<", text, "> : ", type.ToString()));
}

HloValue HloBuilder::Convert(const HloValue& x, absl::string_view element) {
  if (x.element() == element) return x;
  return Op("convert", {x}, {std::string(element), x.shape()});
}

HloValue HloBuilder::Reshape(const HloValue& x, const Shape& shape) {
  return x.shape() == shape ? x : Op("reshape", {x}, {x.element(), shape});
}

HloValue HloBuilder::Broadcast(const HloValue& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  std::vector<int64_t> dims = Range(x.shape().rank());
  for (int64_t& dim : dims) dim += shape.rank() - x.shape().rank();
  return BroadcastInDim(x, shape, dims);
}

HloValue HloBuilder::BroadcastInDim(const HloValue& x, const Shape& shape, absl::Span<const int64_t> dims) {
  return Op("broadcast_in_dim", {x}, {x.element(), shape}, absl::StrCat("broadcast_dimensions = ", HloInts(dims)));
}

HloValue HloBuilder::Transpose(const HloValue& x, absl::Span<const int64_t> perm) {
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) shape.set_dim(i, x.shape().dim(static_cast<int>(perm[i])));
  return Op("transpose", {x}, {x.element(), shape}, absl::StrCat("permutation = ", HloInts(perm)));
}

HloValue HloBuilder::Iota(const HloType& type, int dim) {
  return Op("iota", {}, type, absl::StrCat("iota_dimension = ", dim, " : i64"));
}

HloValue HloBuilder::Slice(const HloValue& x, absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                           std::vector<int64_t> strides) {
  if (strides.empty()) strides.assign(begin.size(), 1);
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) shape.set_dim(i, (end[i] - begin[i] + strides[i] - 1) / strides[i]);
  return Op("slice", {x}, {x.element(), shape},
            absl::StrCat("start_indices = ", HloInts(begin), ", limit_indices = ", HloInts(end),
                         ", strides = ", HloInts(strides)));
}

HloValue HloBuilder::Pad(const HloValue& x, const HloValue& value, absl::Span<const int64_t> low,
                         absl::Span<const int64_t> high, absl::Span<const int64_t> interior) {
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t size = shape.dim(i);
    shape.set_dim(i, low[i] + size + std::max<int64_t>(0, size - 1) * interior[i] + high[i]);
  }
  return Op("pad", {x, value}, {x.element(), shape},
            absl::StrCat("edge_padding_low = ", HloInts(low), ", edge_padding_high = ", HloInts(high),
                         ", interior_padding = ", HloInts(interior)));
}

HloValue HloBuilder::Concatenate(absl::Span<const HloValue> values, int dim) {
  Shape shape = values[0].shape();
  int64_t size = 0;
  for (const HloValue& value : values) size += value.shape().dim(dim);
  shape.set_dim(dim, size);
  return Op("concatenate", values, {values[0].element(), shape}, absl::StrCat("dimension = ", dim, " : i64"));
}

HloValue HloBuilder::Reduce(absl::string_view op, const HloValue& x, double init, absl::Span<const int64_t> dims) {
  std::vector<int64_t> kept;
  std::vector<bool> reduced(x.shape().rank(), false);
  for (const int64_t dim : dims) reduced[dim] = true;
  for (int i = 0; i < x.shape().rank(); ++i) {
    if (!reduced[i]) kept.push_back(x.shape().dim(i));
  }
  return Op("reduce", {x, Splat(init, {x.element(), {}})}, {x.element(), Shape(kept)},
            absl::StrCat("dimensions = ", HloInts(dims)), HloCombine(op, x.element()));
}

std::vector<HloValue> HloBuilder::SumOverDevices(absl::Span<const HloValue> values) {
  sums_over_devices_ = true;
  return OnEach("all_reduce", values, "replica_groups = dense<> : tensor<0x0xi64>", HloCombine("add", hlo::kF32));
}

HloValue HloBuilder::WideSum(const HloValue& x, absl::Span<const int64_t> dims) {
  return Reduce("add", Convert(x, options_.has_64_bits ? hlo::kF64 : hlo::kF32), 0, dims);
}

std::vector<int> HloBuilder::updated() const {
  std::vector<int> places;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (assigned_.contains(arguments_[i])) places.push_back(static_cast<int>(i));
  }
  return places;
}

std::string HloBuilder::Module(absl::Span<const Value> fetches) {
  std::vector<HloValue> results;
  for (const Value& v : fetches) results.push_back(In(v));
  absl::flat_hash_map<int, size_t> result_of;  // of updated arguments
  for (const int place : updated()) {
    result_of[place] = results.size();
    results.push_back(values_.at(arguments_[place]));
  }
  if (has_error()) results.push_back(error_);

  std::string arguments;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    absl::StrAppend(&arguments, i == 0 ? "" : ", ", "%arg", i, ": ", HloTypeOf(arguments_[i].type()).ToString());
    const auto it = result_of.find(static_cast<int>(i));
    if (it != result_of.end()) absl::StrAppend(&arguments, " {tf.aliasing_output = ", it->second, " : i32}");
  }
  if (has_error()) absl::StrAppend(&arguments, arguments.empty() ? "" : ", ", "%error: ", error_.type.ToString());
  return absl::StrCat("module @graph {\n  func.func public @main(", arguments, ") -> (", TypesOf(results), ") {\n",
                      body_, "    \"func.return\"(", NamesOf(results), ") : (", TypesOf(results), ") -> ()\n  }\n}\n");
}

}  // namespace official::compute
