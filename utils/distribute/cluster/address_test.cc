#include "utils/distribute/cluster/address.h"

#include <catch2/catch.hpp>

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Equal addresses have one canonical form") {
  CHECK(CanonicalAddress("Worker-0.Example.org.:2222").value() == "worker-0.example.org:2222");
  CHECK(CanonicalAddress("localhost:1").value() == "127.0.0.1:1");
  CHECK(CanonicalAddress("10.0.0.1:065535").value() == "10.0.0.1:65535");
  CHECK(CanonicalAddress("[0:0:0:0:0:0:0:1]:80").value() == "[::1]:80");
  CHECK(CanonicalAddress("[FE80::0A]:80").value() == "[fe80::a]:80");
  CHECK(CanonicalAddress("my_host:80").value() == "my_host:80");
}

TEST_CASE("What is no address is refused with what to write") {
  for (const auto& [address, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "\"\" has no port; write host:port"},
           {"a", "\"a\" has no port"},
           {"[::1]", "\"[::1]\" has no port"},
           {"a:", "\"a:\" has the port ''; write one from 1 to 65535"},
           {"a:0", "has the port '0'"},
           {"a:70000", "has the port '70000'"},
           {"a:99999999999999999999", "has the port '99999999999999999999'"},
           {"a:-1", "has the port '-1'"},
           {"a:+1", "has the port '+1'"},
           {"a: 1", "has the port ' 1'"},
           {"a:http", "has the port 'http'"},
           {"grpc://a:1", "begins with a scheme; write \"a:1\""},
           {"::1:2222", "has several colons; write an IPv6 address in brackets"},
           {"fe80::1", "has several colons"},
           {"a:1:2", "has several colons"},
           {"[::1:2222", "has no valid host"},
           {"[a]:2222", "has no valid host"},
           {"[]:2222", "has no valid host"},
           {":2222", "has no valid host"},
           {".:2222", "has no valid host"},
           {"a b:1", "has no valid host"},
           {"a/b:1", "has no valid host"},
           {"a\n:1", "\"a\\n:1\" has no valid host"},
           {std::string("a\0b:1", 5), "\"a\\000b:1\" has no valid host"},
           {std::string(254, 'a') + ":1", "has no valid host"}}) {
    CAPTURE(address);
    const absl::Status status = CanonicalAddress(address).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains(why));
  }
}

TEST_CASE("Addresses that only processes of the machine can reach") {
  for (const char* address : {"", "localhost:1", "127.0.0.1:2222", "127.1.2.3:1", "[::1]:1", "[0:0::1]:1"}) {
    CAPTURE(address);
    CHECK(IsLoopback(address));
  }
  for (const char* address :
       {"a:1", "10.0.0.1:1", "127.example.org:1", "0.0.0.0:1", "[::2]:1", "[::]:1", "127.0.0.1"}) {
    CAPTURE(address);
    CHECK_FALSE(IsLoopback(address));
  }
}

TEST_CASE("Two tasks cannot have one address") {
  CHECK(CheckAddresses({}).ok());
  CHECK(CheckAddresses({{"x[0]", "a:1"}, {"x[1]", "a:2"}, {"x[2]", "b:1"}}).ok());
  const absl::Status status = CheckAddresses({{"x[0]", "localhost:1"}, {"x[1]", "a:1"}, {"y[0]", "127.0.0.1:1"}});
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "y[0]: \"127.0.0.1:1\" and \"localhost:1\" of x[0] are the same address; each task needs one of its own");
  CHECK(CheckAddresses({{"x[0]", "a:1"}, {"x[1]", "b"}}).message().substr(0, 18) == "x[1]: \"b\" has no p");
}

}  // namespace
}  // namespace official::distribute
