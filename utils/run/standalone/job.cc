#include "utils/run/standalone/job.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/flags/flag_value.h"
#include "utils/misc/text.h"
#include "utils/misc/version.h"

namespace official::run {
namespace {

constexpr char kJobMessage[] = "job";
constexpr size_t kFieldsBeforeFlags = 3;

std::string VersionOf(const flags::CommandLine& command_line) {
  return absl::StrCat(misc::kVersion, " of commit ", command_line.commit());
}

// All flags of a command line, or those that it gives.
std::map<std::string, const flags::CommandLine::Flag*> FlagsOf(const flags::CommandLine& command_line,
                                                               bool only_given) {
  std::map<std::string, const flags::CommandLine::Flag*> flags;
  for (const flags::CommandLine::Group& group : command_line.groups()) {
    for (const flags::CommandLine::Flag& flag : group.flags) {
      if (flag.given || !only_given) flags[std::string(flag.spec.name)] = &flag;
    }
  }
  return flags;
}

// True for a flag that the owner of a server has written, be it the default in a file of flags.
bool IsFixed(const flags::CommandLine::Flag& flag) { return flag.given || !flag.where.empty(); }

std::string Argument(absl::string_view name, absl::string_view value) { return absl::StrCat("--", name, "=", value); }

}  // namespace

absl::StatusOr<Job> JobOf(const flags::CommandLine& client) {
  if (!client.words().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the word '", misc::Printable(client.words()[0]),
                                                   "' is for this machine, and --remote_cluster has others do the "
                                                   "work; leave one of them out"));
  }
  Job job = {.program = client.program(), .version = VersionOf(client), .flags = {}};
  for (const auto& [name, flag] : FlagsOf(client, /*only_given=*/true)) {
    if (!flag->spec.local) job.flags.emplace_back(name, flags::ValueText(*flag));
  }
  return job;
}

std::vector<std::string> PackJob(const Job& job) {
  std::vector<std::string> message = {kJobMessage, job.program, job.version};
  for (const auto& [name, value] : job.flags) {
    message.push_back(name);
    message.push_back(value);
  }
  return message;
}

absl::StatusOr<Job> UnpackJob(const std::vector<std::string>& message) {
  if (message.size() < kFieldsBeforeFlags || message[0] != kJobMessage ||
      (message.size() - kFieldsBeforeFlags) % 2 != 0) {
    return absl::InvalidArgumentError("the client sends no job");
  }
  Job job = {.program = message[1], .version = message[2], .flags = {}};
  for (size_t i = kFieldsBeforeFlags; i < message.size(); i += 2) job.flags.emplace_back(message[i], message[i + 1]);
  return job;
}

absl::Status CheckJob(const Job& job, const flags::CommandLine& server) {
  if (job.program != server.program()) {
    return absl::InvalidArgumentError(absl::StrCat("it runs ", server.program(), ", and the client is ",
                                                   misc::Printable(job.program), "; start the same program as both"));
  }
  if (const std::string version = VersionOf(server); job.version != version) {
    return absl::InvalidArgumentError(absl::StrCat("it has version ", version, ", and the client has ",
                                                   misc::Printable(job.version), "; start the same program as both"));
  }
  const auto flags = FlagsOf(server, /*only_given=*/false);
  for (const auto& [name, value] : job.flags) {
    const auto found = flags.find(name);
    const std::string flag = absl::StrCat("flag ", misc::Printable(Argument(name, value)), ": ");
    if (found == flags.end()) return absl::InvalidArgumentError(absl::StrCat(flag, "there is no such flag"));
    if (found->second->spec.local) {
      return absl::InvalidArgumentError(absl::StrCat(flag, "a client may not give it; give it to the server"));
    }
    if (IsFixed(*found->second)) {
      return absl::InvalidArgumentError(absl::StrCat(flag, "the server was started with ",
                                                     misc::Printable(Argument(name, flags::ValueText(*found->second))),
                                                     ", which no client changes; leave it out"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> ArgumentsOf(const Job& job, const flags::CommandLine& server) {
  std::vector<std::string> arguments;
  for (const auto& [name, flag] : FlagsOf(server, /*only_given=*/false)) {
    const std::string value = flags::ValueText(*flag);
    const bool is_empty_default = !flag->given && value.empty();  // --predict= is for flag files alone
    if (IsFixed(*flag) && name != "serve" && !is_empty_default) arguments.push_back(Argument(name, value));
  }
  for (const auto& [name, value] : job.flags) arguments.push_back(Argument(name, value));
  return arguments;
}

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return text;
}

}  // namespace official::run
