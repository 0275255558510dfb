#include "utils/misc/exit_code.h"

namespace official::misc {
namespace {

constexpr char kNothingLeft[] = "official.nothing_left";

}  // namespace

absl::Status NothingLeftToDo(absl::string_view message) {
  absl::Status status = absl::CancelledError(message);
  status.SetPayload(kNothingLeft, {});
  return status;
}

int ExitCode(const absl::Status& status) {
  if (status.GetPayload(kNothingLeft)) return 0;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return kExitBadFlags;
    case absl::StatusCode::kDataLoss:
      return kExitBadData;
    case absl::StatusCode::kNotFound:
      return kExitNoInput;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return kExitCannotCreate;
    case absl::StatusCode::kAborted:
      return kExitIoError;
    case absl::StatusCode::kPermissionDenied:
      return kExitNoPermission;
    case absl::StatusCode::kCancelled:
      return kExitResumeMe;
    default:
      return kExitFailed;
  }
}

}  // namespace official::misc
