#include "utils/compute/runtime/device.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

std::map<std::string, DeviceFactory>& Factories() {
  static auto* factories = new std::map<std::string, DeviceFactory>;
  return *factories;
}

}  // namespace

bool RegisterDeviceKind(absl::string_view kind, DeviceFactory factory) {
  Factories()[std::string(kind)] = std::move(factory);
  return true;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, const DeviceOptions& options) {
  const auto it = Factories().find(std::string(kind));
  if (it == Factories().end()) {
    return absl::NotFoundError(
        absl::StrCat("no device of kind ", kind, "; there are: ", absl::StrJoin(DeviceKinds(), ", ")));
  }
  return it->second(options);
}

std::vector<std::string> DeviceKinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, factory] : Factories()) kinds.push_back(kind);
  return kinds;
}

}  // namespace official::compute
