#include "official/serve/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <cstdint>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/serve/rest_api.h"
#include "utils/misc/stop_signals.h"

namespace official::serve {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;
using std::chrono::milliseconds;

class Connection;

// Returns a coding that keeps the body of a request from being read as it is sent, such as "gzip"; empty: there is
// none.
std::string CodingOf(const http::request<http::string_body>& message) {
  for (const http::field field : {http::field::content_encoding, http::field::transfer_encoding}) {
    const auto [begin, end] = message.equal_range(field);
    for (auto header = begin; header != end; ++header) {
      for (const auto& coding : http::token_list(header->value())) {
        const bool is_chunked = field == http::field::transfer_encoding && beast::iequals(coding, "chunked");
        if (!is_chunked && !beast::iequals(coding, "identity")) return std::string(coding);
      }
    }
  }
  return "";
}

// What the connections share. All of it belongs to the thread of Run.
struct Shared {
  HttpOptions options;
  HttpServer::Handler handler;
  net::io_context io;
  std::set<std::shared_ptr<Connection>> connections;
  size_t total_bytes = 0;  // of the bodies that are reserved
  bool stopping = false;
  size_t num_unanswered = 0;  // since then
  std::function<void()> connection_closed;
};

// A client: reads a request, waits for its response, writes it, and begins again.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : shared_(shared),
        stream_(std::move(socket)),
        handler_timer_(shared.io),
        buffer_(shared.options.max_header_bytes + 4096) {}

  void ReadRequest() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
    parser_->body_limit(shared_.options.max_body_bytes);
    waits_ = true;
    answered_ = false;
    is_head_ = false;  // until its header says so
    stream_.expires_after(shared_.options.timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) { self->HeaderRead(error); });
  }

  // Ends a connection on which no request has begun; another one ends after its response. Bytes that have been read
  // already may still be on their way to this.
  void Stop() {
    net::post(shared_.io, [self = shared_from_this()] {
      error_code error;
      if (!self->HasBegun() && self->stream_.socket().available(error) == 0) self->Close();
    });
  }

  void Close() {
    Release();
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    if (shared_.connections.erase(shared_from_this()) == 0) return;
    if (shared_.stopping && HasBegun() && !answered_) ++shared_.num_unanswered;
    shared_.connection_closed();
  }

 private:
  // True if a part of a request has been read.
  bool HasBegun() const { return !waits_ || parser_->got_some() || buffer_.size() > 0; }

  void HeaderRead(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return Refuse(431, "the header of the request is too large");
    if (error == http::error::body_limit) return RefuseBody();
    if (error == http::error::end_of_stream || error == beast::error::timeout) return Close();
    if (error)
      return error.category() == http::make_error_code(http::error::bad_method).category()
                 ? Refuse(400, absl::StrCat("not an HTTP request: ", error.message()))
                 : Close();
    waits_ = false;
    // First: a request whose last transfer coding is not chunks would seem to have no body.
    if (const std::string coding = CodingOf(parser_->get()); !coding.empty()) {
      return Refuse(415, absl::StrCat("the body is compressed (", coding, "); send it as it is"));
    }
    if (parser_->is_done()) return Handle();
    // Of a body in chunks the length is not known.
    const auto length = parser_->content_length();
    const size_t bytes = length ? static_cast<size_t>(*length) : shared_.options.max_body_bytes;
    if (shared_.total_bytes + bytes > shared_.options.max_total_bytes) {
      return Refuse(503, "too many bytes of other requests; try again later");
    }
    reserved_ = bytes;
    shared_.total_bytes += bytes;
    try {
      if (length) parser_->get().body().reserve(bytes);
    } catch (const std::bad_alloc&) {
      return Refuse(503, "no memory for the body of the request; try again later");
    }
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) return SendContinue();
    ReadBody();
  }

  void SendContinue() {
    static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(stream_, net::buffer(kContinue, sizeof(kContinue) - 1),
                     [self = shared_from_this()](error_code error, size_t) {
                       if (error) return self->Close();
                       self->ReadBody();
                     });
  }

  void ReadBody() {
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
      if (error == http::error::body_limit) return self->RefuseBody();
      if (error.category() == http::make_error_code(http::error::bad_method).category() &&
          error != http::error::partial_message) {
        return self->Refuse(400, absl::StrCat("not an HTTP request: ", error.message()));
      }
      if (error) return self->Close();
      self->Handle();
    });
  }

  void Handle() {
    auto& message = parser_->get();
    // A body in chunks may be far smaller than what was reserved for it.
    const size_t bytes = message.body().size();
    shared_.total_bytes -= reserved_ - bytes;
    reserved_ = bytes;
    HttpRequest request{std::string(message.method_string()), std::string(message.target()), std::move(message.body())};
    keep_alive_ = message.keep_alive();
    is_version_1_0_ = message.version() < 11;
    is_head_ = message.method() == http::verb::head;
    stream_.expires_never();
    const int64_t number = num_answered_;
    shared_.handler(std::move(request), [self = shared_from_this(), number](HttpResponse response) {
      net::post(self->shared_.io, [self, number, response = std::move(response)]() mutable {
        self->Answer(number, std::move(response));
      });
    });
    handler_timer_.expires_after(shared_.options.timeout);
    // Weak: CloseAbandoned must not take this for an operation that will end the connection.
    handler_timer_.async_wait([weak = weak_from_this(), number](error_code error) {
      const std::shared_ptr<Connection> self = weak.lock();
      if (error || self == nullptr) return;
      self->Answer(number, ErrorTo(504, kTooLate));
    });
  }

  // Writes the response to a request of the handler, `number` of them having been answered when it came, unless it has
  // one already.
  void Answer(int64_t number, HttpResponse response) {
    if (number != num_answered_) return;
    ++num_answered_;
    handler_timer_.cancel();
    Write(std::move(response));
  }

  void RefuseBody() {
    Refuse(413, absl::StrCat("the body of the request has more than ", shared_.options.max_body_bytes, " bytes"));
  }

  // Answers a request that is not read to its end, after which there can be no other.
  void Refuse(int status, const std::string& message) {
    waits_ = false;
    keep_alive_ = false;
    discard_ = true;
    Write(ErrorTo(status, message));
  }

  void Write(HttpResponse response) {
    response_.emplace(static_cast<http::status>(response.status), 11);
    response_->set(http::field::content_type, "application/json");
    if (!response.allow.empty()) response_->set(http::field::allow, response.allow);
    if (response.status == 503) response_->set(http::field::retry_after, "1");
    response_->content_length(response.body.size());
    if (!is_head_) response_->body() = std::move(response.body);
    if (shared_.stopping) keep_alive_ = false;
    response_->keep_alive(keep_alive_);
    // A client of HTTP/1.0, such as ab -k, else waits until the connection is closed.
    if (keep_alive_ && is_version_1_0_) response_->set(http::field::connection, "keep-alive");
    stream_.expires_after(shared_.options.timeout);
    http::async_write(stream_, *response_, [self = shared_from_this()](error_code error, size_t) {
      self->response_.reset();
      self->Release();
      if (error) return self->Close();
      self->answered_ = true;
      if (self->discard_) return self->DiscardRest();
      if (self->keep_alive_ && !self->shared_.stopping) return self->ReadRequest();
      self->Close();
    });
  }

  // Reads what the client still sends: closing with bytes that nobody has read resets the connection, and the client
  // may lose the response.
  void DiscardRest() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::min<milliseconds>(shared_.options.timeout, kDiscardTime));
    DiscardSome();
  }

  void DiscardSome() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code error, size_t) {
      if (error) return self->Close();
      self->DiscardSome();
    });
  }

  void Release() { shared_.total_bytes -= std::exchange(reserved_, 0); }

  static constexpr milliseconds kDiscardTime{2000};

  Shared& shared_;
  beast::tcp_stream stream_;
  net::steady_timer handler_timer_;  // how long the handler may take
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  size_t reserved_ = 0;       // of total_bytes
  int64_t num_answered_ = 0;  // of the handler's requests
  bool waits_ = true;         // for a header
  bool answered_ = false;
  bool keep_alive_ = false, is_version_1_0_ = false, is_head_ = false, discard_ = false;
};

class Server : public HttpServer {
 public:
  Server(const HttpOptions& options, Handler handler)
      : signals_(shared_.io), acceptor_(shared_.io), accept_again_(shared_.io), end_(shared_.io) {
    shared_.options = options;
    shared_.handler = std::move(handler);
    shared_.connection_closed = [this] { ConnectionClosed(); };
  }

  absl::Status Listen() {
    const HttpOptions& options = shared_.options;
    error_code error;
    const auto address = net::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat("--host=", options.host, " is not an IP address"));
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    if (!error) {
      TakeSignals();
      return absl::OkStatus();
    }
    const std::string where = absl::StrCat(options.host, ":", options.port, ": ", error.message());
    if (error == net::error::address_in_use) {
      return absl::AlreadyExistsError(absl::StrCat("cannot listen on ", where, "; choose another --rest_api_port"));
    }
    if (error == net::error::access_denied) {
      return absl::PermissionDeniedError(absl::StrCat("cannot listen on ", where,
                                                      "; choose a --rest_api_port of 1024 "
                                                      "or more"));
    }
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", where,
                                                   "; --host needs an address of this "
                                                   "machine"));
  }

  int port() const override { return acceptor_.local_endpoint().port(); }

  End Run(const std::function<void()>& stopping) override {
    stopping_ = stopping;
    WaitForSignal();
    for (bool ended = false; !ended;) {
      try {
        CloseAbandoned();
        Accept();
        shared_.io.run();
        ended = true;
      } catch (const std::bad_alloc&) {
        // What has run out of memory is abandoned.
      }
    }
    error_code ignored;
    signals_.clear(ignored);
    return {signal_, shared_.num_unanswered};
  }

  void Stop() override {
    net::post(shared_.io, [this] { BeginToStop(); });
  }

 private:
  // Keeps what comes for WaitForSignal.
  void TakeSignals() {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
      struct sigaction present;
      sigaction(signal, nullptr, &present);
      // A signal that came ignored, as SIGINT does in the background of a script, stays so.
      if (present.sa_handler != SIG_IGN) signals_.add(signal);
    }
  }

  void WaitForSignal() {
    signals_.async_wait([this](error_code error, int signal) {
      if (error) return;
      if (signal_ == SIGINT && signal == SIGINT) misc::DieOfSignal(signal);
      WaitForSignal();  // first, since without clients BeginToStop ends this, too
      if (signal_ == 0) signal_ = signal;
      BeginToStop();
    });
  }

  void BeginToStop() {
    if (std::exchange(shared_.stopping, true)) return;
    TakeWaiting();
    error_code ignored;
    acceptor_.close(ignored);
    accept_again_.cancel();
    stopping_();
    const auto connections = shared_.connections;
    for (const auto& connection : connections) connection->Stop();
    end_.expires_after(shared_.options.timeout + kLastAnswerTime);
    end_.async_wait([this](error_code error) {
      if (error) return;
      const auto late = shared_.connections;
      for (const auto& connection : late) connection->Close();
      shared_.io.stop();
    });
    // A client may be accepted whose handler has not run yet.
    net::post(shared_.io, [this] { EndIfDone(); });
  }

  void EndIfDone() {
    if (!shared_.stopping || !shared_.connections.empty()) return;
    end_.cancel();
    signals_.cancel();
  }

  void ConnectionClosed() {
    Accept();
    EndIfDone();
  }

  // Closes the connections that no operation holds any more.
  void CloseAbandoned() {
    for (auto next = shared_.connections.begin(); next != shared_.connections.end();) {
      const std::shared_ptr<Connection> connection = *next++;
      if (connection.use_count() == 2) connection->Close();  // here and in the set
    }
  }

  // Waits for the next client, unless it waits already or there is no room.
  void Accept() {
    if (accepts_ || shared_.stopping || shared_.connections.size() >= shared_.options.max_connections) return;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      accepts_ = false;
      if (shared_.stopping) {
        if (!error) Begin(std::move(socket))->Stop();
        return;
      }
      if (error) return AcceptLater();
      Begin(std::move(socket));
      Accept();
    });
    accepts_ = true;
  }

  std::shared_ptr<Connection> Begin(tcp::socket socket) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(std::move(socket), shared_);
    shared_.connections.insert(connection);
    connection->ReadRequest();
    return connection;
  }

  // Accepts the clients that have connected already.
  void TakeWaiting() {
    error_code error;
    acceptor_.non_blocking(true, error);
    while (!error && shared_.connections.size() < shared_.options.max_connections) {
      tcp::socket socket = acceptor_.accept(error);
      if (!error) Begin(std::move(socket));
    }
  }

  // There may be no file descriptor left until a client leaves.
  void AcceptLater() {
    accept_again_.expires_after(milliseconds(100));
    accept_again_.async_wait([this](error_code error) {
      if (!error) Accept();
    });
  }

  // For the 504 of a request that came just before the signal.
  static constexpr milliseconds kLastAnswerTime{500};

  Shared shared_;
  net::signal_set signals_;
  tcp::acceptor acceptor_;
  net::steady_timer accept_again_, end_;
  std::function<void()> stopping_;
  int signal_ = 0;
  bool accepts_ = false;  // waits for a client
};

}  // namespace

HttpResponse ErrorTo(int status, const std::string& message) {
  return {.status = status, .body = ErrorResponse(message)};
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options, Handler handler) {
  auto server = std::make_unique<Server>(options, std::move(handler));
  const absl::Status status = server->Listen();
  if (!status.ok()) return status;
  return server;
}

}  // namespace official::serve
