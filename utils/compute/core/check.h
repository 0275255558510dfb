// OFFICIAL_CHECK(condition) << "why": ends the process with file, line and message if the condition does not hold.
// It is for mistakes in this code only. What a user, a file or a machine can cause is an absl::Status.
#pragma once

#include <sstream>

namespace official {

// Collects the message of a failed check; its destructor prints it on stderr and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace official

#define OFFICIAL_CHECK(condition) \
  if (condition) [[likely]] {     \
  } else                          \
    ::official::CheckFailure(__FILE__, __LINE__, #condition).stream()
