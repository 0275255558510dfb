// How a session begins again where the process ends at once, as when GPUs hang after the loss of a worker.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/free_address.h"
#include "utils/distribute/strategy.h"
#include "utils/run/cluster.h"
#include "utils/run/config.h"
#include "utils/run/examples_of_epoch.h"
#include "utils/run/session.h"
#include "utils/run/small_run.h"
#include "utils/train/estimator.h"
#include "utils/train/parameter_server_job.h"

namespace official::run {
namespace {

// Ends the process where it begins again, without worker 1, before Catch sees its arguments.
constexpr int kBegunAgain = 77;
[[maybe_unused]] const bool checked = [] {
  const char* const value = std::getenv(kRestartVariable);
  if (value != nullptr) _exit(std::strcmp(value, "1 0 0") == 0 ? kBegunAgain : 1);
  return true;
}();

// A worker of two that has begun to train.
struct Worker {
  Worker(const std::string& addresses, int index) {
    setenv("TF_CONFIG",
           absl::StrCat(R"({"cluster": {"worker": [)", addresses, R"(]}, "task": {"type": "worker", "index": )", index,
                        "}}")
               .c_str(),
           /*overwrite=*/1);
    Config config = SmallRun(train::kBatch);
    config.cluster.on_peer_loss = flags::OnPeerLoss::kRestart;
    session = Session::Open(config, results).value();
    estimator =
        session->Begin(train::LinearModel(), ExamplesOfEpoch(), {.name = "linear", .tensors_to_log = {}}).value();
  }
  std::ostringstream results;
  std::unique_ptr<Session> session;
  train::Estimator* estimator;
};

// Calls f in a process of its own, which f does not leave by an exception.
template <typename F>
pid_t Fork(F f) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    f();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    _exit(2);
  }
  _exit(0);
}

TEST_CASE("A process that ends at once in training, after the loss of a worker, begins again without it") {
  const int port = distribute::FreePort().value();
  int other_port = port;
  while (other_port == port) other_port = distribute::FreePort().value();
  const std::string addresses = absl::StrCat(R"("127.0.0.1:)", port, R"(", "127.0.0.1:)", other_port, "\"");
  const pid_t lost = Fork([&] {
    const Worker worker(addresses, 1);
    pause();
  });
  const pid_t chief = Fork([&] {
    const Worker worker(addresses, 0);
    kill(lost, SIGKILL);
    const distribute::Strategy& strategy = worker.estimator->strategy();
    const absl::Status loss = strategy.GatherBytes("").status();
    // As a device does whose thread waits, while that of the session waits for it.
    std::thread([&] { strategy.device(0).EndProcess(loss); }).join();
  });
  int status = -1;
  waitpid(chief, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kBegunAgain);
  kill(lost, SIGKILL);
  waitpid(lost, nullptr, 0);
}

}  // namespace
}  // namespace official::run
