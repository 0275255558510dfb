// Addresses of sockets, for what gRPC does not tell.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace official::distribute {

// Returns why nobody can listen at an address, as the system says it: "Address already in use".
std::string WhyNotListen(const std::string& address);

// Returns the address by which this machine reaches another one, with port 0. Unavailable if there is no way.
absl::StatusOr<std::string> OwnAddressTowards(const std::string& address);

}  // namespace official::distribute
