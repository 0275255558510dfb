// The attributes of a node: what an op needs to know in addition to its inputs (an axis, strides, a rate).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::compute {

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType, Tensor>;

class Attrs {
 public:
  Attrs() = default;
  // Example: Attrs{{"axis", int64_t{1}}, {"keep_dims", true}}. Integers must be int64_t and text std::string.
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values);

  void Set(absl::string_view name, AttrValue value);
  bool Has(absl::string_view name) const;
  // The value of an attribute that must exist and have this type, one of those of AttrValue.
  template <typename T>
  const T& Get(absl::string_view name) const;
  int64_t GetInt(absl::string_view name) const { return Get<int64_t>(name); }
  double GetFloat(absl::string_view name) const { return Get<double>(name); }
  bool GetBool(absl::string_view name) const { return Get<bool>(name); }
  const std::vector<int64_t>& GetInts(absl::string_view name) const { return Get<std::vector<int64_t>>(name); }

  const std::map<std::string, AttrValue>& values() const { return values_; }
  // Returns a text that is the same for equal attributes: part of the key of cached algorithm choices.
  std::string ToString() const;

 private:
  std::map<std::string, AttrValue> values_;
};

}  // namespace official::compute
