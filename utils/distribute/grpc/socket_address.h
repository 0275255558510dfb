// Addresses of sockets, for what gRPC does not tell.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace official::distribute {

// Returns why nobody can listen at an address, as the system says it: "Address already in use".
std::string WhyNotListen(const std::string& address);

enum class HostOf { kThisWorker, kOtherWorker };

// Waits until the DNS knows the name of a host, which is some seconds after a pod of Kubernetes has started, and, for
// the name of this worker, until it stands for an address of this machine and no longer for that of the pod before.
// Tells `log`, which may be empty, of a long wait. Returns at once for a host that is not a name, and after `timeout`
// anyway.
void WaitForName(const std::string& address, HostOf host, std::chrono::seconds timeout,
                 const std::function<void(const std::string& line)>& log);

// Returns the address by which this machine reaches another one, with port 0. Unavailable if there is no way.
absl::StatusOr<std::string> OwnAddressTowards(const std::string& address);

}  // namespace official::distribute
