#include "utils/data/curl.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::data {
namespace {

constexpr long kMaxRedirects = 5;

// The functions of libcurl that are used.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_easy_cleanup) easy_cleanup;
};

absl::StatusOr<Curl> LoadCurl() {
  void* library = dlopen("libcurl.so.4", RTLD_NOW);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("cannot load libcurl: ", dlerror()));
  Curl curl;
  absl::Status status;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) status = absl::UnavailableError(absl::StrCat("libcurl has no function ", name));
  };
  load("curl_global_init", curl.global_init);
  load("curl_easy_init", curl.easy_init);
  load("curl_easy_setopt", curl.easy_setopt);
  load("curl_easy_perform", curl.easy_perform);
  load("curl_easy_getinfo", curl.easy_getinfo);
  load("curl_easy_strerror", curl.easy_strerror);
  load("curl_easy_cleanup", curl.easy_cleanup);
  RETURN_IF_ERROR(status);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return absl::UnavailableError("libcurl cannot be initialized");
  return curl;
}

const absl::StatusOr<Curl>& GetCurl() {
  static const absl::StatusOr<Curl>& curl = *new absl::StatusOr<Curl>(LoadCurl());
  return curl;
}

class Transfer {
 public:
  Transfer(const Curl& curl, const HttpRequest& request, const HttpHandler& handler)
      : curl_(curl), request_(request), handler_(handler), easy_(curl.easy_init()) {}
  ~Transfer() { curl_.easy_cleanup(easy_); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  HttpResult Run() {
    if (easy_ == nullptr) return {HttpOutcome::kUnreachable, absl::UnavailableError("libcurl: out of memory")};
    SetOptions();
    CURLcode code = curl_.easy_perform(easy_);
    // A body of no bytes is an answer too.
    if (code == CURLE_OK && !responded_) Respond();
    if (!status_.ok()) return {HttpOutcome::kHandlerError, status_};
    if (code == CURLE_OK) return {};
    return {Outcome(code), absl::UnavailableError(Describe(code))};
  }

 private:
  void SetOptions() {
    Set(CURLOPT_URL, request_.url.c_str());
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_FOLLOWLOCATION, 1L);
    Set(CURLOPT_MAXREDIRS, kMaxRedirects);
    Set(CURLOPT_FAILONERROR, 1L);
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request_.connect_timeout.count()));
    Set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(request_.timeout.count())));
    Set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(request_.min_bytes_per_second));
    Set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request_.low_speed_time.count()));
    Set(CURLOPT_WRITEFUNCTION, &Transfer::OnBytes);
    Set(CURLOPT_WRITEDATA, this);
    if (request_.offset > 0) {
      // Not CURLOPT_RESUME_FROM: with it libcurl fails where the server ignores the range, instead of starting anew.
      range_ = absl::StrCat(request_.offset, "-");
      Set(CURLOPT_RANGE, range_.c_str());
    }
  }

  template <typename T>
  void Set(CURLoption option, T value) {
    curl_.easy_setopt(easy_, option, value);
  }
  template <typename T>
  T Info(CURLINFO info, T value) const {
    curl_.easy_getinfo(easy_, info, &value);
    return value;
  }
  long HttpCode() const { return Info(CURLINFO_RESPONSE_CODE, 0L); }

  void Respond() {
    responded_ = true;
    HttpResponse response;
    response.offset = HttpCode() == 206 ? request_.offset : 0;
    response.content_length = Info(CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, curl_off_t{-1});
    if (const char* type = Info<const char*>(CURLINFO_CONTENT_TYPE, nullptr)) response.content_type = type;
    status_ = handler_.on_response(response);
  }

  // Bytes taken; any other number than `count` ends the transfer.
  static size_t OnBytes(const char* bytes, size_t size, size_t count, void* transfer) {
    Transfer& self = *static_cast<Transfer*>(transfer);
    if (!self.responded_) self.Respond();
    if (self.status_.ok()) self.status_ = self.handler_.on_body(absl::string_view(bytes, size * count));
    return self.status_.ok() ? size * count : 0;
  }

  HttpOutcome Outcome(CURLcode code) const {
    switch (code) {
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_CONNECT:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        return HttpOutcome::kUnreachable;
      case CURLE_OPERATION_TIMEDOUT:
        return Info(CURLINFO_CONNECT_TIME_T, curl_off_t{0}) == 0 ? HttpOutcome::kUnreachable : HttpOutcome::kRefused;
      case CURLE_HTTP_RETURNED_ERROR: {
        const long http = HttpCode();
        if (http == 416 && request_.offset > 0) return HttpOutcome::kBadRange;
        return http >= 500 || http == 408 || http == 429 ? HttpOutcome::kBroken : HttpOutcome::kRefused;
      }
      case CURLE_PARTIAL_FILE:
      case CURLE_GOT_NOTHING:
      case CURLE_SEND_ERROR:
      case CURLE_RECV_ERROR:
      case CURLE_HTTP2:
      case CURLE_HTTP2_STREAM:
        return HttpOutcome::kBroken;
      default:
        return HttpOutcome::kRefused;
    }
  }

  std::string Describe(CURLcode code) const {
    return error_[0] != '\0' ? std::string(error_) : std::string(curl_.easy_strerror(code));
  }

  const Curl& curl_;
  const HttpRequest& request_;
  const HttpHandler& handler_;
  CURL* easy_;
  std::string range_;
  char error_[CURL_ERROR_SIZE] = {};
  bool responded_ = false;
  absl::Status status_;
};

}  // namespace

HttpResult HttpGet(const HttpRequest& request, const HttpHandler& handler) {
  const absl::StatusOr<Curl>& curl = GetCurl();
  if (!curl.ok()) return {HttpOutcome::kUnreachable, curl.status()};
  return Transfer(*curl, request, handler).Run();
}

}  // namespace official::data
