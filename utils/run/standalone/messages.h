// The messages between a client and a server, beside the job (job.h): a client offers a job, the server accepts it or
// says why not; when all servers have accepted, the client starts the tasks, and gets their output and their ends.
#pragma once

namespace official::run {

// Of the client.
inline constexpr char kStartMessage[] = "start";  // and the TF_CONFIG of the task
inline constexpr char kStopMessage[] = "stop";    // and the number of the signal that stops it
inline constexpr char kSaveMessage[] = "save";    // the task is to save a checkpoint and continue

// Of the server.
inline constexpr char kAcceptedMessage[] = "accepted";               // and the port that the task can listen at
inline constexpr char kRefusedMessage[] = "refused";                 // and why, for a job that is not allowed
inline constexpr char kFailedMessage[] = "failed";                   // and why, for a system that lacks something
inline constexpr char kOutMessage[] = "out", kErrMessage[] = "err";  // and what the task has written
inline constexpr char kExitMessage[] = "exit", kSignalMessage[] = "signal";  // and the status or signal of its end

// From a stop to the end of the task, which saves a checkpoint; after that the server kills it.
inline constexpr int kStopWithinSeconds = 60;

}  // namespace official::run
