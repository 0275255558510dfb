#include "utils/distribute/cluster/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::distribute {
namespace {

constexpr size_t kMaxHostSize = 253;  // of a name in the DNS

absl::Status Refused(absl::string_view address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", misc::Printable(address), "\" ", why));
}

std::optional<std::string> CanonicalIpv6(absl::string_view text) {
  in6_addr bytes;
  if (inet_pton(AF_INET6, std::string(text).c_str(), &bytes) != 1) return std::nullopt;
  char shortest[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, &bytes, shortest, sizeof shortest);
}

bool IsHostName(absl::string_view host) {
  return !host.empty() && host.size() <= kMaxHostSize && host[0] != '.' &&
         std::all_of(host.begin(), host.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

std::optional<std::string> CanonicalHost(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return std::nullopt;
    const std::optional<std::string> ipv6 = CanonicalIpv6(host);
    return ipv6 ? std::optional(absl::StrCat("[", *ipv6, "]")) : std::nullopt;
  }
  absl::ConsumeSuffix(&host, ".");
  if (!IsHostName(host)) return std::nullopt;
  const std::string name = absl::AsciiStrToLower(host);
  return name == "localhost" ? "127.0.0.1" : name;
}

std::optional<int> PortOf(absl::string_view text) {
  int port = 0;
  const bool valid = std::all_of(text.begin(), text.end(), absl::ascii_isdigit) && absl::SimpleAtoi(text, &port) &&
                     port >= 1 && port <= kMaxPort;
  return valid ? std::optional(port) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> CanonicalAddress(absl::string_view address) {
  if (const size_t scheme = address.find("://"); scheme != absl::string_view::npos) {
    return Refused(address,
                   absl::StrCat("begins with a scheme; write \"", misc::Printable(address.substr(scheme + 3)), "\""));
  }
  // Most IPv6 addresses with a port behind them are IPv6 addresses, too: the port cannot be told from the rest.
  const bool bracketed = !address.empty() && address[0] == '[';
  if (!bracketed && std::count(address.begin(), address.end(), ':') > 1) {
    return Refused(address, "has several colons; write an IPv6 address in brackets, such as \"[::1]:2222\"");
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || (bracketed && address.back() == ']')) {
    return Refused(address, "has no port; write host:port, such as \"worker-0.example.org:2222\"");
  }
  const std::optional<int> port = PortOf(address.substr(colon + 1));
  if (!port) {
    return Refused(address, absl::StrCat("has the port '", misc::Printable(address.substr(colon + 1)),
                                         "'; write one from 1 to ", kMaxPort));
  }
  const std::optional<std::string> host = CanonicalHost(address.substr(0, colon));
  if (!host) {
    return Refused(address, "has no valid host; write a name, an IPv4 address or an IPv6 address in brackets");
  }
  return absl::StrCat(*host, ":", *port);
}

bool IsLoopback(absl::string_view address) {
  if (address.empty()) return true;
  const absl::StatusOr<std::string> canonical = CanonicalAddress(address);
  if (!canonical.ok()) return false;
  const std::string host = canonical->substr(0, canonical->rfind(':'));
  in_addr ipv4;
  // The first byte is that of the network 127.0.0.0/8.
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &ipv4) == 1;
  return host == "[::1]" || (is_ipv4 && ntohl(ipv4.s_addr) >> 24 == 127);
}

absl::Status CheckAddresses(absl::Span<const PlacedAddress> addresses) {
  std::map<std::string, const PlacedAddress*> seen;
  for (const PlacedAddress& each : addresses) {
    const absl::StatusOr<std::string> canonical = CanonicalAddress(each.address);
    if (!canonical.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(each.place, ": ", canonical.status().message()));
    }
    const auto [other, is_new] = seen.emplace(*canonical, &each);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        each.place, ": \"", misc::Printable(each.address), "\" and \"", misc::Printable(other->second->address),
        "\" of ", other->second->place, " are the same address; each task needs one of its own"));
  }
  return absl::OkStatus();
}

}  // namespace official::distribute
