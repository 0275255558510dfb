// The variables of a model on one device: model weights, optimizer slots, step counters. Programs bind them by address,
// so a store outlives the programs compiled against it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

class VariableStore {
 public:
  explicit VariableStore(Device& device) : device_(device) {}
  // The store of one of several devices that compute in the same memory and train in one group. It shares all variables
  // except scalars and those that are `per_device` with `first` (nullptr: this is the first), which must outlive this
  // store and create its variables first. Each device has its own counters and the like. Programs update `part` of the
  // common variables.
  VariableStore(Device& device, const VariableStore* first, UpdatePart part)
      : device_(device), first_(first), update_part_(part) {}
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  // Creates the variables of `graph` that the store does not have yet, with their initial values under `seed`. Returns
  // InvalidArgument if one exists with another type.
  absl::Status Create(const Graph& graph, uint64_t seed);
  // Frees a variable, if there is one of this name; programs that bind it must be gone.
  void Remove(absl::string_view name) { entries_.erase(std::string(name)); }
  bool Has(absl::string_view name) const;
  // Returns a copy in host memory; NotFound if there is no such variable.
  absl::StatusOr<Tensor> Read(absl::string_view name) const;
  // Overwrites a variable; InvalidArgument if the type differs.
  absl::Status Write(absl::string_view name, const Tensor& value);
  // The specs of the variables, sorted by name.
  std::vector<VariableSpec> specs() const;
  // The address on the device; nullptr if there is no such variable.
  void* data(absl::string_view name) const;
  const Device& device() const { return device_; }
  UpdatePart update_part() const { return update_part_; }

 private:
  struct Entry {
    VariableSpec spec;
    std::shared_ptr<void> data;
  };
  absl::StatusOr<const Entry*> Find(absl::string_view name) const;

  Device& device_;
  const VariableStore* const first_ = nullptr;
  const UpdatePart update_part_ = {};
  std::map<std::string, Entry> entries_;
};

}  // namespace official::compute
