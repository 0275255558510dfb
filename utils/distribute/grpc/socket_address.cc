#include "utils/distribute/grpc/socket_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

// Looks the name of a host up; Unavailable if that fails.
absl::StatusOr<SocketAddress> Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
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

}  // namespace

std::string WhyNotListen(const std::string& address) {
  const absl::StatusOr<SocketAddress> resolved = Resolve(address);
  if (!resolved.ok()) return std::string(resolved.status().message());
  const int fd = socket(resolved->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  if (fd >= 0 && bind(fd, resolved->get(), resolved->size) == 0 && listen(fd, 1) == 0) return "it was taken until now";
  return std::strerror(errno);
}

absl::StatusOr<std::string> OwnAddressTowards(const std::string& address) {
  ASSIGN_OR_RETURN(const SocketAddress other, Resolve(address));
  // Nothing is sent: connecting chooses the interface.
  const int fd = socket(other.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  SocketAddress own;
  own.size = sizeof own.bytes;
  char name[NI_MAXHOST] = "";
  if (fd < 0 || connect(fd, other.get(), other.size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own.bytes), &own.size) != 0 ||
      getnameinfo(own.get(), own.size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) != 0) {
    return absl::UnavailableError(absl::StrCat("there is no way from here to ", address));
  }
  return own.bytes.ss_family == AF_INET6 ? absl::StrCat("[", name, "]:0") : absl::StrCat(name, ":0");
}

}  // namespace official::distribute
