#include "utils/misc/exit_code.h"

#include <sysexits.h>

#include <catch2/catch.hpp>

namespace official::misc {
namespace {

TEST_CASE("Exit codes are those of sysexits.h") {
  CHECK(ExitCode(absl::OkStatus()) == 0);
  CHECK(ExitCode(absl::InvalidArgumentError("")) == 2);
  CHECK(ExitCode(absl::DataLossError("")) == EX_DATAERR);
  CHECK(ExitCode(absl::NotFoundError("")) == EX_NOINPUT);
  CHECK(ExitCode(absl::UnavailableError("")) == EX_UNAVAILABLE);
  CHECK(ExitCode(absl::AlreadyExistsError("")) == EX_CANTCREAT);
  CHECK(ExitCode(absl::FailedPreconditionError("")) == EX_CANTCREAT);
  CHECK(ExitCode(absl::AbortedError("")) == EX_IOERR);
  CHECK(ExitCode(absl::PermissionDeniedError("")) == EX_NOPERM);
  CHECK(ExitCode(absl::CancelledError("")) == 138);
  CHECK(ExitCode(absl::InternalError("")) == 1);
  CHECK(ExitCode(absl::ResourceExhaustedError("out of memory")) == 1);
  CHECK(ExitCode(absl::OutOfRangeError("")) == 1);
  CHECK(ExitCode(NothingLeftToDo("")) == 0);
}

}  // namespace
}  // namespace official::misc
