// The exchange between processes, which are threads here, over loopback.

#include "utils/distribute/grpc/grpc_exchange.h"

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/distribute/grpc/acceptor.h"
#include "utils/distribute/grpc/meeting.h"
#include "utils/distribute/grpc/peer.h"
#include "utils/distribute/grpc/refusals.h"
#include "utils/distribute/grpc/slow_peer.h"
#include "utils/distribute/grpc/socket_address.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using Made = absl::StatusOr<std::unique_ptr<Exchange>>;
constexpr Exchange::Channel kSums = Exchange::Channel::kSums, kValues = Exchange::Channel::kValues;
constexpr std::chrono::seconds kLong(60), kShort(1);

// A socket that listens on a free port of this machine, and its address.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  int port_;
};

std::vector<std::string> FreeAddresses(int n) {
  std::vector<Listener> listeners(n);
  std::vector<std::string> addresses;
  for (const Listener& listener : listeners) addresses.push_back(listener.address());
  return addresses;
}

// Calls f(worker) for each, in a thread of its own.
void OnEach(int workers, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) threads.emplace_back([&f, w] { f(w); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<Made> Connect(int workers, const std::function<void(ConnectOptions&)>& change = nullptr) {
  const std::vector<std::string> addresses = FreeAddresses(workers);
  std::vector<Made> made(workers);
  OnEach(workers, [&](int w) {
    ConnectOptions options;
    options.worker = w;
    options.addresses = addresses;
    options.start_timeout = kLong;
    if (change) change(options);
    made[w] = MakeGrpcExchange(options);
  });
  return made;
}

Made Join(const std::vector<std::string>& addresses, int worker, std::chrono::seconds start_timeout) {
  ConnectOptions options;
  options.worker = worker;
  options.addresses = addresses;
  options.start_timeout = start_timeout;
  return MakeGrpcExchange(options);
}

// Ends the exchanges at the same time, as processes do.
void End(std::vector<Made>& made) {
  OnEach(static_cast<int>(made.size()), [&](int w) {
    if (made[w].ok()) made[w]->reset();
  });
}

// Calls meet(start_timeout) until all that is to happen in that time has, as it returns: on a busy machine workers take
// long to meet. Returns the timeout, in the end one that is long enough.
std::chrono::seconds WithTimeEnough(std::chrono::seconds least,
                                    const std::function<bool(std::chrono::seconds start_timeout)>& meet) {
  for (const int times : {1, 4}) {
    if (meet(times * least)) return times * least;
  }
  const std::chrono::seconds enough = 20 * least;
  meet(enough);
  return enough;
}

std::string FrameOf(int from, int to, int number, size_t bytes) {
  std::string frame(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) frame[i] = static_cast<char>(i * 7 + i / 1000 + from * 31 + to * 17 + number);
  return frame;
}

TEST_CASE("Frames of any size arrive whole and in order, on both channels and in all directions at once") {
  const int workers = GENERATE(2, 3, 4);
  auto made = Connect(workers);
  const size_t sizes[] = {0, 1, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, 3'000'000, 5, 0};
  OnEach(workers, [&](int w) {
    REQUIRE(made[w].ok());
    Exchange& exchange = **made[w];
    CHECK(exchange.worker() == w);
    CHECK(exchange.num_workers() == workers);
    for (int number = 0; number < static_cast<int>(std::size(sizes)); ++number) {
      for (int to = 0; to < workers; ++to) {
        if (to == w) continue;
        CHECK(exchange.Send(to, kSums, FrameOf(w, to, number, sizes[number])).ok());
        CHECK(exchange.Send(to, kValues, FrameOf(w, to, number + 100, 10)).ok());
      }
    }
    for (int number = 0; number < static_cast<int>(std::size(sizes)); ++number) {
      for (int from = 0; from < workers; ++from) {
        if (from == w) continue;
        CHECK(exchange.Receive(from, kValues, kLong).value() == FrameOf(from, w, number + 100, 10));
        CHECK(exchange.Receive(from, kSums, kLong).value() == FrameOf(from, w, number, sizes[number]));
      }
    }
  });
  End(made);
}

TEST_CASE("Frames of many parts, which messages divide in other places, arrive whole") {
  auto made = Connect(2);
  const size_t sizes[] = {1, 0, kPieceBytes - 1, 3, kPieceBytes, 2 * kPieceBytes + 1, 700, kPieceBytes - 701, 5};
  std::string whole;
  for (const size_t size : sizes) whole += FrameOf(0, 1, static_cast<int>(size), size);
  std::vector<absl::string_view> parts;
  absl::string_view rest = whole;
  for (const size_t size : sizes) {
    parts.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  REQUIRE((*made[0])->Send(1, kSums, parts).ok());
  REQUIRE((*made[0])->Send(1, kSums, "next").ok());
  CHECK((*made[1])->Receive(0, kSums, kLong).value() == whole);
  CHECK((*made[1])->Receive(0, kSums, kLong).value() == "next");
  End(made);
}

TEST_CASE("What a worker has sent before it ended arrives, and then it is said that it has ended") {
  auto made = Connect(2);
  REQUIRE((*made[1])->Send(0, kSums, std::string(2'000'000, 'x')).ok());
  made[1]->reset();
  CHECK((*made[0])->Receive(1, kSums, kLong).value() == std::string(2'000'000, 'x'));
  const absl::Status ended = (*made[0])->Receive(1, kSums, kLong).status();
  CHECK(absl::IsCancelled(ended));
  CHECK_THAT(std::string(ended.message()), StartsWith("worker 1 at 127.0.0.1:") && Contains(" has ended its run"));
}

TEST_CASE("A peer timeout of more milliseconds than an int holds loses nobody") {
  auto made = Connect(2, [](ConnectOptions& options) { options.peer_timeout = std::chrono::seconds(3'000'000); });
  const auto exchange_frames = [&](int number) {
    OnEach(2, [&](int w) {
      const int other = 1 - w;
      CHECK((*made[w])->Send(other, kSums, FrameOf(w, other, number, 10)).ok());
      CHECK((*made[w])->Receive(other, kSums, kLong).value() == FrameOf(other, w, number, 10));
    });
  };
  REQUIRE((made[0].ok() && made[1].ok()));
  exchange_frames(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // gRPC asks each second whether the other is there
  exchange_frames(1);
  End(made);
}

TEST_CASE("Only the address of worker 0 has to be known") {
  auto made = Connect(3, [](ConnectOptions& options) { options.addresses[1] = options.addresses[2] = ""; });
  OnEach(3, [&](int w) {
    REQUIRE(made[w].ok());
    CHECK(Gather(**made[w], absl::StrCat(w), kLong).value() == std::vector<std::string>{"0", "1", "2"});
  });
  End(made);
}

TEST_CASE("With a secret that all have workers connect, with another none does") {
  auto made = Connect(2, [](ConnectOptions& options) { options.secret = "0123456789abcdef"; });
  CHECK((made[0].ok() && made[1].ok()));
  End(made);
  const auto waited = WithTimeEnough(kShort, [&](std::chrono::seconds start_timeout) {
    made = Connect(2, [=](ConnectOptions& options) {
      options.secret = absl::StrCat("0123456789abcde", options.worker);
      options.start_timeout = start_timeout;
    });
    return absl::IsInvalidArgument(made[1].status());
  });
  CHECK(absl::IsInvalidArgument(made[1].status()));
  CHECK_THAT(std::string(made[1].status().message()), Contains("has another secret; give all the same"));
  CHECK(absl::IsDeadlineExceeded(made[0].status()));
  CHECK_THAT(std::string(made[0].status().message()),
             StartsWith(absl::StrCat("after ", waited.count(), " s there is no worker 1 at 127.0.0.1:")));
}

TEST_CASE("All workers tell in what two of them differ") {
  auto made = Connect(3, [](ConnectOptions& options) {
    options.facts = {{"flag --dtype", "fp32"}, {"flag --batch_size", options.worker == 2 ? "64" : "128"}};
  });
  for (const Made& each : made) {
    CHECK(each.status() ==
          absl::InvalidArgumentError("worker 2 has flag --batch_size 64, but worker 0 has 128; start all "
                                     "workers with the same program and flags"));
  }
  made = Connect(2, [](ConnectOptions& options) {
    options.facts.resize(1 + options.worker, {"flag --dtype", "fp32"});
  });
  for (const Made& each : made) {
    CHECK_THAT(std::string(each.status().message()), StartsWith("worker 1 runs another program than worker 0"));
  }
}

TEST_CASE("Two workers of one number, or of clusters of other sizes, do not train together") {
  std::vector<Made> made(3);
  int refused = 0;
  const auto waited = WithTimeEnough(std::chrono::seconds(2), [&](std::chrono::seconds start_timeout) {
    const std::vector<std::string> addresses = FreeAddresses(3);
    OnEach(3, [&](int w) {
      ConnectOptions options;
      options.worker = w == 2 ? 1 : w;
      options.addresses = {addresses[0], w == 2 ? addresses[2] : addresses[1], addresses[1]};
      options.start_timeout = start_timeout;
      made[w] = MakeGrpcExchange(options);
    });
    refused = absl::IsInvalidArgument(made[1].status()) ? 1 : 2;
    return absl::IsInvalidArgument(made[refused].status()) && made[3 - refused].status() == made[0].status();
  });
  CHECK_THAT(std::string(made[refused].status().message()), StartsWith("there is a worker 1 already"));
  CHECK_THAT(std::string(made[0].status().message()),
             StartsWith(absl::StrCat("after ", waited.count(), " s there is no worker 2 at")));
  CHECK(made[3 - refused].status() == made[0].status());

  WithTimeEnough(std::chrono::seconds(2), [&](std::chrono::seconds start_timeout) {
    made = Connect(2, [=](ConnectOptions& options) {
      options.start_timeout = start_timeout;
      if (options.worker == 1) options.addresses.push_back("");
    });
    return absl::IsInvalidArgument(made[1].status());
  });
  CHECK_THAT(std::string(made[1].status().message()), StartsWith("worker 1 of 3 workers cannot join a run of 2"));
}

TEST_CASE("A ps is told of by its own name and number") {
  std::vector<Made> made(3);
  int refused = 0;
  const auto waited = WithTimeEnough(std::chrono::seconds(2), [&](std::chrono::seconds start_timeout) {
    const std::vector<std::string> addresses = FreeAddresses(3);
    OnEach(3, [&](int w) {
      ConnectOptions options;
      options.worker = w == 0 ? 0 : 2;  // of worker 0, worker 1, ps 0 and ps 1
      options.num_servers = 2;
      options.addresses = {addresses[0], "127.0.0.1:1", addresses[w == 0 ? 1 : w], "127.0.0.1:2"};
      options.start_timeout = start_timeout;
      made[w] = MakeGrpcExchange(options);
    });
    refused = absl::IsInvalidArgument(made[1].status()) ? 1 : 2;
    return absl::IsInvalidArgument(made[refused].status()) && made[3 - refused].status() == made[0].status();
  });
  CHECK(made[refused].status().message() == "there is a ps 0 already; give each ps a number of its own");
  CHECK_THAT(std::string(made[0].status().message()),
             StartsWith(absl::StrCat("after ", waited.count(),
                                     " s there is no worker 1 at 127.0.0.1:1, ps 1 at 127.0.0.1:2")));

  WithTimeEnough(std::chrono::seconds(2), [&](std::chrono::seconds start_timeout) {
    made = Connect(2, [=](ConnectOptions& options) {
      options.num_servers = 1;
      options.start_timeout = start_timeout;
      if (options.worker == 1) options.addresses.push_back("");
    });
    return absl::IsInvalidArgument(made[1].status());
  });
  CHECK_THAT(std::string(made[1].status().message()),
             StartsWith("task 1 of 3 workers and ps cannot join a run of 2; tell all of them the same cluster"));
}

TEST_CASE("A worker that goes before all are there may come again") {
  const std::vector<std::string> addresses = FreeAddresses(3);
  const auto join = [&](int w, std::chrono::seconds start_timeout) { return Join(addresses, w, start_timeout); };
  std::vector<Made> made(3);
  std::thread host([&] { made[0] = join(0, kLong); });
  CHECK(absl::IsDeadlineExceeded(join(1, std::chrono::seconds(1)).status()));
  std::thread again([&] { made[1] = join(1, kLong); });
  made[2] = join(2, kLong);
  host.join();
  again.join();
  for (const Made& each : made) CHECK(each.status() == absl::OkStatus());
  End(made);
}

TEST_CASE("A worker that comes again while the others still train waits for them to start again") {
  const std::vector<std::string> addresses = {FreeAddresses(1)[0], ""};
  const auto join = [&](int w, std::chrono::seconds start_timeout) { return Join(addresses, w, start_timeout); };
  std::vector<Made> made(2);
  const auto meet = [&] { OnEach(2, [&](int w) { made[w] = join(w, kLong); }); };
  meet();
  const absl::Status late = join(1, std::chrono::seconds(1)).status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK_THAT(std::string(late.message()), Contains("it trains with the workers that were there before"));
  Made again;
  std::thread waiting([&] { again = join(1, kLong); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  End(made);
  made[0] = join(0, kLong);
  waiting.join();
  REQUIRE(again.ok());
  made[1] = std::move(again);
  CHECK(made[0].ok());
  End(made);
}

TEST_CASE("A port that is taken is named, and so is a worker 0 that does not come") {
  const Listener taken;
  ConnectOptions options;
  options.addresses = {taken.address(), ""};
  const absl::Status status = MakeGrpcExchange(options).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()),
             Contains(absl::StrCat("cannot listen on ", taken.address(), ": Address already in use")));

  options.worker = 1;
  options.addresses = FreeAddresses(2);
  options.start_timeout = std::chrono::seconds(1);
  const absl::Status late = MakeGrpcExchange(options).status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK_THAT(std::string(late.message()),
             StartsWith(absl::StrCat("worker 1 has waited 1 s for worker 0 at ", options.addresses[0])));
}

TEST_CASE("A worker waits for names that the DNS does not know yet, and at the end says which") {
  ConnectOptions options;
  options.start_timeout = std::chrono::seconds(1);
  const auto status_after_a_second = [&] {
    options.begin = std::chrono::steady_clock::now();
    const absl::Status status = MakeGrpcExchange(options).status();
    CHECK(std::chrono::steady_clock::now() - options.begin > std::chrono::milliseconds(700));
    return status;
  };
  options.addresses = {"nobody.invalid:2222", ""};
  const absl::Status own = status_after_a_second();
  CHECK(absl::IsFailedPrecondition(own));
  CHECK_THAT(std::string(own.message()), StartsWith("worker 0 cannot listen on nobody.invalid:2222: "));
  options.worker = 1;
  const absl::Status other = status_after_a_second();
  CHECK(absl::IsUnavailable(other));
  CHECK_THAT(std::string(other.message()), StartsWith("cannot find worker 0 at nobody.invalid:2222: "));
}

TEST_CASE("A worker that listens on all interfaces needs no address of its machine") {
  ConnectOptions options;
  options.bind_all = true;
  options.start_timeout = std::chrono::seconds(1);
  for (const char* const host : {"192.0.2.1", "nobody.invalid"}) {  // the first by RFC 5737
    const std::string address = FreeAddresses(1)[0];
    options.addresses = {absl::StrCat(host, address.substr(address.rfind(':'))), ""};
    options.begin = std::chrono::steady_clock::now();
    CHECK(MakeGrpcExchange(options).status() ==
          absl::DeadlineExceededError(
              "after 1 s there is no worker 1; start all workers, or raise --start_timeout_secs"));
  }
}

TEST_CASE("What took long before the meeting is part of the start timeout") {
  ConnectOptions options;
  options.addresses = FreeAddresses(2);
  // Who began to wait only now would wait for longer than the test may take.
  options.start_timeout = std::chrono::hours(1);
  options.begin = std::chrono::steady_clock::now() - options.start_timeout;
  const std::string host(MakeGrpcExchange(options).status().message());
  CHECK_THAT(host, StartsWith("after 3600 s there is no worker 1 at 127.0.0.1:"));
  options.worker = 1;
  const std::string other(MakeGrpcExchange(options).status().message());
  CHECK_THAT(other, StartsWith("worker 1 has waited 3600 s for worker 0 at 127.0.0.1:"));
}

TEST_CASE("Two workers of which only one reaches the other end both") {
  std::vector<Made> made;
  WithTimeEnough(std::chrono::seconds(2), [&](std::chrono::seconds start_timeout) {
    made = Connect(2, [=](ConnectOptions& options) {
      options.start_timeout = start_timeout;
      // It listens everywhere, and says that it is where nobody is (RFC 5737).
      if (options.worker == 1) options.addresses[1] = "192.0.2.1:0";
      options.bind_all = options.worker == 1;
    });
    return made[1].ok();
  });
  // Where the network refuses the connection, that is known at once.
  const absl::Status first = made[0].ok() ? (*made[0])->Receive(1, kValues, kLong).status() : made[0].status();
  CHECK_THAT(std::string(first.message()),
             StartsWith("worker 0 has had no connection with worker 1 at 192.0.2.1:") ||
                 (StartsWith("worker 1 at 192.0.2.1:") && Contains("was lost (it does not listen any more)")));
  if (made[0].ok()) made[0]->reset();
  REQUIRE(made[1].ok());
  const absl::Status lost = (*made[1])->Receive(0, kValues, kLong).status();
  CHECK(absl::IsCancelled(lost));
  CHECK_THAT(std::string(lost.message()), StartsWith("worker 0 at 127.0.0.1:") && Contains("was lost"));
  End(made);
}

// Joins a job that goes on without workers that are lost; `expected` are the workers if it begins again.
Made JoinElastic(const std::vector<std::string>& addresses, int worker, int min_workers,
                 std::optional<std::vector<int>> expected, std::vector<std::pair<std::string, std::string>> facts = {},
                 std::chrono::seconds start_timeout = kLong, std::chrono::seconds peer_timeout = kLong) {
  ConnectOptions options;
  options.worker = worker;
  options.addresses = addresses;
  options.facts = std::move(facts);
  options.start_timeout = start_timeout;
  options.peer_timeout = peer_timeout;
  options.elastic = Elastic{.min_workers = min_workers, .expected = std::move(expected)};
  return MakeGrpcExchange(options);
}

TEST_CASE("The workers that are left meet again, and keep their numbers") {
  const std::vector<std::string> addresses = FreeAddresses(4);
  const std::vector<int> left = {0, 1, 3};
  std::vector<Made> made(3);
  // Who waited for anybody else would wait for longer than the test may take.
  const std::chrono::seconds too_long = std::chrono::hours(1);
  OnEach(3, [&](int w) { made[w] = JoinElastic(addresses, left[w], 1, left, {}, too_long, too_long); });
  OnEach(3, [&](int w) {
    REQUIRE(made[w].ok());
    Exchange& exchange = **made[w];
    CHECK(exchange.worker() == w);
    CHECK(exchange.num_workers() == 3);
    CHECK(exchange.NumberOf(2) == 3);
    CHECK_THAT(exchange.NameOf(2), StartsWith("worker 3 at 127.0.0.1:"));
    CHECK(Gather(exchange, absl::StrCat(left[w]), kLong).value() == std::vector<std::string>{"0", "1", "3"});
    CHECK(exchange.Lost().empty());
  });
  made[2]->reset();
  End(made);
}

TEST_CASE("Who is expected and does not come is not waited for as long as all are at the start") {
  const std::vector<std::string> addresses = FreeAddresses(2);
  Made made = JoinElastic(addresses, 0, 1, std::vector<int>{0, 1}, {}, kLong, kShort);
  REQUIRE(made.ok());
  CHECK((*made)->num_workers() == 1);
  // Fewer than there must be are too few.
  made->reset();
  const absl::Status few = JoinElastic(addresses, 0, 2, std::vector<int>{0}, {}, std::chrono::seconds(2)).status();
  CHECK(absl::IsCancelled(few));
  CHECK_THAT(std::string(few.message()), StartsWith("after 2 s there is no worker 1 at"));
  const absl::Status alone = JoinElastic(addresses, 1, 1, std::vector<int>{0, 1}, {}, kLong, kShort).status();
  CHECK(absl::IsCancelled(alone));
  CHECK_THAT(std::string(alone.message()), StartsWith("worker 1 has waited 1 s for worker 0 at"));
}

TEST_CASE("A job begins without workers that do not come in time, if it may") {
  const std::vector<std::string> addresses = FreeAddresses(3);
  const Made made = JoinElastic(addresses, 0, 1, std::nullopt, {}, std::chrono::seconds(1));
  REQUIRE(made.ok());
  CHECK((*made)->num_workers() == 1);
}

TEST_CASE("Who comes late waits for the job to begin again, or to be done") {
  const std::vector<std::string> addresses = FreeAddresses(2);
  const auto join = [&](int worker) { return JoinElastic(addresses, worker, 1, std::vector<int>{0}); };
  Made host = join(0), late;
  REQUIRE(host.ok());
  CHECK((*host)->Late().empty());
  std::thread waiting([&] { late = JoinElastic(addresses, 1, 1, std::nullopt); });
  while ((*host)->Late() != std::vector<int>{1}) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  SECTION("begins again") {
    host->reset();
    host = JoinElastic(addresses, 0, 1, std::vector<int>{0, 1});
    waiting.join();
    REQUIRE(host.ok());
    REQUIRE(late.ok());
    CHECK((*host)->num_workers() == 2);
    std::vector<Made> both(2);
    both[0] = std::move(host);
    both[1] = std::move(late);
    End(both);
  }
  SECTION("is done") {
    (*host)->Finish();
    host->reset();
    waiting.join();
    CHECK(late.status() == absl::OutOfRangeError("the job was done without this worker"));
  }
}

TEST_CASE("A second process of a worker that takes part does not count as late") {
  absl::Status second;
  // It looks for worker 0 for so long, and stays once it has found it; half of that is left to it to come.
  WithTimeEnough(kShort, [&](std::chrono::seconds start_timeout) {
    const std::vector<std::string> addresses = {FreeAddresses(1)[0], ""};
    std::vector<Made> made(2);
    OnEach(2, [&](int w) { made[w] = JoinElastic(addresses, w, 2, std::nullopt); });
    REQUIRE((made[0].ok() && made[1].ok()));
    std::thread waiting([&] { second = JoinElastic(addresses, 1, 2, std::nullopt, {}, start_timeout).status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(start_timeout) / 2);
    CHECK((*made[0])->Late().empty());
    (*made[0])->Finish();
    End(made);
    waiting.join();
    return absl::IsOutOfRange(second);
  });
  CHECK(absl::IsOutOfRange(second));
}

TEST_CASE("Who comes late with another flag is refused alone") {
  const std::vector<std::string> addresses = FreeAddresses(2);
  const Made host = JoinElastic(addresses, 0, 1, std::vector<int>{0}, {{"flag --seed", "1"}});
  REQUIRE(host.ok());
  const absl::Status refused = JoinElastic(addresses, 1, 1, std::nullopt, {{"flag --seed", "2"}}).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), StartsWith("worker 1 has flag --seed 2, but worker 0 has 1;"));
  CHECK((*host)->Late().empty());
  CHECK((*host)->Check().ok());
}

// A job of a chief, worker 1, worker 2 and a parameter server, which goes on without its workers.
class JobWithServer {
 public:
  static constexpr int kServer = 3;
  JobWithServer() : addresses_(FreeAddresses(kServer + 1)), made_(kServer + 1) {
    OnEach(kServer + 1, [&](int task) { made_[task] = Start(task); });
    for (const Made& made : made_) REQUIRE(made.status() == absl::OkStatus());
  }
  ~JobWithServer() { End(made_); }

  Exchange& of(int task) { return **made_[task]; }
  void EndTask(int task) { made_[task]->reset(); }
  Made Start(int task, const std::string& seed = "1", bool elsewhere = false,
             std::chrono::seconds peer_timeout = kLong) {
    ConnectOptions options;
    options.worker = task;
    options.num_servers = 1;
    options.addresses = addresses_;
    if (elsewhere) options.addresses[task] = "";
    options.secret = "0123456789abcdef";
    options.facts = {{"flag --seed", seed}};
    options.start_timeout = kLong;
    options.peer_timeout = peer_timeout;
    return MakeGrpcExchange(options);
  }
  // Starts worker 1 again, which takes part again.
  void StartAgain() {
    made_[1] = Start(1);
    REQUIRE(made_[1].status() == absl::OkStatus());
  }
  void ExchangeFrames(int one, int other, int number) {
    for (const Exchange::Channel channel : {kSums, kValues}) {
      CHECK(of(one).Send(other, channel, FrameOf(one, other, number, 100'000)).ok());
      CHECK(of(other).Receive(one, channel, kLong).value() == FrameOf(one, other, number, 100'000));
      CHECK(of(other).Send(one, channel, FrameOf(other, one, number, 10)).ok());
      CHECK(of(one).Receive(other, channel, kLong).value() == FrameOf(other, one, number, 10));
    }
  }

 private:
  const std::vector<std::string> addresses_;
  std::vector<Made> made_;
};

TEST_CASE("A worker of a job with parameter servers comes back, three times in a row") {
  JobWithServer job;
  job.ExchangeFrames(0, 1, 0);
  job.ExchangeFrames(1, JobWithServer::kServer, 0);
  for (int times = 1; times <= 3; ++times) {
    // Nobody takes this from it.
    CHECK(job.of(1).Send(0, kSums, "late").ok());
    CHECK(job.of(1).Send(JobWithServer::kServer, kValues, "late").ok());
    job.EndTask(1);
    job.StartAgain();
    CHECK(job.of(1).incarnation() == times);
    CHECK(job.of(1).worker() == 1);
    CHECK(job.of(1).num_workers() == 4);
    for (const int task : {0, JobWithServer::kServer}) {
      CHECK(job.of(task).Send(1, kSums, "to the one before").ok());
      CHECK(job.of(task).WaitForReturn(1, kLong).ok());
      CHECK(job.of(task).Check().ok());
      job.ExchangeFrames(1, task, times);
    }
    job.ExchangeFrames(0, 2, times);
  }
  CHECK(job.of(0).incarnation() == 0);
}

TEST_CASE("A job with parameter servers begins without a worker that comes late") {
  const std::vector<std::string> addresses = FreeAddresses(3);
  std::vector<Made> made(3);
  const auto start = [&](int task) {
    ConnectOptions options;
    options.worker = task;
    options.num_servers = 1;
    options.addresses = addresses;
    options.start_timeout = std::chrono::seconds(4);
    made[task] = MakeGrpcExchange(options);
  };
  std::thread server([&] { start(2); });
  start(0);
  server.join();
  for (const int task : {0, 2}) {
    REQUIRE(made[task].status() == absl::OkStatus());
    CHECK((*made[task])->num_workers() == 3);
    CHECK((*made[task])->Send(1, kSums, "nobody is there").ok());
    const absl::Status missing = (*made[task])->Receive(1, kSums, kLong).status();
    CHECK(absl::IsUnavailable(missing));
    CHECK_THAT(std::string(missing.message()), Contains("was lost (it was not there at the start)"));
  }
  start(1);
  REQUIRE(made[1].status() == absl::OkStatus());
  CHECK((*made[1])->incarnation() == 1);
  for (const int task : {0, 2}) {
    CHECK((*made[1])->Send(task, kSums, "late").ok());
    CHECK((*made[task])->WaitForReturn(1, kLong).ok());
    CHECK((*made[task])->Receive(1, kSums, kLong).value() == "late");
    CHECK((*made[task])->Send(1, kSums, "welcome").ok());
    CHECK((*made[1])->Receive(task, kSums, kLong).value() == "welcome");
  }
  End(made);
}

TEST_CASE("A second process of a worker is refused while the first one takes part") {
  JobWithServer job;
  // It cannot listen where the first one does; elsewhere it is not let in.
  CHECK(absl::IsFailedPrecondition(job.Start(1).status()));
  const absl::Status second = job.Start(1, "1", /*elsewhere=*/true, kShort).status();
  CHECK(absl::IsInvalidArgument(second));
  CHECK_THAT(std::string(second.message()), StartsWith("there is a worker 1 already"));
  job.ExchangeFrames(1, JobWithServer::kServer, 1);
}

TEST_CASE("A worker that comes back with another flag is refused alone") {
  JobWithServer job;
  job.EndTask(1);
  const absl::Status refused = job.Start(1, "2").status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), StartsWith("worker 1 has flag --seed 2, but worker 0 has 1;"));
  CHECK(job.of(0).Check().ok());
  job.StartAgain();
  CHECK(job.of(1).incarnation() == 1);
}

TEST_CASE("A worker that comes back when the job is done is told so") {
  JobWithServer job;
  job.EndTask(1);
  job.of(0).Finish();
  CHECK(job.Start(1).status() == absl::OutOfRangeError("the job was done without this worker"));
}

TEST_CASE("The failure of one worker reaches all, with its reason") {
  auto made = Connect(3);
  OnEach(3, [&](int w) {
    Exchange& exchange = **made[w];
    if (w == 2) {
      exchange.Fail("a disk is full");
      exchange.Fail("the first reason counts");
      CHECK(absl::IsCancelled(exchange.Receive(0, kValues, kLong).status()));
      return;
    }
    // They wait for each other, not for the one that has failed.
    const absl::Status status = exchange.Receive(1 - w, kSums, kLong).status();
    CHECK(status == absl::CancelledError(absl::StrCat(exchange.NameOf(2), " has failed: a disk is full")));
    CHECK(exchange.Send(1 - w, kSums, "x") == status);
    CHECK(exchange.Check() == status);
  });
  End(made);
}

TEST_CASE("The failure of this worker or another ends a Send that waits for one that takes nothing") {
  const int failing = GENERATE(0, 2);
  const std::vector<std::string> addresses = FreeAddresses(3);
  SlowPeer frozen;
  std::vector<Made> made(3);
  OnEach(3, [&](int w) {
    if (w == 1) {
      ConnectOptions options;
      options.worker = w;
      options.addresses = addresses;
      options.start_timeout = kLong;
      CHECK(MeetAt(options, frozen.address()).ok());
    } else {
      made[w] = Join(addresses, w, kLong);
    }
  });
  REQUIRE((made[0].ok() && made[2].ok()));
  const std::string frame(1 << 20, 'x');
  std::atomic<int> sent = 0;
  std::future<void> sends = std::async(std::launch::async, [&] {
    while ((*made[0])->Send(1, kSums, frame).ok()) ++sent;
  });
  const int least = static_cast<int>(Sender::kMostQueuedBytes / frame.size());
  CHECK(WaitUntilStill(sent, least) >= least);
  (*made[failing])->Fail("a disk is full");
  CHECK(sends.wait_for(kLong) == std::future_status::ready);
  CHECK_THAT(std::string((*made[0])->Receive(1, kSums, kLong).status().message()),
             EndsWith(" has failed: a disk is full"));
  frozen.End();  // which ends the wait in any case
  sends.wait();
  End(made);
}

TEST_CASE("Who waits for one that waits for one that has ended its run learns of the latter") {
  auto made = Connect(3);
  made[2]->reset();
  OnEach(2, [&](int w) {
    const absl::Status status = (*made[w])->Receive(w == 0 ? 2 : 0, kValues, kLong).status();
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()), StartsWith("worker 2 at ") && EndsWith(" has ended its run"));
  });
  End(made);
}

TEST_CASE("A worker that sends nothing is named at the deadline") {
  auto made = Connect(2);
  CHECK((*made[0])->Check().ok());
  const absl::Status status = (*made[0])->Receive(1, kValues, std::chrono::seconds(1)).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), StartsWith("worker 0 has waited 1 s for worker 1 at 127.0.0.1:"));
  End(made);
}

// Returns a socket that is connected to an address, and has sent some bytes.
int ConnectAndSend(const std::string& address, const std::string& bytes) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return fd;
}

// Sends bytes to an address, without waiting for an answer.
void Disturb(const std::string& address, const std::string& bytes) { close(ConnectAndSend(address, bytes)); }

// Calls a method of the worker at an address with one message, and returns how it ends the call.
grpc::Status Call(const std::string& address, const std::string& method, const std::string& message) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&status](const grpc::Status& result) { status.set_value(result); });
  return status.get_future().get();
}

// Two workers, of which worker 0 has strangers at its port.
class Visited {
 public:
  Visited() {
    made_ = Connect(2, [this](ConnectOptions& options) {
      options.secret = "0123456789abcdef";
      if (options.worker > 0) return;
      address_ = options.addresses[0];
      options.log = [this](const std::string& line) {
        const std::lock_guard<std::mutex> lock(mutex_);
        log_.push_back(line);
      };
    });
  }
  const std::string& address() const { return address_; }
  // Returns what worker 0 has logged, after both have had a frame of the other and have ended.
  std::vector<std::string> End() {
    OnEach(2, [&](int w) {
      CHECK((*made_[w])->Send(1 - w, kSums, FrameOf(w, 1 - w, 1, 100'000)).ok());
      CHECK((*made_[w])->Receive(1 - w, kSums, kLong).value() == FrameOf(1 - w, w, 1, 100'000));
    });
    distribute::End(made_);
    return log_;
  }

 private:
  std::vector<Made> made_;
  std::string address_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_CASE("Strangers at the port do no harm") {
  std::vector<std::string> addresses;
  auto made = Connect(2, [&](ConnectOptions& options) {
    if (options.worker == 0) addresses = options.addresses;
  });
  OnEach(3, [&](int w) {
    for (int i = 0; i < 20; ++i) {
      if (w == 2) {
        for (const std::string& address : addresses) {
          Disturb(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
          Disturb(address, FrameOf(1, 2, i, 5000));
          Disturb(address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + FrameOf(1, 2, i, 100));
        }
        continue;
      }
      CHECK((*made[w])->Send(1 - w, kSums, FrameOf(w, 1 - w, i, 100'000)).ok());
      CHECK((*made[w])->Receive(1 - w, kSums, kLong).value() == FrameOf(1 - w, w, i, 100'000));
    }
  });
  End(made);
}

TEST_CASE("A connection that ended before it was accepted is not counted, one that ends afterwards is") {
  Refusals refusals(nullptr);
  const auto acceptor = Acceptor::Listen("127.0.0.1:0", /*num_workers=*/2, kLong, refusals).value();
  const std::string address = absl::StrCat("127.0.0.1:", acceptor->port());
  for (int i = 0; i < 3; ++i) Disturb(address, "PRI");
  const int stays = ConnectAndSend(address, "PRI");
  const std::string own = absl::StrCat("127.0.0.1:", PortOf(stays));
  std::promise<void> accepted;
  acceptor->Start([&](int fd) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && PeerOf(peer) == own) accepted.set_value();
    close(fd);
  });
  REQUIRE(accepted.get_future().wait_for(kLong) == std::future_status::ready);  // in their order, so all are
  CHECK(refusals.Summary().empty());
  close(stays);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (refusals.Summary().empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  acceptor->Stop();
  CHECK_THAT(refusals.Summary(),
             StartsWith("refused 1 connection or call of strangers, the last from 127.0.0.1: gone "));
}

TEST_CASE("Workers alone refuse nobody") {
  Visited visited;
  CHECK(visited.End().empty());
}

TEST_CASE("Strangers that speak as workers do are refused and counted, with a line now and the sums at the end") {
  Visited visited;
  const FramesHello hello = {.from = 1, .to = 0, .channel = kSums};
  CHECK(Call(visited.address(), kJoinMethod, PackStrings({"hello"})).error_message() ==
        "this is no worker of this version");
  CHECK(Call(visited.address(), kFramesMethod, PackHello(hello, RandomBytes())).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
  CHECK(Call(visited.address(), "/official.Workers/Other", "").error_code() == grpc::StatusCode::UNIMPLEMENTED);
  const std::vector<std::string> log = visited.End();
  REQUIRE(log.size() >= 2);
  CHECK(log[0] == "refused 1 connection or call of strangers, the last from 127.0.0.1: no worker of this run");
  CHECK_THAT(log.back(), StartsWith("in all, refused 3 connections and calls of strangers: "));
  for (const char* reason : {"1 (no worker of this run)", "1 (another key than that of this job)",
                             "1 (a method that workers do not have)"}) {
    CHECK_THAT(log.back(), Contains(reason));
  }
}

// Returns how many files and sockets this process has open.
int OpenDescriptors() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return static_cast<int>(std::distance(begin(descriptors), end(descriptors)));
}

// A call of frames by a stranger, on a connection of its own, until it is destroyed.
class StrangersCall {
 public:
  explicit StrangersCall(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_.emplace(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    context_.set_wait_for_ready(true);
    stub_->UnaryCall(&context_, kFramesMethod, grpc::StubOptions(), &request_, &response_,
                     [this](const grpc::Status& status) { ended_.set_value(status); });
  }
  ~StrangersCall() {
    context_.TryCancel();
    ended_.get_future().wait();
  }

 private:
  std::optional<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  const grpc::Slice slice_ = grpc::Slice(std::string(1000, 'x'));
  const grpc::ByteBuffer request_ = grpc::ByteBuffer(&slice_, 1);
  grpc::ByteBuffer response_;
  std::promise<grpc::Status> ended_;
};

TEST_CASE("Of strangers that come and go while worker 0 waits for the others nothing is left") {
  constexpr int kStrangers = 30;
  const std::vector<std::string> addresses = FreeAddresses(2);
  std::vector<Made> made(2);
  std::thread host([&] { made[0] = Join(addresses, 0, kLong); });
  const auto wait_until = [](const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!is_so() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return is_so();
  };
  CHECK(wait_until([&] { return !NobodyListensAt(addresses[0]); }));
  const int before = OpenDescriptors();
  {
    std::vector<std::unique_ptr<StrangersCall>> calls;
    for (int i = 0; i < kStrangers; ++i) calls.push_back(std::make_unique<StrangersCall>(addresses[0]));
    CHECK(wait_until([&] { return OpenDescriptors() >= before + 2 * kStrangers; }));  // both sides are here
    std::this_thread::sleep_for(std::chrono::milliseconds(300));                      // what they send arrives
  }
  CHECK(wait_until([&] { return OpenDescriptors() < before + kStrangers / 2; }));
  made[1] = Join(addresses, 1, kLong);
  host.join();
  for (const Made& each : made) CHECK(each.status() == absl::OkStatus());
  End(made);
}

TEST_CASE("Connections that prove nothing are few, and do not last") {
  Visited visited;
  std::vector<int> silent;
  for (int i = 0; i < 500; ++i) silent.push_back(ConnectAndSend(visited.address(), i % 2 == 0 ? "" : "P"));
  const auto start = std::chrono::steady_clock::now();
  // All have been closed by the worker when a read does not wait any more.
  for (const int fd : silent) {
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
    close(fd);
  }
  const auto waited = std::chrono::steady_clock::now() - start;
  CHECK(waited > std::chrono::seconds(5));
  CHECK(waited < kLong);
  const std::vector<std::string> log = visited.End();
  CHECK(log.size() <= 2 + waited / std::chrono::seconds(10));
  // 128, and three for each of two workers.
  CHECK_THAT(log.back(), Contains("in all, refused 500 connections") && Contains("134 (no proof in time)") &&
                             Contains("366 (too many others after it, without a proof)"));
}

}  // namespace
}  // namespace official::distribute
