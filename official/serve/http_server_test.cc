#include "official/serve/http_server.h"

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <iterator>
#include <new>
#include <string>
#include <thread>

namespace official::serve {
namespace {

using Catch::EndsWith;
using Catch::StartsWith;

constexpr char kRequest[] = "GET /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n";

// Sends a request, and returns all that comes until the server closes the connection.
std::string Get(int port) {
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string(port));
  client << kRequest << std::flush;
  return std::string(std::istreambuf_iterator<char>(client), {});
}

bool HasDefaultEffect(int signal) {
  struct sigaction action;
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_DFL;
}

TEST_CASE("after Run signals have their default effect, and no request is left without an answer") {
  const bool answers = GENERATE(true, false);
  std::atomic<bool> called{false};
  HttpServer::Done kept;
  HttpOptions options;
  if (!answers) options.timeout = std::chrono::milliseconds(200);
  const auto server = HttpServer::Listen(options, [&](const HttpRequest&, const HttpServer::Done& done) {
    called = true;
    std::raise(SIGTERM);
    if (answers) {
      done({.body = "{}"});
    } else {
      kept = done;
    }
  });
  REQUIRE(server.ok());
  std::string answer;
  std::thread client([&, port = (*server)->port()] {
    // It may be disconnected before it has sent the request.
    while (!called) answer = Get(port);
  });
  bool stopping = false;
  const HttpServer::End end = (*server)->Run([&] { stopping = true; });
  client.join();
  kept = nullptr;
  CHECK(stopping);
  CHECK(end.signal == SIGTERM);
  CHECK(end.num_unanswered == 0);
  CHECK(answer.find(answers ? "HTTP/1.1 200 OK" : "HTTP/1.1 504 Gateway Timeout") == 0);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) CHECK(HasDefaultEffect(signal));
}

TEST_CASE("Run tells how many requests have begun and are not answered") {
  HttpOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const auto server = HttpServer::Listen(options, [](const HttpRequest&, const HttpServer::Done&) {});
  REQUIRE(server.ok());
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  client << "GET /v1/models/m HTTP/1.1\r\n" << std::flush;
  std::raise(SIGTERM);
  CHECK((*server)->Run([] {}).num_unanswered == 1);
}

TEST_CASE("a request that the handler answers too late gets 504, and the next one of the connection its own answer") {
  HttpServer::Done late;
  HttpOptions options;
  options.timeout = std::chrono::milliseconds(2000);
  const auto server = HttpServer::Listen(options, [&](const HttpRequest&, const HttpServer::Done& done) {
    if (late == nullptr) {
      late = done;
    } else {
      late({.body = "late"});
      done({.body = "{}"});
    }
  });
  REQUIRE(server.ok());
  std::thread serving([&] { (*server)->Run([] {}); });
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  client << kRequest << std::flush;
  std::string line;
  std::getline(client, line);
  CHECK(line == "HTTP/1.1 504 Gateway Timeout\r");
  while (std::getline(client, line) && line != "\r") continue;
  std::getline(client, line);
  CHECK(line.find("--rest_api_timeout_in_ms") != std::string::npos);
  client << "GET /v1/models/m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" << std::flush;
  const std::string next(std::istreambuf_iterator<char>(client), {});
  CHECK(next.find("HTTP/1.1 200 OK") == 0);
  CHECK(next.find("\r\n\r\n{}") != std::string::npos);
  CHECK(next.find("late") == std::string::npos);
  std::raise(SIGTERM);
  serving.join();
  late = nullptr;
}

TEST_CASE("a body in chunks counts as what it may become while it is read, and then as what it is") {
  HttpServer::Done held;
  std::atomic<bool> is_held{false};
  HttpOptions options;
  options.max_body_bytes = 100;
  options.max_total_bytes = 150;
  const auto server = HttpServer::Listen(options, [&](const HttpRequest& request, const HttpServer::Done& done) {
    if (request.body == "held") {
      held = done;
      is_held = true;
    } else {
      done({.body = request.body});
    }
  });
  REQUIRE(server.ok());
  std::thread serving([&] { (*server)->Run([] {}); });
  using Client = boost::asio::ip::tcp::iostream;
  const auto send = [port = (*server)->port()](Client& client, const std::string& chunks) {
    client.connect("127.0.0.1", std::to_string(port));
    client << "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
           << chunks << std::flush;
  };
  const auto rest = [](Client& client) { return std::string(std::istreambuf_iterator<char>(client), {}); };
  const auto answer = [&](const std::string& chunks) {
    Client client;
    send(client, chunks);
    return rest(client);
  };
  Client first;
  send(first, "4\r\nheld\r\n0\r\n\r\n");
  while (!is_held) std::this_thread::yield();
  CHECK_THAT(answer("3\r\nnew\r\n0\r\n\r\n"), StartsWith("HTTP/1.1 200 OK") && EndsWith("\r\n\r\nnew"));
  CHECK_THAT(answer("65\r\n" + std::string(101, 'x')), StartsWith("HTTP/1.1 413 "));
  held({.body = "{}"});
  CHECK_THAT(rest(first), StartsWith("HTTP/1.1 200 OK"));
  // What both have taken is given back, once.
  CHECK_THAT(answer("4\r\nmore\r\n0\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  std::raise(SIGTERM);
  serving.join();
  held = nullptr;
}

TEST_CASE("a signal before Run ends it when it begins, after the requests that have come are answered") {
  const auto server =
      HttpServer::Listen({}, [&](const HttpRequest&, const HttpServer::Done& done) { done({.body = "{}"}); });
  REQUIRE(server.ok());
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  client << "GET /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n" << std::flush;
  std::raise(SIGINT);
  const HttpServer::End end = (*server)->Run([] {});
  CHECK(end.signal == SIGINT);
  CHECK(end.num_unanswered == 0);
  CHECK(std::string(std::istreambuf_iterator<char>(client), {}).find("HTTP/1.1 200 OK") == 0);
  CHECK(HasDefaultEffect(SIGINT));
}

TEST_CASE("Stop ends Run as a signal does") {
  const auto server =
      HttpServer::Listen({}, [&](const HttpRequest&, const HttpServer::Done& done) { done({.body = "{}"}); });
  REQUIRE(server.ok());
  boost::asio::ip::tcp::iostream idle("127.0.0.1", std::to_string((*server)->port()));
  int num_stopping = 0;
  HttpServer::End end;
  std::thread serving([&] { end = (*server)->Run([&] { ++num_stopping; }); });
  (*server)->Stop();
  (*server)->Stop();
  serving.join();
  CHECK(num_stopping == 1);
  CHECK(end.signal == 0);
  CHECK(end.num_unanswered == 0);
  (*server)->Stop();  // without effect
}

TEST_CASE("a client for whom there is no memory is disconnected, and the others are answered") {
  HttpOptions options;
  options.max_connections = 1;
  int num_requests = 0;
  const auto server = HttpServer::Listen(options, [&](const HttpRequest&, const HttpServer::Done& done) {
    if (++num_requests <= 2) throw std::bad_alloc();
    done({.body = "{}"});
  });
  REQUIRE(server.ok());
  HttpServer::End end;
  std::thread serving([&] { end = (*server)->Run([] {}); });
  for (int i = 0; i < 2; ++i) CHECK(Get((*server)->port()).empty());
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  client << "GET /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n" << std::flush;
  std::string line;
  std::getline(client, line);
  CHECK(line == "HTTP/1.1 200 OK\r");
  std::raise(SIGTERM);
  serving.join();
  CHECK(end.num_unanswered == 0);
}

TEST_CASE("after HEAD, the next request of the connection gets a body, also if it is refused") {
  const auto server =
      HttpServer::Listen({}, [&](const HttpRequest&, const HttpServer::Done& done) { done({.body = "{}"}); });
  REQUIRE(server.ok());
  std::thread serving([&] { (*server)->Run([] {}); });
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  client << "HEAD /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n" << std::flush;
  std::string line;
  while (std::getline(client, line) && line != "\r") continue;
  client << "hello\r\n\r\n" << std::flush;
  const std::string refused(std::istreambuf_iterator<char>(client), {});
  CHECK(refused.find("HTTP/1.1 400 Bad Request") == 0);
  CHECK(refused.find("\r\n\r\n{") != std::string::npos);
  client.close();
  std::raise(SIGTERM);
  serving.join();
}

TEST_CASE("a client of HTTP/1.0 that keeps its connection is told that it is kept") {
  const auto server =
      HttpServer::Listen({}, [&](const HttpRequest&, const HttpServer::Done& done) { done({.body = "{}"}); });
  REQUIRE(server.ok());
  std::thread serving([&] { (*server)->Run([] {}); });
  boost::asio::ip::tcp::iostream client("127.0.0.1", std::to_string((*server)->port()));
  for (int i = 0; i < 2; ++i) {
    client << "GET /v1/models/m HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" << std::flush;
    std::string head, line;
    while (std::getline(client, line) && line != "\r") head += line + "\n";
    CHECK(head.find("HTTP/1.1 200 OK") == 0);
    CHECK(head.find("Connection: keep-alive\r\n") != std::string::npos);
    CHECK((client.get() == '{' && client.get() == '}'));
  }
  client << "GET /v1/models/m HTTP/1.0\r\n\r\n" << std::flush;
  const std::string last(std::istreambuf_iterator<char>(client), {});
  CHECK(last.find("Connection: close\r\n") != std::string::npos);
  std::raise(SIGTERM);
  serving.join();
}

}  // namespace
}  // namespace official::serve
