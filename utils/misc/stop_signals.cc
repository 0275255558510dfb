#include "utils/misc/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <iterator>

#include "utils/compute/core/check.h"

namespace official::misc {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

std::atomic<int> stop_signal{0};
std::atomic<bool> interrupted{false};  // by a SIGINT
std::atomic<bool> save_requested{false};
std::atomic<bool> installed{false};
struct sigaction previous[std::size(kSignals)];

// Only what is allowed in a signal handler: atomics without locks, and system calls.
void Handle(int signal) {
  if (signal == SIGUSR2) {
    save_requested = true;
  } else {
    if (signal == SIGINT && interrupted.exchange(true)) DieOfSignal(signal);
    RequestStop(signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  OFFICIAL_CHECK(!installed.exchange(true));
  stop_signal = 0;
  interrupted = false;
  save_requested = false;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &previous[i]);
    // A signal that came ignored, as SIGINT does in the background of a script, stays so.
    if (previous[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &previous[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
  installed = false;
}

void RequestStop(int signal) {
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);  // the first one counts
}

bool TakeSaveRequest() { return save_requested.exchange(false); }

int StopSignalReceived() { return stop_signal; }

const std::atomic<int>& StopSignalFlag() { return stop_signal; }

void DieOfSignal(int signal) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);  // it is blocked while its handler runs
  _exit(128 + signal);
}

}  // namespace official::misc
