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
  const std::shared_ptr<Servable> present = servable();
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
  threads_->Add([this, deadline, body = std::move(request.body), done = std::move(done)]() mutable {
    Predict(std::move(body), deadline, [this, done = std::move(done)](HttpResponse response) {
      --num_pending_;
      done(std::move(response));
    });
  });
}

void ModelServer::Predict(std::string body, Batcher::Clock::time_point deadline, HttpServer::Done done) {
  if (Batcher::Clock::now() > deadline) {
    return done(ErrorFor(absl::DeadlineExceededError("the request has waited for --rest_api_timeout_in_ms")));
  }
  const std::shared_ptr<Servable> present = servable();
  absl::StatusOr<PredictRequest> request;
  try {
    request = ParsePredict(body, present->signature());
    for (size_t i = 0; request.ok() && i < request->examples.size(); ++i) {
      absl::StatusOr<Values> prepared = present->Prepare(std::move(request->examples[i]));
      if (prepared.ok()) {
        request->examples[i] = *std::move(prepared);
      } else {
        request =
            absl::Status(prepared.status().code(), absl::StrCat("example ", i, ": ", prepared.status().message()));
      }
    }
  } catch (const std::bad_alloc&) {
    request = absl::ResourceExhaustedError("no memory for the request");
  }
  body = std::string();
  if (!request.ok()) return done(ErrorFor(request.status()));
  batcher_.Add(std::move(request->examples), deadline,
               [this, format = request->format, done = std::move(done)](absl::StatusOr<std::vector<Values>> outputs) {
                 if (!outputs.ok()) return done(ErrorFor(outputs.status()));
                 done({.body = PredictResponse(format, servable()->signature(), *outputs)});
               });
}

void ModelServer::Serve(std::chrono::milliseconds interval, const std::function<std::unique_ptr<Servable>()>& reload) {
  const auto run = [this](absl::Span<const Values> examples) -> absl::StatusOr<std::vector<Values>> {
    try {
      return servable()->Run(examples);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for the batch");
    }
  };
  batcher_.Serve(run, interval, [&] {
    std::unique_ptr<Servable> loaded = reload();
    if (loaded == nullptr) return;
    const std::scoped_lock lock(mutex_);
    servable_ = std::move(loaded);
  });
}

void ModelServer::Stop() {
  threads_->Join();
  batcher_.Stop();
}

}  // namespace official::serve
