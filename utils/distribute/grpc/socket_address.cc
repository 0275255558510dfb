#include "utils/distribute/grpc/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// Looks the name of a host up; Unavailable if that fails. `flags` are those of getaddrinfo.
absl::StatusOr<SocketAddress> Resolve(const std::string& address, int flags = 0) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  SocketAddress first;
  std::memcpy(&first.bytes, found->ai_addr, found->ai_addrlen);
  first.size = found->ai_addrlen;
  freeaddrinfo(found);
  return first;
}

void SetPort(int port, SocketAddress& address) {
  if (address.bytes.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.bytes)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&address.bytes)->sin_port = htons(port);
  }
}

bool IsOfThisMachine(SocketAddress address) {
  SetPort(0, address);
  const int fd = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  return fd >= 0 && bind(fd, address.get(), address.size) == 0;
}

// Returns what keeps the name of a host from being used; empty if nothing does.
std::string WhyNotYet(const std::string& address, HostOf host) {
  const absl::StatusOr<SocketAddress> resolved = Resolve(address);
  if (!resolved.ok()) return std::string(resolved.status().message());
  return host == HostOf::kOtherWorker || IsOfThisMachine(*resolved) ? "" : "it is the name of another machine";
}

}  // namespace

void WaitForName(const std::string& address, HostOf host, std::chrono::seconds timeout,
                 const std::function<void(const std::string& line)>& log) {
  constexpr std::chrono::milliseconds kLookEvery(200);
  constexpr std::chrono::seconds kTellEvery(10);
  if (Resolve(address, AI_NUMERICHOST).ok()) return;
  const auto start = std::chrono::steady_clock::now();
  auto tell = start + kTellEvery;
  for (;;) {
    const std::string why = WhyNotYet(address, host);
    const auto now = std::chrono::steady_clock::now();
    if (why.empty() || now + kLookEvery > start + timeout) return;
    if (now >= tell && log) {
      log(absl::StrCat("waiting for the DNS to know ", address.substr(0, address.rfind(':')), ": ", why));
      tell = now + kTellEvery;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

std::string WhyNotListen(const std::string& address) {
  const absl::StatusOr<SocketAddress> resolved = Resolve(address);
  if (!resolved.ok()) return std::string(resolved.status().message());
  const int fd = socket(resolved->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  if (fd >= 0 && bind(fd, resolved->get(), resolved->size) == 0 && listen(fd, 1) == 0) return "it was taken until now";
  return std::strerror(errno);
}

absl::StatusOr<std::string> OwnAddressTowards(const std::string& address) {
  const absl::StatusOr<SocketAddress> other = Resolve(address);
  if (!other.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot find worker 0 at ", address, ": ", other.status().message()));
  }
  // Nothing is sent: connecting chooses the interface.
  const int fd = socket(other->bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  SocketAddress own;
  own.size = sizeof own.bytes;
  char name[NI_MAXHOST] = "";
  if (fd < 0 || connect(fd, other->get(), other->size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own.bytes), &own.size) != 0 ||
      getnameinfo(own.get(), own.size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) != 0) {
    return absl::UnavailableError(absl::StrCat("there is no way from here to ", address));
  }
  return own.bytes.ss_family == AF_INET6 ? absl::StrCat("[", name, "]:0") : absl::StrCat(name, ":0");
}

}  // namespace official::distribute
