#include "utils/export/onnx_check.h"

#include <cstdint>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_builder.h"
#include "utils/export/onnx_converter.h"
#include "utils/export/onnx_graph.h"
#include "utils/files/files.h"

namespace official::exporting {
namespace {

using compute::DType;
using compute::Tensor;
using Names = std::set<std::string>;

absl::Status Inconsistent(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the ONNX model would not be valid: ", what));
}

absl::Status NotAsWritten(const std::string& path, absl::string_view what) {
  return absl::AbortedError(
      absl::StrCat(path, " is not read back as it was written: ", what, "; nothing is exported, try again"));
}

absl::Status CheckInitializer(const onnx::TensorProto& tensor) {
  const std::optional<DType> dtype = FromOnnxType(tensor.data_type());
  std::optional<int64_t> bytes = dtype ? std::optional<int64_t>(compute::SizeOf(*dtype)) : std::nullopt;
  for (const int64_t size : tensor.dims()) bytes = bytes && size >= 0 ? std::optional(*bytes * size) : std::nullopt;
  if (bytes == static_cast<int64_t>(tensor.raw_data().size())) return absl::OkStatus();
  return Inconsistent(absl::StrCat("the initializer ", tensor.name(), " has not the bytes of its type and shape"));
}

// `all` has the names of the model so far, `known` those of them that the graph can use.
absl::Status CheckGraph(const onnx::GraphProto& graph, Names known, Names& all) {
  const auto add = [&](const std::string& name) -> absl::Status {
    known.insert(name);
    return all.insert(name).second ? absl::OkStatus() : Inconsistent(absl::StrCat("two values have the name ", name));
  };
  for (const onnx::ValueInfoProto& input : graph.input()) RETURN_IF_ERROR(add(input.name()));
  for (const onnx::TensorProto& initializer : graph.initializer()) {
    RETURN_IF_ERROR(add(initializer.name()));
    RETURN_IF_ERROR(CheckInitializer(initializer));
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) {
      if (input.empty() || known.contains(input)) continue;
      return Inconsistent(absl::StrCat(node.name(), " uses ", input, ", which nothing before it makes"));
    }
    for (const onnx::AttributeProto& attr : node.attribute()) {
      if (attr.has_g()) RETURN_IF_ERROR(CheckGraph(attr.g(), known, all));
    }
    for (const std::string& output : node.output()) RETURN_IF_ERROR(add(output));
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    if (!known.contains(output.name())) return Inconsistent(absl::StrCat("nothing makes the output ", output.name()));
  }
  return absl::OkStatus();
}

bool HasShape(const onnx::TensorShapeProto& shape, const std::vector<int64_t>& dims) {
  if (shape.dim_size() != static_cast<int>(dims.size())) return false;
  for (int i = 0; i < shape.dim_size(); ++i) {
    if (shape.dim(i).has_dim_value() ? shape.dim(i).dim_value() != dims[i] : dims[i] >= 0) return false;
  }
  return true;
}

// The inputs or outputs that clients see are those of the signature.
absl::Status CheckValues(absl::string_view what, const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
                         const std::map<std::string, Signature::Tensor>& wanted) {
  if (values.size() != static_cast<int>(wanted.size())) {
    return Inconsistent(absl::StrCat("it has ", values.size(), " ", what, "s instead of ", wanted.size()));
  }
  for (const onnx::ValueInfoProto& value : values) {
    const auto found = wanted.find(value.name());
    if (found == wanted.end()) return Inconsistent(absl::StrCat("it has an ", what, " ", value.name()));
    const auto& type = value.type().tensor_type();
    if (type.elem_type() == ToOnnxType(found->second.dtype) && HasShape(type.shape(), found->second.dims)) continue;
    return Inconsistent(absl::StrCat("the ", what, " ", value.name(), " has another type or shape"));
  }
  return absl::OkStatus();
}

bool HasValue(const onnx::TensorProto& stored, const Tensor& value) {
  return stored.data_type() == ToOnnxType(value.dtype()) &&
         value.shape() == compute::Shape(absl::MakeConstSpan(stored.dims().data(), stored.dims().size())) &&
         stored.raw_data() ==
             absl::string_view(static_cast<const char*>(value.raw_data()), static_cast<size_t>(value.num_bytes()));
}

}  // namespace

absl::Status CheckOnnxModel(const onnx::ModelProto& model, const Signature& signature) {
  Names all;
  RETURN_IF_ERROR(CheckGraph(model.graph(), {}, all));
  RETURN_IF_ERROR(CheckValues("input", model.graph().input(), signature.inputs));
  return CheckValues("output", model.graph().output(), signature.outputs);
}

absl::Status CheckOnnxFile(const std::string& path, absl::string_view model, const Signature& signature,
                           const std::map<std::string, Tensor>& variables) {
  onnx::ModelProto parsed;
  {
    const absl::StatusOr<std::string> read = files::ReadFile(path, static_cast<int64_t>(model.size()));
    if (!read.ok()) return NotAsWritten(path, read.status().message());
    if (*read != model || !parsed.ParseFromString(*read)) return NotAsWritten(path, "the file has other bytes");
  }
  RETURN_IF_ERROR(CheckOnnxModel(parsed, signature));
  std::map<std::string, const onnx::TensorProto*> stored;
  for (const onnx::TensorProto& initializer : parsed.graph().initializer()) stored[initializer.name()] = &initializer;
  for (const auto& [name, value] : variables) {
    const auto same = stored.find(name), filters = stored.find(absl::StrCat(name, kOnnxFilters));
    if (same == stored.end() && filters == stored.end()) {
      return Inconsistent(absl::StrCat("no initializer is the variable ", name));
    }
    const bool is_right = (same == stored.end() || HasValue(*same->second, value)) &&
                          (filters == stored.end() || HasValue(*filters->second, ToOnnxFilters(value)));
    if (!is_right) return NotAsWritten(path, absl::StrCat("the variable ", name, " has another value"));
  }
  return absl::OkStatus();
}

absl::Status CheckOnnxAnswers(const onnx::ModelProto& model, const Answers& answers) {
  return CheckAnswers(answers, [&](const std::map<std::string, compute::Value>& feeds, compute::Graph& graph) {
    return AddOnnxGraph(model.graph(), feeds, graph);
  });
}

}  // namespace official::exporting
