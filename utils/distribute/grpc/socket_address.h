// Addresses of sockets, and sockets that listen at them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sockaddr_storage;

namespace official::distribute {

// Returns the host of "host:port", an IPv6 address without its brackets.
std::string HostOf(const std::string& address);

// Returns sockets that do not block and listen at an address, which may be a name with several; port 0 is a free one.
// Unavailable with what the system says: "Address already in use".
absl::StatusOr<std::vector<int>> ListenAt(const std::string& address);

// Returns true if a host is given by name, but "localhost", and that stands for loopback addresses alone, as the own
// name of a machine does where /etc/hosts has a line "127.0.1.1 NAME": others find the machine under this name.
bool IsNameOfLoopback(const std::string& address);

// Returns the address of all interfaces with the port of an address, "[::]:4000", or "0.0.0.0:4000" without IPv6.
std::string OnAllInterfaces(const std::string& address);

// Returns the port of a socket that listens.
int PortOf(int socket);

// Returns a socket that is connected to an address; Unavailable, with what the system says, if it is not in time. Reads
// and writes of it take no longer than `timeout` either.
absl::StatusOr<int> ConnectTo(const std::string& address, std::chrono::milliseconds timeout);

// Returns true if the machine of an address answers that nobody listens there.
bool NobodyListensAt(const std::string& address);

// Returns the numeric address of a socket's other end, "10.0.0.7:4000" or "[fe80::1]:4000". An IPv4 address that came
// to an IPv6 socket is an IPv4 address.
std::string PeerOf(const sockaddr_storage& bytes);
// Returns the same of gRPC's "ipv4:10.0.0.7:4000" or "ipv6:%5Bfe80::1%252%5D:4000".
std::string PeerOf(absl::string_view uri);

enum class WhoseName { kThisWorkers, kOtherWorkers };

// Waits until the DNS knows the name of a host, which is some seconds after a pod of Kubernetes has started, and, for
// the name of this worker, until it stands for an address of this machine and no longer for that of the pod before.
// Tells `log`, which may be empty, of a long wait. Returns at once for a host that is not a name, and after `timeout`
// or when `gives_up`, which may be empty, says so anyway.
void WaitForName(const std::string& address, WhoseName whose, std::chrono::milliseconds timeout,
                 const std::function<void(const std::string& line)>& log, const std::function<bool()>& gives_up = {});

// Returns the address by which this machine reaches another one, with port 0. Unavailable if there is no way.
absl::StatusOr<std::string> OwnAddressTowards(const std::string& address);

}  // namespace official::distribute
