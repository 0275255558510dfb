// What workers (server_client.h) and parameter servers (parameter_server.h) tell each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "utils/train/config.h"
#include "utils/train/model.h"
#include "utils/train/step.h"

namespace official::train {

// The first byte of a request. Tensors follow one another without names: client and server have built the same graph.
// An answer has the global step, 0 where that is not placed, the number of dropped gradients, and what was asked for.
enum class Request : char {
  kSendVariables = 'S',  // the global step and the values to begin with
  kReadVariables = 'R',  // the step that the server must have reached
  kReadAll = 'A',        // the same; also for slots and the positions of several workers
  kUpdate = 'U',         // the step of the variables that were read, the position in the data that follows, the
                         // learning rate and the sums; the answer: 1, or 0 if they are dropped
  kTakeToken = 'T',      // the answer: the token, or kNone and the worker that the step lacks, or kNone
  kCountSteps = 'C',
  kRest = 'E',     // the worker gives no more gradients, and steps do not wait for it
  kTakePart = 'P'  // what the worker trains on; the answer: the state of the job alone
};

inline constexpr int64_t kNone = -1;
inline constexpr size_t kCountsBytes = 2 * sizeof(int64_t);  // at the beginning of an answer

// Builds the update of a server, with so many rows of each table: what it holds is also what
// the messages to it have. Errors: those of BuildModel.
absl::StatusOr<BuiltModel> BuildServerUpdate(const Model& model, const EstimatorConfig& config,
                                             const data::ElementSpec& spec, int num_servers, int server,
                                             const RowCounts& rows);

}  // namespace official::train
