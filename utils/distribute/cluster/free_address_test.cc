#include "utils/distribute/cluster/free_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/numbers.h"
#include "utils/distribute/cluster/address.h"

namespace official::distribute {
namespace {

TEST_CASE("A process can listen at each address, which has a port for runs") {
  std::set<std::string> addresses;
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<std::string> address = FreeAddress();
    INFO(address.status());
    REQUIRE(address.ok());
    CHECK(CanonicalAddress(*address).value() == *address);
    const size_t colon = address->find(':');
    int port = 0;
    REQUIRE(absl::SimpleAtoi(address->substr(colon + 1), &port));
    CHECK(port >= kFirstRunPort);
    CHECK(port < kFirstRunPort + kNumRunPorts);
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(inet_pton(AF_INET, address->substr(0, colon).c_str(), &place.sin_addr) == 1);
    CHECK(place.sin_addr.s_addr != INADDR_ANY);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0);
    CHECK(listen(listener, 1) == 0);
    close(listener);
    addresses.insert(*address);
  }
  CHECK(addresses.size() > 10);
}

TEST_CASE("A process can listen at a port on all addresses of the host") {
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) {
    const int port = FreePort().value();
    CHECK(port >= kFirstRunPort);
    CHECK(port < kFirstRunPort + kNumRunPorts);
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_ANY);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0);
    close(listener);
    ports.insert(port);
  }
  CHECK(ports.size() > 10);
}

}  // namespace
}  // namespace official::distribute
