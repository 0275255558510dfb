// The two macros that pass an absl::Status up.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define OFFICIAL_CONCAT_INNER(a, b) a##b
#define OFFICIAL_CONCAT(a, b) OFFICIAL_CONCAT_INNER(a, b)

// Returns from the calling function if `expression`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expression)                    \
  do {                                                 \
    absl::Status official_status = (expression);       \
    if (!official_status.ok()) return official_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x is the value of the absl::StatusOr that F returns, or the caller returns its status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(OFFICIAL_CONCAT(status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(name, target, expression) \
  auto name = (expression);                              \
  if (!name.ok()) return std::move(name).status();       \
  target = std::move(name).value()
