#include "utils/flags/command_line.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/flags/command_line_parser.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/network.h"

namespace official::flags {

std::vector<std::string> NotesOnUnusedFlags(const CommandLine& command_line) {
  std::vector<std::string> notes;
  for (const CommandLine::Group& group : command_line.groups()) {
    for (const CommandLine::Flag& flag : group.flags) {
      if (!flag.given || flag.spec.not_used.empty()) continue;
      notes.push_back(absl::StrCat("--", flag.spec.name, " has no effect here: ", flag.spec.not_used));
    }
  }
  return notes;
}

std::string HelpOf(const CommandLine::Flag& flag) {
  if (!flag.spec.not_used.empty()) return absl::StrCat("Not used: ", flag.spec.not_used, ".");
  return flag.spec.help.empty() ? flag.flag->Help() : flag.spec.help;
}

absl::string_view CommandLine::rehearsal() const {
  switch (request_) {
    case Request::kPrintSchedule:
      return "print_schedule";
    case Request::kDryRun:
      return "dry_run";
    case Request::kFindLr:
      return "find_lr";
    default:
      return "";
  }
}

bool CommandLine::given(absl::string_view name) const { return Find(name).given; }

const CommandLine::Flag& CommandLine::Find(absl::string_view name) const {
  const auto found = index_.find(name);
  OFFICIAL_CHECK(found != index_.end()) << "no flag named " << name << " in the groups of this program";
  return groups_[found->second.first].flags[found->second.second];
}

std::string CommandLine::AllFlagsText() const {
  std::string text;
  for (const Group& group : groups_) {
    for (const Flag& flag : group.flags) {
      absl::StrAppend(&text, "--", flag.spec.name, "=", flag.flag->CurrentValue(), "\n");
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> CommandLine::FlagsOfAllWorkers() const {
  std::vector<std::pair<std::string, std::string>> flags;
  for (const Group& group : groups_) {
    for (const Flag& flag : group.flags) {
      if (!flag.spec.per_worker) flags.emplace_back(flag.spec.name, flag.flag->CurrentValue());
    }
  }
  return flags;
}

namespace {

// False in a worker of a cluster that is not its chief, whose alone --model_dir is, and in a process whose tasks
// others run.
bool OwnsModelDir(CommandLineParser& parser) {
  const CommandLine::Flag* const workers = parser.Find("workers");
  if (workers == nullptr) return true;
  for (const absl::string_view name : {"serve", "remote_cluster"}) {
    const CommandLine::Flag* const flag = parser.Find(name);
    if (flag != nullptr && !flag->flag->CurrentValue().empty()) return false;
  }
  const auto environment = [](const char* name) { return std::getenv(name); };
  const auto launch = distribute::ReadLauncherEnv(environment, workers->flag->CurrentValue());
  // What is wrong with the environment is told when the run begins.
  return !launch.ok() || !*launch || distribute::IsChief((*launch)->started.cluster, (*launch)->started.task);
}

std::string ModelDir(CommandLineParser& parser) { return parser.Find("model_dir")->flag->CurrentValue(); }

// What the network flags were in the training in --model_dir, of which those are left out that the flag could not
// have now. Nothing if this run does not go on from there.
FlagValues Trained(const Program& program, CommandLineParser& parser) {
  FlagValues trained;
  const CommandLine::Flag* const clean = parser.Find("clean");
  const CommandLine::Flag* const resume = parser.Find("resume");
  const bool answers = parser.RequestEndsParsing() || parser.request() == CommandLine::Request::kEnvironment;
  if (program.network.empty() || answers || !OwnsModelDir(parser)) return trained;
  if ((clean != nullptr && clean->flag->CurrentValue() == "true") ||
      (resume != nullptr && resume->flag->CurrentValue() == "never")) {
    return trained;
  }
  const FlagValues all = FlagsOfTraining(ModelDir(parser));
  for (const NetworkFlag& network_flag : program.network) {
    const auto found = all.find(network_flag.name);
    if (found == all.end()) continue;
    CommandLine::Flag& flag = *parser.Find(network_flag.name);
    const std::string present = flag.flag->CurrentValue();
    if (SetValue(flag, found->second).ok() && CheckValue(flag).ok())
      trained.insert({found->first, flag.flag->CurrentValue()});
    SetValue(flag, present).IgnoreError();
  }
  return trained;
}

// Whether the flags make the program use what was trained, in place of training or besides.
bool UsesTraining(const Program& program, CommandLineParser& parser) {
  if (!program.shared_flags) return true;
  for (const absl::string_view name : {"predict", "eval_only", "export_dir"}) {
    const CommandLine::Flag* const flag = parser.Find(name);
    if (flag != nullptr && flag->flag->CurrentValue() != flag->default_value) return true;
  }
  return false;
}

// Of the values of a training those that this run takes, if its command line does not give others.
FlagValues Taken(const Program& program, CommandLineParser& parser, const FlagValues& trained) {
  if (UsesTraining(program, parser)) return trained;
  FlagValues taken;
  for (const NetworkFlag& flag : program.network) {
    const auto found = trained.find(flag.name);
    if (found != trained.end() && flag.IsLeftToData(parser.Find(flag.name)->default_value)) taken.insert(*found);
  }
  return taken;
}

// The defaults of the program under these arguments.
Defaults AllDefaults(const Program& program, const std::vector<std::string>& arguments, FlagFiles& flag_files,
                     const FlagValues& trained = {}) {
  Defaults defaults = program.defaults;
  if (program.dependent_defaults != nullptr) {
    // A first pass gives the other flags their values; whatever it finds wrong, a later one finds again.
    CommandLineParser(program, defaults, flag_files, trained).ParseArguments(arguments).IgnoreError();
    const Defaults dependent = program.dependent_defaults();
    defaults.insert(defaults.end(), dependent.begin(), dependent.end());
  }
  return defaults;
}

// Whether the values make a command line, in place of what the arguments give: those of a damaged file may not.
bool FitTogether(const Program& program, const std::vector<std::string>& arguments, FlagFiles& flag_files,
                 const FlagValues& trained) {
  std::vector<std::string> flags;
  for (const auto& [name, value] : trained) flags.push_back(absl::StrCat("--", name, "=", value));
  std::vector<std::string> words = arguments;
  words.insert(std::find(words.begin(), words.end(), "--"), flags.begin(), flags.end());
  return CommandLineParser(program, AllDefaults(program, words, flag_files), flag_files).Parse(words).ok();
}

}  // namespace

absl::StatusOr<CommandLine> CommandLine::Parse(const Program& program, const std::vector<std::string>& arguments) {
  FlagFiles flag_files;
  const Defaults defaults = AllDefaults(program, arguments, flag_files);
  const auto parse = [&] { return CommandLineParser(program, defaults, flag_files).Parse(arguments); };
  if (program.network.empty()) return parse();
  CommandLineParser untrained(program, defaults, flag_files);
  untrained.ParseArguments(arguments).IgnoreError();
  const FlagValues trained = Trained(program, untrained);
  const FlagValues taken = Taken(program, untrained, trained);
  const std::string model_dir = ModelDir(untrained);
  if (trained.empty() || !FitTogether(program, arguments, flag_files, trained)) return parse();

  absl::StatusOr<CommandLine> parsed = absl::UnknownError("not tried");
  if (!taken.empty()) {
    Defaults of_trained = AllDefaults(program, arguments, flag_files, taken);
    of_trained.emplace_back("model_dir", model_dir);  // where the values are from, whatever follows from them
    parsed = CommandLineParser(program, of_trained, flag_files, taken).Parse(arguments);
  }
  // They may not go with what the command line gives: then that is told, as if there were none, or it is compared
  // below.
  if (!parsed.ok()) parsed = parse();
  RETURN_IF_ERROR(parsed.status());
  FlagValues present;
  for (const NetworkFlag& flag : program.network) present[flag.name] = parsed->Find(flag.name).flag->CurrentValue();
  RETURN_IF_ERROR(CheckSameNetwork(model_dir, program.network, present, trained));
  return parsed;
}

}  // namespace official::flags
