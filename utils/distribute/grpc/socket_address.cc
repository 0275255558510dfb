#include "utils/distribute/grpc/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::Status SystemError(int number) { return absl::UnavailableError(std::strerror(number)); }

// Looks the name of a host up; Unavailable if that fails. `flags` are those of getaddrinfo.
absl::StatusOr<AddressList> Resolve(const std::string& address, int flags = 0) {
  addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const char* const port = address.c_str() + address.rfind(':') + 1;
  if (const int error = getaddrinfo(HostOf(address).c_str(), port, &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  return AddressList(found, freeaddrinfo);
}

// True if one of the addresses, whose ports are 0, is of this machine.
bool HasAddressOfThisMachine(const AddressList& addresses) {
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
    if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0) return true;
  }
  return false;
}

bool IsLoopback(const addrinfo& address) {
  if (address.ai_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&v6);
  }
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// Returns what keeps the name of a host from being used; empty if nothing does.
std::string WhyNotYet(const std::string& address, WhoseName whose) {
  const absl::StatusOr<AddressList> resolved = Resolve(absl::StrCat(HostOf(address), ":0"));
  if (!resolved.ok()) return std::string(resolved.status().message());
  return whose == WhoseName::kOtherWorkers || HasAddressOfThisMachine(*resolved) ? ""
                                                                                 : "it is the name of another machine";
}

}  // namespace

std::string HostOf(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

void WaitForName(const std::string& address, WhoseName whose, std::chrono::milliseconds timeout,
                 const std::function<void(const std::string& line)>& log, const std::function<bool()>& gives_up) {
  constexpr std::chrono::milliseconds kLookEvery(200);
  // A name that is misspelt is told soon; that of a pod is known after some seconds.
  constexpr std::chrono::seconds kTellAfter(3), kTellEvery(10);
  if (Resolve(address, AI_NUMERICHOST).ok()) return;
  const auto start = std::chrono::steady_clock::now();
  auto tell = start + kTellAfter;
  for (;;) {
    const std::string why = WhyNotYet(address, whose);
    const auto now = std::chrono::steady_clock::now();
    if (why.empty() || now + kLookEvery > start + timeout || (gives_up && gives_up())) return;
    if (now >= tell && log) {
      log(absl::StrCat("waiting for the DNS to know ", HostOf(address), ": ", why));
      tell = now + kTellEvery;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

absl::StatusOr<std::vector<int>> ListenAt(const std::string& address) {
  ASSIGN_OR_RETURN(const AddressList addresses, Resolve(address));
  std::vector<int> sockets;
  int error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    // A run that starts again shall not wait for the connections of the last one to be forgotten.
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // [::] is all interfaces with their IPv4 addresses, whatever the system's default is.
    const int off = 0;
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
      sockets.push_back(fd);
      continue;
    }
    error = errno;
    if (fd >= 0) close(fd);
  }
  // A name may have addresses that this machine does not use, such as those of IPv6.
  if (sockets.empty()) return SystemError(error);
  return sockets;
}

bool IsNameOfLoopback(const std::string& address) {
  if (absl::EqualsIgnoreCase(absl::StripSuffix(HostOf(address), "."), "localhost")) return false;
  if (Resolve(address, AI_NUMERICHOST).ok()) return false;
  const absl::StatusOr<AddressList> addresses = Resolve(address);
  if (!addresses.ok()) return false;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    if (!IsLoopback(*a)) return false;
  }
  return true;
}

std::string OnAllInterfaces(const std::string& address) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  return absl::StrCat(fd >= 0 ? "[::]" : "0.0.0.0", address.substr(address.rfind(':')));
}

int PortOf(int socket) {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof bytes;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bytes), &size) != 0) return 0;
  return ntohs(bytes.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bytes).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bytes).sin_port);
}

bool NobodyListensAt(const std::string& address) {
  const absl::StatusOr<int> fd = ConnectTo(address, std::chrono::seconds(1));
  if (fd.ok()) close(*fd);
  return fd.status() == SystemError(ECONNREFUSED);
}

absl::StatusOr<int> ConnectTo(const std::string& address, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const AddressList addresses, Resolve(address));
  timeval time = {};
  time.tv_sec = timeout.count() / 1000;
  time.tv_usec = timeout.count() % 1000 * 1000;
  int error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);  // also that of connect()
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    if (fd >= 0) close(fd);
  }
  return SystemError(error);
}

std::string PeerOf(const sockaddr_storage& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bytes);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bytes);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  absl::string_view host = text;
  if (absl::ConsumePrefix(&host, "::ffff:")) return absl::StrCat(host, ":", ntohs(v6.sin6_port));
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%", v6.sin6_scope_id);
  return absl::StrCat("[", host, scope, "]:", ntohs(v6.sin6_port));
}

std::string PeerOf(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, "ipv4:")) absl::ConsumePrefix(&uri, "ipv6:");
  return absl::StrReplaceAll(uri, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

absl::StatusOr<std::string> OwnAddressTowards(const std::string& address) {
  const absl::StatusOr<AddressList> others = Resolve(address);
  if (!others.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot find worker 0 at ", address, ": ", others.status().message()));
  }
  const addrinfo& other = **others;
  // Nothing is sent: connecting chooses the interface.
  const int fd = socket(other.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  char name[NI_MAXHOST] = "";
  if (fd < 0 || connect(fd, other.ai_addr, other.ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) != 0) {
    return absl::UnavailableError(absl::StrCat("there is no way from here to ", address));
  }
  return own.ss_family == AF_INET6 ? absl::StrCat("[", name, "]:0") : absl::StrCat(name, ":0");
}

}  // namespace official::distribute
