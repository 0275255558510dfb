// What a client asks of the servers that run the tasks of its cluster, and what a server lets it ask for.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/flags/command_line.h"

namespace official::run {

// Job: the program of all tasks and their flags, by name and value. It has no path and no environment: a server runs
// its own program.
struct Job {
  std::string program;
  std::string version;
  std::vector<std::pair<std::string, std::string>> flags;
};

// Returns the job that a client's command line describes: the flags that it gives, but for those that are for one
// process alone (flags::FlagSpec::local). InvalidArgument if it gives words, which name files of this machine.
absl::StatusOr<Job> JobOf(const flags::CommandLine& client);

// The job as a message, and the job of such a message; InvalidArgument if it is none.
std::vector<std::string> PackJob(const Job& job);
absl::StatusOr<Job> UnpackJob(const std::vector<std::string>& message);

// Returns OK if a server with this command line may run the job. InvalidArgument if the client has another program or
// version, or gives a flag that the program does not have, that is for one process alone, or that the server's own
// command line gives.
absl::Status CheckJob(const Job& job, const flags::CommandLine& server);

// Returns the arguments of a process that runs a task: the flags of the server, but for --serve, and those of the job.
std::vector<std::string> ArgumentsOf(const Job& job, const flags::CommandLine& server);

// Returns a text of the other side with spaces in place of its control characters, so that it stays one line of the
// log.
std::string OneLine(std::string text);

}  // namespace official::run
