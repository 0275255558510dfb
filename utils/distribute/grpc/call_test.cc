// Calls between a client and a server, which are in one process here, over loopback.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/distribute/grpc/call_client.h"
#include "utils/distribute/grpc/call_server.h"
#include "utils/distribute/grpc/call_stream.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Message = std::vector<std::string>;

constexpr std::chrono::seconds kLong(60);
constexpr std::chrono::milliseconds kAtOnce(0);

std::string FreeLoopbackAddress() {
  const std::vector<int> sockets = ListenAt("127.0.0.1:0").value();
  const int port = PortOf(sockets[0]);
  for (const int each : sockets) close(each);
  return absl::StrCat("127.0.0.1:", port);
}

ConnectOptions WithSecret(const std::string& secret, std::chrono::seconds start_timeout = kLong) {
  ConnectOptions options;
  options.secret = secret;
  options.start_timeout = start_timeout;
  return options;
}

// A server and its address.
struct Served {
  const std::string address = FreeLoopbackAddress();
  std::unique_ptr<CallServer> server = MakeCallServer(address, WithSecret("the secret of a run")).value();

  absl::StatusOr<std::unique_ptr<Call>> CallWith(const std::string& secret) const {
    return MakeCall(
        {.name = "the server of worker 0", .address = address, .connect = WithSecret(secret), .gives_up = nullptr});
  }
  std::unique_ptr<Call> CallIt() const { return CallWith("the secret of a run").value(); }
  std::unique_ptr<Call> Accept() const { return server->Accept(kLong); }
};

TEST_CASE("Messages arrive in order in both directions") {
  const Served served;
  const auto client = served.CallIt(), server = served.Accept();
  REQUIRE(server != nullptr);
  CHECK(absl::IsDeadlineExceeded(server->Receive(kAtOnce).status()));
  for (int i = 0; i < 300; ++i) {
    REQUIRE(client->Send({"number", absl::StrCat(i), std::string("\0", 1)}).ok());
    REQUIRE(server->Send({absl::StrCat(i)}).ok());
  }
  REQUIRE(client->Send({}).ok());
  for (int i = 0; i < 300; ++i) {
    CHECK(server->Receive(kLong).value() == Message{"number", absl::StrCat(i), std::string("\0", 1)});
    CHECK(client->Receive(kLong).value() == Message{absl::StrCat(i)});
  }
  CHECK(server->Receive(kLong).value() == Message{});
}

TEST_CASE("The last messages of a side that ends arrive, and then its end") {
  const Served served;
  const auto client = served.CallIt();
  auto server = served.Accept();
  // More bytes than gRPC takes before the client reads them.
  for (int i = 0; i < 200; ++i) REQUIRE(server->Send({absl::StrCat(i), std::string(200000, 'x')}).ok());
  std::thread ender([&] { server = nullptr; });
  for (int i = 0; i < 200; ++i) CHECK(client->Receive(kLong).value()[0] == absl::StrCat(i));
  ender.join();
  CHECK(absl::IsUnavailable(client->Receive(kLong).status()));
  CHECK(absl::IsUnavailable(client->Send({"more"})));
}

TEST_CASE("A side that does not receive makes the other one full") {
  const Served served;
  const auto client = served.CallIt(), server = served.Accept();
  CHECK_FALSE(server->IsFull());
  int sent = 0;
  for (const std::string text(200000, 'x'); !server->IsFull() && sent < 10000; ++sent) {
    REQUIRE(server->Send({text}).ok());
    std::this_thread::yield();
  }
  CHECK(server->IsFull());
  for (int i = 0; i < sent; ++i) REQUIRE(client->Receive(kLong).ok());
  CHECK_FALSE(server->IsFull());
}

TEST_CASE("A server sees the end of its client, and takes the next one") {
  const Served served;
  auto client = served.CallIt(), server = served.Accept();
  client = nullptr;
  CHECK(absl::IsUnavailable(server->Receive(kLong).status()));
  server = nullptr;
  client = served.CallIt();
  server = served.Accept();
  REQUIRE(client->Send({"again"}).ok());
  CHECK(server->Receive(kLong).value() == Message{"again"});
}

TEST_CASE("A client during the call of another one is refused") {
  const Served served;
  const auto client = served.CallIt(), server = served.Accept();
  const auto second = served.CallIt();
  const absl::Status refused = second->Receive(kLong).status();
  CHECK(absl::IsAlreadyExists(refused));
  CHECK_THAT(std::string(refused.message()), Contains("runs a task of another client"));
  CHECK(second->Send({"too late"}) == refused);
  REQUIRE(client->Send({"still here"}).ok());
  CHECK(server->Receive(kLong).value() == Message{"still here"});
}

TEST_CASE("A client with another secret, or none, is no client") {
  const Served served;
  for (const std::string secret : {"the secret of another run", ""}) {
    const absl::Status refused = served.CallWith(secret).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused.message() == absl::StrCat("the server of worker 0 at ", served.address,
                                            " has another secret; give it and the client the same --run_secret_file"));
  }
  CHECK(served.server->Accept(kAtOnce) == nullptr);
}

// What a stranger does who takes whoever answers for the server.
TEST_CASE("A client that cannot prove that it knows the secret does not get a call") {
  const Served served;
  const auto channel = grpc::CreateChannel(served.address, grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  for (const std::string proof : {"", "32 bytes that are no proof at all", "the challenge"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto stream = stub.PrepareCall(&context, kCallMethod, &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    stream->StartCall(nullptr);
    REQUIRE(wait());
    stream->Write(MessageOf(PackStrings({kCallProtocol, "nonce"})), nullptr);
    REQUIRE(wait());
    grpc::ByteBuffer challenge, answer;
    stream->Read(&challenge, nullptr);
    REQUIRE(wait());
    // The server's own proof does not stand for the client's.
    const std::string sent = proof == "the challenge" ? UnpackStrings(TextOf(challenge)).value()[1] : proof;
    stream->Write(MessageOf(sent), nullptr);
    REQUIRE(wait());
    stream->Read(&answer, nullptr);
    CHECK_FALSE(wait());
    grpc::Status status;
    stream->Finish(&status, nullptr);
    REQUIRE(wait());
    CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
    CHECK(served.server->Accept(kAtOnce) == nullptr);
  }
}

TEST_CASE("A server that is not there is waited for, for a time") {
  const std::string address = FreeLoopbackAddress();
  const auto call = [&](std::function<bool()> gives_up) {
    return MakeCall({.name = "the server of ps 0",
                     .address = address,
                     .connect = WithSecret("s", std::chrono::seconds(1)),
                     .gives_up = std::move(gives_up)})
        .status();
  };
  const absl::Status absent = call(nullptr);
  CHECK(absl::IsDeadlineExceeded(absent));
  CHECK_THAT(std::string(absent.message()),
             Contains(absl::StrCat("after 1 s there is no answer from the server of ps 0 at ", address)) &&
                 Contains("Connection refused; start it, or raise --start_timeout_secs"));
  CHECK(absl::IsCancelled(call([] { return true; })));
}

TEST_CASE("A name that is not known is not waited for when another server refuses its task") {
  std::vector<std::string> log;
  ConnectOptions connect = WithSecret("s");
  connect.log = [&](const std::string& line) { log.push_back(line); };
  int asked = 0;
  const absl::Status status = MakeCall({.name = "the server of ps 0",
                                        .address = "no host has this name:4000",
                                        .connect = connect,
                                        .gives_up = [&] { return ++asked > 2; }})
                                  .status();
  CHECK(absl::IsCancelled(status));
  CHECK(asked == 4);   // three times while it waited for the name
  CHECK(log.empty());  // long before the start has timed out
}

TEST_CASE("An address is for one server") {
  const Served served;
  const absl::Status second = MakeCallServer(served.address, WithSecret("s")).status();
  CHECK(absl::IsFailedPrecondition(second));
  CHECK_THAT(std::string(second.message()), Contains("Address already in use"));
}

TEST_CASE("A message that is changed, repeated, left out or of the other side does not open") {
  Seal sender("key", "client"), receiver("key", "client");
  const std::string first = sender.Close({"a", "b"}), second = sender.Close({"a", "b"}), third = sender.Close({});
  CHECK(receiver.Open(first).value() == Message{"a", "b"});
  CHECK_FALSE(Seal("key", "client").Open(second).ok());  // the first is left out
  CHECK_FALSE(Seal("key", "server").Open(first).ok());
  CHECK_FALSE(Seal("other key", "client").Open(first).ok());
  for (size_t i = 0; i < first.size(); ++i) {
    std::string changed = first;
    changed[i] ^= 1;
    CHECK_FALSE(Seal("key", "client").Open(changed).ok());
  }
  CHECK_FALSE(Seal("key", "client").Open("").ok());
  CHECK_FALSE(Seal("key", "client").Open(first.substr(1)).ok());
  CHECK_FALSE(receiver.Open(first).ok());  // it is there twice
}

}  // namespace
}  // namespace official::distribute
