#include "utils/distribute/cluster/free_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/address.h"

namespace official::distribute {
namespace {

constexpr int kTries = 100;
// An address of TEST-NET-3 (RFC 5737), to which nothing is sent.
constexpr char kElsewhere[] = "203.0.113.1";

class Socket {
 public:
  explicit Socket(int type) : descriptor_(socket(AF_INET, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() { close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

sockaddr_in EndPoint(in_addr host, int port) {
  return {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = host, .sin_zero = {}};
}

std::string ToText(in_addr host) {
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &host, text, sizeof text);
}

// What the name of this host stands for; on a host that is not in a network that is often 127.0.0.1 or 127.0.1.1.
std::vector<in_addr> HostsOfOwnName() {
  char name[256] = {};
  addrinfo wanted = {};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (gethostname(name, sizeof name - 1) != 0 || getaddrinfo(name, nullptr, &wanted, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  std::vector<in_addr> hosts;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    sockaddr_in address;
    std::memcpy(&address, entry->ai_addr, sizeof address);
    if (ntohl(address.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) hosts.push_back(address.sin_addr);
  }
  return hosts;
}

// The address from which this host would send to others.
std::optional<in_addr> HostOfDefaultRoute() {
  const Socket udp(SOCK_DGRAM);
  in_addr elsewhere;
  inet_pton(AF_INET, kElsewhere, &elsewhere);
  sockaddr_in address = EndPoint(elsewhere, 9);
  if (connect(udp.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  socklen_t size = sizeof address;
  if (getsockname(udp.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return address.sin_addr;
}

// The number of the error, 0 if a process can listen there.
int TryToBind(in_addr host, int port) {
  const Socket tcp(SOCK_STREAM);
  const sockaddr_in address = EndPoint(host, port);
  return bind(tcp.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// A port of a host, or why it has none.
struct PortSearch {
  int port = 0;
  int error = 0;
};

PortSearch FindPort(in_addr host) {
  std::random_device random;
  PortSearch search;
  for (int i = 0; i < kTries; ++i) {
    const int port = kFirstRunPort + static_cast<int>(random() % kNumRunPorts);
    search.error = TryToBind(host, port);
    if (search.error == 0) search.port = port;
    // A name may stand for an address that this host does not have.
    if (search.error != EADDRINUSE) break;
  }
  return search;
}

absl::Status NoPort(in_addr host, int error) {
  return absl::UnavailableError(absl::StrCat("no port from ", kFirstRunPort, " to ", kFirstRunPort + kNumRunPorts - 1,
                                             " is free at ", ToText(host), ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::string> FreeAddress() {
  std::vector<in_addr> hosts = HostsOfOwnName();
  if (const std::optional<in_addr> host = HostOfDefaultRoute()) hosts.push_back(*host);
  hosts.push_back({.s_addr = htonl(INADDR_LOOPBACK)});
  int error = 0;
  for (const in_addr host : hosts) {
    const PortSearch search = FindPort(host);
    if (search.port != 0) return absl::StrCat(ToText(host), ":", search.port);
    error = search.error;
  }
  return NoPort(hosts.front(), error);
}

absl::StatusOr<int> FreePort() {
  constexpr in_addr kAllHosts = {.s_addr = INADDR_ANY};
  const PortSearch search = FindPort(kAllHosts);
  if (search.port != 0) return search.port;
  return NoPort(kAllHosts, search.error);
}

}  // namespace official::distribute
