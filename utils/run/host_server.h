// HostServer: what central_storage on several GPUs is: a parameter server that is a thread of this process, with the
// variables in the memory of the host. The GPUs are those of its only worker, which reads the variables before each
// step and sends the sum of their gradients after it (utils/train/parameter_server.h).
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "utils/data/dataset.h"
#include "utils/distribute/exchange.h"
#include "utils/train/config.h"
#include "utils/train/model.h"

namespace official::run {

struct HostServerOptions {
  int num_threads = 0;           // of the updates; 0: all cores
  std::chrono::seconds timeout;  // the longest wait for the worker to begin
};

class HostServer {
 public:
  // Begins to serve a worker that makes an Estimator with `config`, tells by Strategy::FromChief at which RunState the
  // training begins, and trains on data of this spec.
  HostServer(train::Model model, train::EstimatorConfig config, data::ElementSpec spec,
             const HostServerOptions& options);
  // Ends it, also where the worker has not left.
  ~HostServer();
  HostServer(const HostServer&) = delete;
  HostServer& operator=(const HostServer&) = delete;

  // The worker's, for distribute::ServerTasks; its only other task is the server.
  distribute::Exchange& exchange() { return *exchanges_[0]; }

  // Ends the server where the worker has ended, and returns why the run has: `status`, or the error of the server where
  // that is OK, or Cancelled, which an error of the server makes it.
  absl::Status End(absl::Status status);

 private:
  absl::Status Serve(train::Model model, const train::EstimatorConfig& config, const data::ElementSpec& spec,
                     const HostServerOptions& options);

  std::vector<std::unique_ptr<distribute::Exchange>> exchanges_;  // the worker's and the server's
  absl::Status served_;                                           // known when the thread has ended
  std::thread thread_;
};

}  // namespace official::run
