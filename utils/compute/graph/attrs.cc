#include "utils/compute/graph/attrs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

struct Printer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return absl::StrCat(v); }
  std::string operator()(double v) const { return absl::StrCat(v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const std::vector<int64_t>& v) const { return absl::StrCat("[", absl::StrJoin(v, ","), "]"); }
  std::string operator()(DType v) const { return std::string(DTypeName(v)); }
  std::string operator()(const Tensor& v) const { return v.type().ToString(); }
};

}  // namespace

std::string Attrs::ToString() const {
  return absl::StrJoin(values_, ",", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, "=", std::visit(Printer(), entry.second));
  });
}

}  // namespace official::compute
