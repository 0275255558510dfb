// ModelServer: answers the requests of TensorFlow Serving's REST API for one model.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "official/serve/batcher.h"
#include "official/serve/http_server.h"
#include "official/serve/servable/servable.h"

namespace official::serve {

struct ModelServerOptions {
  std::string model_name;
  BatcherOptions batcher;
  int num_request_threads = 1;  // that read requests and prepare their examples
  size_t max_pending_requests = 256;
  std::chrono::milliseconds request_timeout{30000};
};

class ModelServer {
 public:
  ModelServer(const ModelServerOptions& options, std::unique_ptr<Servable> servable);
  ~ModelServer();

  // Is the HttpServer's handler.
  void Handle(HttpRequest request, HttpServer::Done done);

  // Computes batches, with the calling thread, until Stop. Calls `reload` at least every `interval`: the servable that
  // it returns, if any, computes the batches from then on.
  void Serve(std::chrono::milliseconds interval, const std::function<std::unique_ptr<Servable>()>& reload);
  // From now on no request waits for others that would fill its batch.
  void Hurry() { batcher_.Hurry(); }
  // Ends Serve as soon as all requests that have come are answered.
  void Stop();

 private:
  class RequestThreads;

  void Predict(std::string body, Batcher::Clock::time_point deadline, HttpServer::Done done);
  std::shared_ptr<Servable> servable() const;

  const ModelServerOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<Servable> servable_;  // guarded by mutex_
  Batcher batcher_;
  std::atomic<size_t> num_pending_{0};
  std::unique_ptr<RequestThreads> threads_;
};

}  // namespace official::serve
