// An address for the worker that the others connect to, where nothing that started it gave one.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace official::distribute {

// Returns an address of this host at which nothing listens, such as "192.0.2.7:24017". The host is that which its own
// name stands for in the DNS or /etc/hosts, unless that is 127.0.0.0/8, else that of the interface of the default
// route, else 127.0.0.1; IPv4 only. The port is a random one from 20000 to 31999. Another process may take it before
// the caller does. Unavailable if none of these addresses has a free port.
absl::StatusOr<std::string> FreeAddress();

// Returns a random port from 20000 to 31999 at which nothing listens, at any address of this host. Another process may
// take it before the caller does. Unavailable if there is none.
absl::StatusOr<int> FreePort();

}  // namespace official::distribute
