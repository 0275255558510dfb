// One HTTP transfer with libcurl, which is loaded when the first one starts: as a linked library it and the twenty
// libraries that it needs would add 5 ms to the start of every program.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::data {

struct HttpRequest {
  std::string url;
  int64_t offset = 0;  // the first byte to ask for
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds timeout{600000};  // for the whole transfer
  int64_t min_bytes_per_second = 1000;
  std::chrono::seconds low_speed_time{10};
};

// The server's answer, known when the first bytes of the body arrive.
struct HttpResponse {
  int64_t offset = 0;  // offset of the body's first byte: the one asked for, or 0 if the server ignores such requests
  int64_t content_length = -1;  // size of the body; -1 if the server does not send it
  std::string content_type;
};

struct HttpHandler {
  // Called once, before the body. An error ends the transfer and becomes its result.
  absl::FunctionRef<absl::Status(const HttpResponse& response)> on_response;
  // Called for each piece of the body, likewise.
  absl::FunctionRef<absl::Status(absl::string_view bytes)> on_body;
};

enum class HttpOutcome {
  kDone,
  kHandlerError,  // `status` is the handler's error
  kUnreachable,   // no address, connection or trusted certificate: the host is not worth another try
  kBroken,        // broke off, or the server is busy: worth another try
  kRefused,       // an answer that will not change: 404, too slow, too many redirects
  kBadRange,      // there is nothing at `offset`
};

struct HttpResult {
  HttpOutcome outcome = HttpOutcome::kDone;
  absl::Status status;  // OK if done
};

// Follows up to five redirects. Proxies come from the environment (https_proxy, no_proxy), certificates from the
// system.
HttpResult HttpGet(const HttpRequest& request, const HttpHandler& handler);

}  // namespace official::data
