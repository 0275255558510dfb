#include "utils/compute/graph/op_def.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

std::map<std::string, OpDef>& Registry() {
  static auto* registry = new std::map<std::string, OpDef>;
  return *registry;
}

}  // namespace

absl::Status InferContext::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(op.text(), ": ", message, "; inputs are ",
                                                 absl::StrJoin(inputs, ", ", [](std::string* out, const Value& v) {
                                                   absl::StrAppend(out, v.type().ToString());
                                                 })));
}

bool RegisterOp(OpDef def) {
  const std::string name(def.name.text());
  OFFICIAL_CHECK(Registry().emplace(name, std::move(def)).second) << "op " << name << " is registered twice";
  return true;
}

const OpDef* FindOp(absl::string_view name) {
  const auto it = Registry().find(std::string(name));
  return it == Registry().end() ? nullptr : &it->second;
}

std::vector<const OpDef*> AllOps() {
  std::vector<const OpDef*> ops;
  for (const auto& [name, def] : Registry()) ops.push_back(&def);
  return ops;
}

absl::StatusOr<std::vector<TensorType>> SameTypeAsInput(const InferContext& c) {
  return std::vector<TensorType>{c.type(0)};
}

absl::StatusOr<Shape> BroadcastShape(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia), db = ib < 0 ? 1 : b.dim(ib);
    if (da != db && da != 1 && db != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes ", a.ToString(), " and ", b.ToString(), " do not broadcast"));
    }
    dims[i] = da == 1 ? db : da;
  }
  return Shape(dims);
}

}  // namespace official::compute
