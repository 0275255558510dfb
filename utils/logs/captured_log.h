// For tests: captures the log as text.
#pragma once

#include <cstdio>
#include <string>

#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::logs {

// Sends the log into its own file while it lives.
class CapturedLog {
 public:
  explicit CapturedLog(LogFormat format, bool color = false) { InitLogging({format, color}, fileno(file_)); }
  ~CapturedLog() {
    InitLogging({});
    std::fclose(file_);
  }

  std::string Text() {
    std::rewind(file_);
    std::string text(1 << 20, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

 private:
  std::FILE* const file_ = std::tmpfile();
};

// Captures the log of a terminal, with the live line of every task, however short, while it lives.
class CapturedTasks {
 public:
  CapturedTasks() { DrawTasksAtOnce(true); }
  ~CapturedTasks() { DrawTasksAtOnce(false); }

  std::string Text() { return log_.Text(); }

 private:
  CapturedLog log_{LogFormat::kBar};
};

}  // namespace official::logs
