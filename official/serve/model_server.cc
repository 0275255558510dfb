#include "official/serve/model_server.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/serve/rest_api.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::serve {
namespace {

HttpResponse ErrorFor(const absl::Status& status) { return ErrorTo(HttpStatus(status), std::string(status.message())); }

// The bytes of the numbers of an example. Text is not counted: it is a part of the body.
size_t ExampleBytes(const Signature& signature) {
  size_t bytes = 0;
  for (const TensorInfo& input : signature.inputs) {
    if (input.dtype) bytes += compute::TensorType{*input.dtype, compute::Shape(input.dims)}.num_bytes();
  }
  return bytes;
}

// The method that a path is for.
absl::string_view MethodOf(const Path& path) { return path.method == Method::kPredict ? "POST" : "GET"; }

}  // namespace

class ModelServer::RequestThreads {
 public:
  explicit RequestThreads(int num_threads) : pool_(num_threads) {}
  template <typename Work>
  void Add(Work work) {
    boost::asio::post(pool_, std::move(work));
  }
  void Join() { pool_.join(); }

 private:
  boost::asio::thread_pool pool_;
};

ModelServer::ModelServer(const ModelServerOptions& options, std::unique_ptr<Servable> servable)
    : options_(options),
      servable_(std::move(servable)),
      batcher_(options.batcher),
      threads_(std::make_unique<RequestThreads>(options.num_request_threads)) {}

ModelServer::~ModelServer() = default;

std::shared_ptr<Servable> ModelServer::servable() const {
  const std::scoped_lock lock(mutex_);
  return servable_;
}

void ModelServer::Handle(HttpRequest request, HttpServer::Done done) {
  const std::optional<Path> path = ParsePath(request.target);
  if (!path) {
    return done(ErrorTo(400, absl::StrCat("Malformed request: ", misc::Printable(request.method), " ",
                                          misc::Printable(request.target))));
  }
  std::shared_ptr<Servable> present = servable();
  const int64_t version = present->version();
  if (path->model != options_.model_name || path->version.value_or(version) != version) {
    const std::string name = misc::Printable(path->model);
    const std::string wanted =
        path->version ? absl::StrCat("Specific(", name, ", ", *path->version, ")") : absl::StrCat("Latest(", name, ")");
    return done(ErrorTo(404, absl::StrCat("Servable not found for request: ", wanted, "; there is ",
                                          options_.model_name, ", version ", version)));
  }
  if (request.method != MethodOf(*path)) {
    HttpResponse refused = ErrorTo(405, absl::StrCat("Method not allowed: ", misc::Printable(request.method),
                                                     "; this path is for ", MethodOf(*path)));
    refused.allow = std::string(MethodOf(*path));
    return done(std::move(refused));
  }
  if (path->method == Method::kStatus) return done({.body = StatusResponse(version)});
  if (path->method == Method::kMetadata) {
    return done({.body = MetadataResponse(options_.model_name, version, present->signature())});
  }
  if (num_pending_ >= options_.max_pending_requests) {
    return done(ErrorTo(503, absl::StrCat(options_.max_pending_requests, " requests are waiting; try again later")));
  }
  ++num_pending_;
  const Batcher::Clock::time_point deadline = Batcher::Clock::now() + options_.request_timeout;
  try {
    threads_->Add([this, present = std::move(present), deadline, body = std::move(request.body),
                   done = std::move(done)]() mutable {
      Predict(std::move(present), std::move(body), deadline, [this, done = std::move(done)](HttpResponse response) {
        --num_pending_;
        done(std::move(response));
      });
    });
  } catch (const std::bad_alloc&) {
    --num_pending_;
    throw;
  }
}

absl::Status ModelServer::Prepare(const Servable& servable, Batcher::Clock::time_point deadline,
                                  std::vector<Values>& examples) const {
  for (size_t i = 0; i < examples.size(); ++i) {
    if (stopping_) return absl::UnavailableError("the server is stopping");
    if (Batcher::Clock::now() > deadline) return absl::DeadlineExceededError(kTooLate);
    absl::StatusOr<Values> prepared = servable.Prepare(std::move(examples[i]));
    if (!prepared.ok()) {
      return absl::Status(prepared.status().code(), absl::StrCat("example ", i, ": ", prepared.status().message()));
    }
    examples[i] = *std::move(prepared);
  }
  return absl::OkStatus();
}

std::optional<HttpResponse> ModelServer::Read(const Servable& servable, std::string body,
                                              Batcher::Clock::time_point deadline, PredictRequest& request,
                                              size_t& reserved) {
  if (Batcher::Clock::now() > deadline) return ErrorFor(absl::DeadlineExceededError(kTooLate));
  absl::StatusOr<PredictRequest> parsed = ParsePredict(body, servable.signature());
  if (!parsed.ok()) return ErrorFor(parsed.status());
  body = std::string();
  request = *std::move(parsed);
  const size_t num_examples = request.examples.size();
  const size_t bytes = num_examples * ExampleBytes(servable.signature());
  if (num_examples > 1 && bytes > options_.max_request_example_bytes) {
    return ErrorTo(413, absl::StrCat("the ", num_examples, " examples have ", bytes, " bytes when decoded, more than ",
                                     options_.max_request_example_bytes, "; send fewer in a request"));
  }
  reserved = bytes;
  const size_t others = example_bytes_.fetch_add(bytes);
  if (others > 0 && others + bytes > options_.max_total_example_bytes) {
    return ErrorTo(503, "too many bytes of examples of other requests; try again later");
  }
  const absl::Status prepared = Prepare(servable, deadline, request.examples);
  if (!prepared.ok()) return ErrorFor(prepared);
  return std::nullopt;
}

void ModelServer::Predict(std::shared_ptr<Servable> servable, std::string body, Batcher::Clock::time_point deadline,
                          HttpServer::Done done) {
  PredictRequest request;
  size_t reserved = 0;
  std::optional<HttpResponse> refused;
  try {
    refused = Read(*servable, std::move(body), deadline, request, reserved);
  } catch (const std::bad_alloc&) {
    refused = ErrorFor(absl::ResourceExhaustedError("no memory for the request"));
  }
  if (refused) {
    example_bytes_ -= reserved;
    return done(*std::move(refused));
  }
  batcher_.Add(servable, std::move(request.examples), deadline,
               [this, servable, reserved, format = request.format,
                done = std::move(done)](absl::StatusOr<std::vector<Values>> outputs) {
                 example_bytes_ -= reserved;
                 HttpResponse response;
                 try {
                   response = outputs.ok()
                                  ? HttpResponse{.body = PredictResponse(format, servable->signature(), *outputs)}
                                  : ErrorFor(outputs.status());
                 } catch (const std::bad_alloc&) {
                   response = ErrorFor(absl::ResourceExhaustedError("no memory for the response"));
                 }
                 done(std::move(response));
               });
}

void ModelServer::Serve() {
  batcher_.Serve([](const std::shared_ptr<Servable>& servable,
                    absl::Span<const Values> examples) -> absl::StatusOr<std::vector<Values>> {
    try {
      return servable->Run(examples);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for the batch");
    }
  });
}

void ModelServer::Replace(std::unique_ptr<Servable> servable) {
  std::shared_ptr<Servable> other = std::move(servable);  // is destroyed without the lock
  const std::scoped_lock lock(mutex_);
  servable_.swap(other);
}

void ModelServer::Stop() {
  stopping_ = true;
  threads_->Join();
  batcher_.Stop();
}

}  // namespace official::serve
