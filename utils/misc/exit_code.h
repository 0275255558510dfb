// Exit statuses: 0 done, 1 failed, 2 bad flags or configuration, and the numbers of sysexits.h for errors that a script
// may want to tell apart. They are below 128, so that no cluster operator takes them for a reason to retry; 138 asks
// for a retry. (A run that a signal stopped ends by that signal.)
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::misc {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadFlags = 2;
inline constexpr int kExitBadData = 65;       // EX_DATAERR
inline constexpr int kExitNoInput = 66;       // EX_NOINPUT
inline constexpr int kExitUnavailable = 69;   // EX_UNAVAILABLE
inline constexpr int kExitCannotCreate = 73;  // EX_CANTCREAT
inline constexpr int kExitIoError = 74;       // EX_IOERR
inline constexpr int kExitNoPermission = 77;  // EX_NOPERM
inline constexpr int kExitResumeMe = 138;     // interrupted, everything is saved

// Returns the exit status of a status: OK 0, InvalidArgument 2, DataLoss 65, NotFound 66, Unavailable 69, AlreadyExists
// and FailedPrecondition 73, Aborted 74, PermissionDenied 77, Cancelled 138, every other code 1, including
// ResourceExhausted, which means not enough memory or threads. (A full disk is an input or output error: Aborted.)
int ExitCode(const absl::Status& status);

// Returns a status that ends the program as OK would, with a message: 0.
absl::Status NothingLeftToDo(absl::string_view message);

}  // namespace official::misc
