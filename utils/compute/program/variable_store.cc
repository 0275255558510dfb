#include "utils/compute/program/variable_store.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::compute {
namespace {

// A large tensor lies in pages of its own, which the system gets back with it: the allocator would keep the memory of
// all variables after a checkpoint, in pieces.
Tensor TensorForCopy(const TensorType& type) {
  constexpr int64_t kLarge = int64_t{64} << 10;
  const int64_t bytes = type.num_bytes();
  if (bytes < kLarge) return Tensor(type);
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return Tensor(type, pages, std::shared_ptr<void>(pages, [bytes](void* p) { munmap(p, bytes); }));
}

}  // namespace

absl::Status VariableStore::Create(const Graph& graph, uint64_t seed) {
  for (const VariableSpec& spec : graph.variables()) {
    if (const auto it = entries_.find(spec.name); it != entries_.end()) {
      if (it->second.spec.type == spec.type) continue;
      return absl::InvalidArgumentError(absl::StrCat("variable ", spec.name, " exists as ",
                                                     it->second.spec.type.ToString(), ", the graph has it as ",
                                                     spec.type.ToString()));
    }
    if (first_ != nullptr && spec.type.shape.rank() > 0 && !spec.per_device) {
      ASSIGN_OR_RETURN(const Entry* const common, first_->Find(spec.name));
      entries_[spec.name] = *common;
      continue;
    }
    ASSIGN_OR_RETURN(std::shared_ptr<void> data, device_.Allocate(spec.type.num_bytes()));
    // Memory comes as zeros.
    if (spec.initializer.kind != Initializer::Kind::kConstant || spec.initializer.value != 0) {
      const Tensor initial = InitialValue(spec.initializer, spec.type, spec.name, seed);
      RETURN_IF_ERROR(device_.CopyToDevice(data.get(), initial.raw_data(), initial.num_bytes()));
    }
    entries_[spec.name] = {spec, std::move(data)};
  }
  return absl::OkStatus();
}

bool VariableStore::Has(absl::string_view name) const { return entries_.count(std::string(name)) > 0; }

absl::StatusOr<const VariableStore::Entry*> VariableStore::Find(absl::string_view name) const {
  const auto it = entries_.find(std::string(name));
  if (it == entries_.end()) return absl::NotFoundError(absl::StrCat("there is no variable ", name));
  return &it->second;
}

absl::StatusOr<Tensor> VariableStore::Read(absl::string_view name) const {
  ASSIGN_OR_RETURN(const Entry* entry, Find(name));
  Tensor copy = TensorForCopy(entry->spec.type);
  RETURN_IF_ERROR(device_.CopyToHost(copy.raw_data(), entry->data.get(), copy.num_bytes()));
  return copy;
}

absl::Status VariableStore::Write(absl::string_view name, const Tensor& value) {
  ASSIGN_OR_RETURN(const Entry* entry, Find(name));
  if (entry->spec.type != value.type()) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", name, " is ", entry->spec.type.ToString(),
                                                   ", the value given ", value.type().ToString()));
  }
  return device_.CopyToDevice(entry->data.get(), value.raw_data(), value.num_bytes());
}

std::vector<VariableSpec> VariableStore::specs() const {
  std::vector<VariableSpec> specs;
  for (const auto& [name, entry] : entries_) specs.push_back(entry.spec);
  return specs;
}

void* VariableStore::data(absl::string_view name) const {
  const auto it = entries_.find(std::string(name));
  return it == entries_.end() ? nullptr : it->second.data.get();
}

}  // namespace official::compute
