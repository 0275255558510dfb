// Addresses of tasks: "host:port", as they stand in TF_CONFIG and in lists of workers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::distribute {

inline constexpr int kMaxPort = 65535;

// The ports that a run takes where nobody gave it one: below those that Linux gives to outgoing connections, from 32768
// on (/proc/sys/net/ipv4/ip_local_port_range), and above those of services.
inline constexpr int kFirstRunPort = 20000, kNumRunPorts = 12000;

// Returns `address` in the one form that equal addresses share: names in lower case and without a last dot, localhost
// as 127.0.0.1, IPv6 addresses in brackets and as short as possible. No name is looked up. InvalidArgument, with what
// to write instead, for a scheme ("grpc://a:1"), a missing port or one outside 1 to 65535, an IPv6 address without
// brackets, and hosts with other characters than letters, digits, '-', '.' and '_'.
absl::StatusOr<std::string> CanonicalAddress(absl::string_view address);

// Returns true if only processes of this machine can reach the address, and for an empty one, which no one knows yet.
bool IsLoopback(absl::string_view address);

// An address and the place where it was read: "cluster.worker[1]".
struct PlacedAddress {
  std::string place;
  std::string address;
};

// Returns InvalidArgument, with the place, for the first address that is none, and with both places if two are equal.
absl::Status CheckAddresses(absl::Span<const PlacedAddress> addresses);

}  // namespace official::distribute
