#include "utils/flags/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/flags/command_line_parser.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/network.h"
#include "utils/misc/text.h"

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

absl::Status CommandLine::CheckFirstWord() const {
  if (words_.empty()) return absl::OkStatus();
  const absl::string_view word = words_.front();
  const std::string shown = misc::Printable(word);
  for (absl::string_view dash : {"\u2013", "\u2014"}) {  // that some editors make of one or two -
    if (!absl::StartsWith(word, dash)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the word '", shown, "' begins with another dash than -; write --", shown.substr(dash.size())));
  }
  for (const absl::string_view value : {"true", "false", "t", "f", "1", "0"}) {
    if (!absl::EqualsIgnoreCase(value, word)) continue;
    const std::string example =
        boolean_before_words_.empty() ? "clean=true" : absl::StrCat(boolean_before_words_, "=", shown);
    return absl::InvalidArgumentError(absl::StrCat(
        "the word '", shown, "' does not belong to a flag; a boolean takes its value after =, as in --", example));
  }
  return absl::OkStatus();
}

std::string CommandLine::AllFlagsText() const {
  std::string text;
  for (const Group& group : groups_) {
    for (const Flag& flag : group.flags) {
      absl::StrAppend(&text, "--", flag.spec.name, "=", ValueText(flag), "\n");
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> CommandLine::FlagsOfAllWorkers() const {
  std::vector<std::pair<std::string, std::string>> flags;
  for (const Group& group : groups_) {
    for (const Flag& flag : group.flags) {
      if (!flag.spec.per_worker) flags.emplace_back(flag.spec.name, ValueText(flag));
    }
  }
  return flags;
}

std::vector<std::string> CommandLine::InputPaths() const {
  std::vector<std::string> paths = flag_files_;
  for (const Group& group : groups_) {
    for (const Flag& flag : group.flags) {
      if (const std::string path = ValueText(flag); flag.spec.input && !path.empty()) paths.push_back(path);
    }
  }
  return paths;
}

namespace {

// The cluster that this process was started in, and its place there. Nothing if there is none, or if what describes it
// is wrong, which is told when the run begins.
std::optional<distribute::ClusterTask> PlaceInCluster(CommandLineParser& parser) {
  const CommandLine::Flag* const workers = parser.Find("workers");
  if (workers == nullptr) return std::nullopt;
  const auto environment = [](const char* name) { return std::getenv(name); };
  const auto launch = distribute::ReadLauncherEnv(environment, workers->flag->CurrentValue());
  if (!launch.ok() || !*launch) return std::nullopt;
  return (*launch)->started;
}

// False in a worker of a cluster that is not its chief, whose alone --model_dir is, and in a process whose tasks
// others run.
bool OwnsModelDir(CommandLineParser& parser) {
  for (const absl::string_view name : {"serve", "remote_cluster"}) {
    const CommandLine::Flag* const flag = parser.Find(name);
    if (flag != nullptr && !flag->flag->CurrentValue().empty()) return false;
  }
  const std::optional<distribute::ClusterTask> place = PlaceInCluster(parser);
  return !place || distribute::IsChief(place->cluster, place->task);
}

// True if the process is one of several that train.
bool HasOtherTasks(CommandLineParser& parser) {
  const std::optional<distribute::ClusterTask> place = PlaceInCluster(parser);
  return place && place->cluster.NumWorkers() + place->cluster.NumTasks(distribute::kPs) > 1;
}

std::string ModelDir(CommandLineParser& parser) { return parser.Find("model_dir")->flag->CurrentValue(); }

// All flags of the training in --model_dir. Nothing if this run does not go on from there.
FlagValues FlagsToGoOnFrom(CommandLineParser& parser) {
  const CommandLine::Flag* const clean = parser.Find("clean");
  const CommandLine::Flag* const resume = parser.Find("resume");
  const bool answers = parser.RequestEndsParsing() || parser.request() == CommandLine::Request::kEnvironment;
  if (answers || !OwnsModelDir(parser)) return {};
  if ((clean != nullptr && clean->flag->CurrentValue() == "true") ||
      (resume != nullptr && resume->flag->CurrentValue() == "never")) {
    return {};
  }
  return FlagsOfTraining(ModelDir(parser));
}

// Those of `all` that are network flags. Values that the flag could not have now are left out.
FlagValues NetworkOf(const FlagValues& all, const Program& program, CommandLineParser& parser) {
  FlagValues trained;
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

// Of the values of a training those that this run takes, if its command line does not give others: all if it uses what
// was trained in place of training, the network's if it trains and exports.
FlagValues Taken(const Program& program, CommandLineParser& parser, const FlagValues& trained) {
  const auto is_set = [&](absl::string_view name) {
    const CommandLine::Flag* const flag = parser.Find(name);
    return flag != nullptr && flag->flag->CurrentValue() != flag->default_value;
  };
  if (!program.shared_flags || is_set("predict") || is_set("eval_only")) return trained;
  FlagValues taken;
  for (const NetworkFlag& flag : program.network) {
    const auto found = trained.find(flag.name);
    if (found == trained.end()) continue;
    if (is_set("export_dir")) {
      taken[flag.name] = flag.appends ? flag.Part(found->second) : found->second;
    } else if (flag.IsLeftToData(parser.Find(flag.name)->default_value)) {
      taken.insert(*found);
    }
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

// With --batch_size=auto: sets the flag to the number of the training that the run goes on from, if there is one.
// Returns true if it did.
bool TakeBatchSize(const FlagValues& training, CommandLine::Flag& flag) {
  const auto trained = training.find(flag.spec.name);
  const std::string present = ValueText(flag);
  if (trained == training.end() || present != kAutoBatchSize) return false;
  if (trained->second != present && SetValue(flag, trained->second).ok() && CheckValue(flag).ok()) {
    flag.origin = absl::StrCat("training in --model_dir, in place of ", present);
    return true;
  }
  SetValue(flag, present).IgnoreError();
  return false;
}

}  // namespace

absl::StatusOr<CommandLine> CommandLine::Parse(const Program& program, const std::vector<std::string>& arguments) {
  FlagFiles flag_files;
  const Defaults defaults = AllDefaults(program, arguments, flag_files);
  const auto parse = [&] { return CommandLineParser(program, defaults, flag_files).Parse(arguments); };
  if (program.network.empty()) return parse();
  CommandLineParser untrained(program, defaults, flag_files);
  untrained.ParseArguments(arguments).IgnoreError();
  const FlagValues training = FlagsToGoOnFrom(untrained);
  const FlagValues trained = NetworkOf(training, program, untrained);
  // Other tasks do not see the directory.
  const bool takes_batch_size = !HasOtherTasks(untrained);
  const FlagValues taken = Taken(program, untrained, trained);
  const std::string model_dir = ModelDir(untrained);
  const auto with_batch_size = [&](absl::StatusOr<CommandLine> parsed) {
    if (!parsed.ok() || !parsed->has(kBatchSize) || !takes_batch_size) return parsed;
    const auto [group, index] = parsed->index_.at(kBatchSize);
    const Flag& flag = parsed->groups_[group].flags[index];
    if (!TakeBatchSize(training, parsed->groups_[group].flags[index])) return parsed;
    absl::StrAppend(&parsed->taken_from_training_, parsed->taken_from_training_.empty() ? "" : " ", "--", kBatchSize,
                    "=", ValueText(flag));
    return parsed;
  };
  if (trained.empty() || !FitTogether(program, arguments, flag_files, trained)) return with_batch_size(parse());

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
  return with_batch_size(std::move(parsed));
}

}  // namespace official::flags
