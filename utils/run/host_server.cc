#include "utils/run/host_server.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/strategy.h"
#include "utils/train/estimator.h"
#include "utils/train/run_state.h"

namespace official::run {

HostServer::HostServer(train::Model model, train::EstimatorConfig config, data::ElementSpec spec,
                       const HostServerOptions& options)
    : exchanges_(distribute::MakeMemoryExchanges(2)) {
  // A request to stop is the worker's: it needs the variables to save them.
  config.interruption = [] { return train::Interruption::kNone; };
  config.stop = nullptr;
  // Made while there is memory.
  const absl::Status out_of_memory = absl::InternalError("out of memory for the variables on the host");
  thread_ = std::thread([this, model = std::move(model), config = std::move(config), spec = std::move(spec), options,
                         out_of_memory]() mutable {
    try {
      served_ = Serve(std::move(model), config, spec, options);
    } catch (const std::bad_alloc&) {
      served_ = out_of_memory;
    } catch (const std::exception& exception) {
      served_ = absl::InternalError(absl::StrCat("internal error of the server of the variables: ", exception.what()));
    }
    if (!served_.ok()) exchanges_[1]->Fail(served_.message());
  });
}

HostServer::~HostServer() { End(absl::CancelledError()).IgnoreError(); }

absl::Status HostServer::End(absl::Status status) {
  if (!thread_.joinable()) return status;
  if (!status.ok()) exchanges_[0]->Fail("");
  thread_.join();
  const bool is_why = !served_.ok() && !absl::IsCancelled(served_) && (status.ok() || absl::IsCancelled(status));
  return is_why ? served_ : status;
}

absl::Status HostServer::Serve(train::Model model, const train::EstimatorConfig& config, const data::ElementSpec& spec,
                               const HostServerOptions& options) {
  ASSIGN_OR_RETURN(auto strategy,
                   distribute::Strategy::Create(
                       {.name = "central_storage",
                        .servers = distribute::ServerTasks{.exchange = exchanges_[1].get(), .num_servers = 1},
                        .num_threads = options.num_threads,
                        .all_reduce_timeout = options.timeout}));
  ASSIGN_OR_RETURN(const auto estimator, train::Estimator::Create(std::move(model), config, std::move(strategy)));
  ASSIGN_OR_RETURN(const std::string sent, estimator->strategy().FromChief(""));
  ASSIGN_OR_RETURN(const train::RunState beginning, train::RunStateFrom(sent));
  estimator->ContinueAt(beginning.position);
  return estimator->Serve(spec);
}

}  // namespace official::run
