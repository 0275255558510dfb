// A libofficial_cluster.so with a planted bug, which the soak test has to find: a worker that waits for its part of a
// sum a little longer than usual goes on without it.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "utils/distribute/grpc/backend_entry.h"
#include "utils/distribute/grpc/grpc_exchange.h"

namespace official::distribute {
namespace {

class HastyExchange : public Exchange {
 public:
  explicit HastyExchange(std::unique_ptr<Exchange> real) : real_(std::move(real)) {}

  int worker() const override { return real_->worker(); }
  int num_workers() const override { return real_->num_workers(); }
  int NumberOf(int worker) const override { return real_->NumberOf(worker); }
  std::string NameOf(int worker) const override { return real_->NameOf(worker); }
  using Exchange::Send;
  absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) override {
    return real_->Send(worker, channel, parts);
  }
  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    constexpr std::chrono::milliseconds kPatience(200);
    const auto begin = std::chrono::steady_clock::now();
    absl::StatusOr<std::string> frame = real_->Receive(worker, channel, deadline);
    const bool late = std::chrono::steady_clock::now() - begin > kPatience;
    if (frame.ok() && channel == Channel::kSums && late) frame->assign(frame->size(), '\0');
    return frame;
  }
  absl::Status WaitForReturn(int worker, std::chrono::milliseconds deadline) override {
    return real_->WaitForReturn(worker, deadline);
  }
  int incarnation() const override { return real_->incarnation(); }
  absl::Status Check() override { return real_->Check(); }
  void Fail(absl::string_view reason) override { real_->Fail(reason); }
  std::vector<int> Lost() override { return real_->Lost(); }
  std::vector<int> Late() override { return real_->Late(); }
  void Finish() override { real_->Finish(); }

 private:
  const std::unique_ptr<Exchange> real_;
};

}  // namespace
}  // namespace official::distribute

extern "C" __attribute__((visibility("default"))) void OfficialConnectWorkers(
    const official::distribute::ConnectOptions& options,
    absl::StatusOr<std::unique_ptr<official::distribute::Exchange>>& exchange) {
  exchange = official::distribute::MakeGrpcExchange(options);
  if (exchange.ok()) exchange = std::make_unique<official::distribute::HastyExchange>(*std::move(exchange));
}
