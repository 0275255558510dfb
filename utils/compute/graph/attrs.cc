#include "utils/compute/graph/attrs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"

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

Attrs::Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

void Attrs::Set(absl::string_view name, AttrValue value) {
  values_.insert_or_assign(std::string(name), std::move(value));
}

bool Attrs::Has(absl::string_view name) const { return values_.count(std::string(name)) > 0; }

template <typename T>
const T& Attrs::Get(absl::string_view name) const {
  const auto it = values_.find(std::string(name));
  OFFICIAL_CHECK(it != values_.end()) << "no attribute " << name;
  const T* value = std::get_if<T>(&it->second);
  OFFICIAL_CHECK(value != nullptr) << "attribute " << name << " has another type";
  return *value;
}
template const bool& Attrs::Get(absl::string_view) const;
template const int64_t& Attrs::Get(absl::string_view) const;
template const double& Attrs::Get(absl::string_view) const;
template const std::string& Attrs::Get(absl::string_view) const;
template const std::vector<int64_t>& Attrs::Get(absl::string_view) const;
template const DType& Attrs::Get(absl::string_view) const;
template const Tensor& Attrs::Get(absl::string_view) const;

std::string Attrs::ToString() const {
  return absl::StrJoin(values_, ",", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, "=", std::visit(Printer(), entry.second));
  });
}

}  // namespace official::compute
