// TaskProcess: this program, started again as one task of a cluster.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::run {

class TaskProcess {
 public:
  // Output that has come: whole lines, but for a line that is very long or the last one.
  struct Output {
    std::string out, err;
  };
  // How the process ended: by a status or, if that is not 0, by a signal.
  struct End {
    int status = 0;
    int signal = 0;
  };

  // Starts this program with these arguments and this TF_CONFIG, and otherwise with the environment of this process. It
  // gets SIGTERM when the calling thread ends, however that happens. Unavailable if the system starts no process.
  static absl::StatusOr<std::unique_ptr<TaskProcess>> Start(const std::string& name,
                                                            const std::vector<std::string>& arguments,
                                                            const std::string& tf_config);
  // Kills the process if it is still there.
  ~TaskProcess();

  // Waits for output, for at most that time. Output that is not read makes the process wait.
  Output Read(std::chrono::milliseconds timeout);
  // Returns how the process has ended, once it has and all its output is read.
  std::optional<End> Ended();
  void Signal(int signal);

 private:
  struct Pipe {
    int fd;
    std::string begun;  // a line whose end has not come
  };
  TaskProcess(pid_t pid, int out, int err) : pid_(pid), out_{out, ""}, err_{err, ""} {}
  // Appends what can be read at once to `lines`.
  static void ReadPipe(Pipe& pipe, std::string& lines);

  const pid_t pid_;
  Pipe out_, err_;
  std::optional<End> end_;
};

}  // namespace official::run
