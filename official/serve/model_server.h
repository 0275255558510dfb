// ModelServer: answers the requests of TensorFlow Serving's REST API for one model.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/serve/batcher.h"
#include "official/serve/http_server.h"
#include "official/serve/rest_api.h"
#include "official/serve/servable/servable.h"

namespace official::serve {

struct ModelServerOptions {
  std::string model_name;
  BatcherOptions batcher;
  int num_request_threads = 1;  // that read requests and prepare their examples
  size_t max_pending_requests = 256;
  // The numbers of the examples as the network takes them: a small file may be a large image. Of a request with more
  // than one example, and of all requests that are prepared, wait or are computed.
  size_t max_request_example_bytes = 256 << 20;
  size_t max_total_example_bytes = 1 << 30;
  std::chrono::milliseconds request_timeout{30000};
};

class ModelServer {
 public:
  ModelServer(const ModelServerOptions& options, std::unique_ptr<Servable> servable);
  ~ModelServer();

  // Is the HttpServer's handler.
  void Handle(HttpRequest request, HttpServer::Done done);

  // Computes batches, with the calling thread, until Stop.
  void Serve();
  // Answers the requests that come from now on by `servable`. Those that have come are answered by the one before,
  // which is kept until then. May be called by any thread, also during Serve.
  void Replace(std::unique_ptr<Servable> servable);
  // From now on no request waits for others that would fill its batch.
  void Hurry() { batcher_.Hurry(); }
  // For the time when no client waits any more: gives up the requests whose examples are being prepared, and ends Serve
  // as soon as no other one is left.
  void Stop();

 private:
  class RequestThreads;

  void Predict(std::shared_ptr<Servable> servable, std::string body, Batcher::Clock::time_point deadline,
               HttpServer::Done done);
  // Reads and prepares the examples of a request, whose bytes are added to example_bytes_ and given as `reserved`.
  // Returns the response to one that is refused.
  std::optional<HttpResponse> Read(const Servable& servable, std::string body, Batcher::Clock::time_point deadline,
                                   PredictRequest& request, size_t& reserved);
  // Prepares the examples in place.
  absl::Status Prepare(const Servable& servable, Batcher::Clock::time_point deadline,
                       std::vector<Values>& examples) const;
  std::shared_ptr<Servable> servable() const;

  const ModelServerOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<Servable> servable_;  // guarded by mutex_
  Batcher batcher_;
  std::atomic<size_t> num_pending_{0};
  std::atomic<size_t> example_bytes_{0};  // of the requests that are not answered
  std::atomic<bool> stopping_{false};
  std::unique_ptr<RequestThreads> threads_;
};

}  // namespace official::serve
