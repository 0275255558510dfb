#include "utils/flags/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/flags/flag_file.h"
#include "utils/flags/general_flags.h"
#include "utils/flags/network.h"
#include "utils/flags/other_names.h"
#include "utils/flags/shared_groups.h"
#include "utils/misc/text.h"

namespace official::flags {
namespace {

enum class Kind { kBoolean, kInteger, kNumber, kList, kString };

template <typename T>
bool Holds(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<T>() || flag.IsOfType<std::optional<T>>();
}

Kind KindOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return Kind::kBoolean;
  if (Holds<int>(flag) || Holds<int64_t>(flag) || Holds<uint64_t>(flag)) return Kind::kInteger;
  if (Holds<double>(flag)) return Kind::kNumber;
  if (flag.IsOfType<std::vector<std::string>>()) return Kind::kList;
  OFFICIAL_CHECK(Holds<std::string>(flag))
      << "--" << flag.Name() << " is of a type that the command line does not know";
  return Kind::kString;
}

std::vector<std::string> ListItems(absl::string_view text) {
  std::vector<std::string> items;
  if (absl::StripAsciiWhitespace(text).empty()) return items;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    items.emplace_back(absl::StripAsciiWhitespace(item));
  }
  return items;
}

bool IsChoice(const FlagSpec& spec, absl::string_view value) {
  return std::find(spec.choices.begin(), spec.choices.end(), value) != spec.choices.end();
}

// The spelling that the program uses for a value written in another case.
std::string ProgramSpelling(const FlagSpec& spec, absl::string_view value) {
  if (!spec.word_for_zero.empty() && value == spec.word_for_zero) return "0";
  if (spec.any_case) {
    for (const absl::string_view choice : spec.choices) {
      if (absl::EqualsIgnoreCase(choice, value)) return std::string(choice);
    }
  }
  return std::string(value);
}

absl::Status AtPlace(const std::string& where, const absl::Status& status) {
  if (status.ok() || where.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// Many of them have blanks between, so that help can divide the line.
std::string Choices(const FlagSpec& spec) {
  return absl::StrCat("<", absl::StrJoin(spec.choices, spec.choices.size() > 5 ? " | " : "|"), ">");
}

// "; did you mean fp32?", for a value that is none of the choices; "" if nothing is like it.
std::string ChoiceHint(const FlagSpec& spec, absl::string_view value) {
  std::string meant;
  if (spec.name == "dtype") meant = std::string(DTypeInPlaceOf(value));
  const std::vector<std::string> nearest =
      misc::NearestNames(value, std::vector<std::string>(spec.choices.begin(), spec.choices.end()));
  if (meant.empty() && nearest.size() == 1) meant = nearest[0];
  return meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?");
}

// The largest value of an integer flag's type.
uint64_t MaxOf(const absl::CommandLineFlag& flag) {
  if (Holds<int>(flag)) return std::numeric_limits<int>::max();
  return Holds<int64_t>(flag) ? std::numeric_limits<int64_t>::max() : std::numeric_limits<uint64_t>::max();
}

// ", at most 2147483647", for an integer that is larger, if the flag's own range does not say it.
std::string SizeHint(const FlagSpec& spec, const absl::CommandLineFlag& flag, absl::string_view value) {
  double number = 0;
  if (KindOf(flag) != Kind::kInteger || std::isfinite(spec.range.max) || !absl::SimpleAtod(value, &number)) return "";
  return number > static_cast<double>(MaxOf(flag)) ? absl::StrCat(", at most ", MaxOf(flag)) : "";
}

}  // namespace

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

bool IsBoolean(const CommandLine::Flag& flag) { return KindOf(*flag.flag) == Kind::kBoolean; }

std::string DescribeValues(const CommandLine::Flag& flag) {
  const FlagSpec& spec = flag.spec;
  const std::string range = spec.range.ToString();
  const std::string comma_range =
      absl::StrCat(range.empty() ? "" : ", ", range, spec.word_for_zero.empty() ? "" : ", or ", spec.word_for_zero);
  switch (KindOf(*flag.flag)) {
    case Kind::kBoolean:
      return "a boolean";
    case Kind::kInteger:
      return absl::StrCat("an integer", comma_range);
    case Kind::kNumber:
      return absl::StrCat("a number", comma_range);
    case Kind::kList:
      return absl::StrCat("a comma-separated list", spec.choices.empty() ? "" : absl::StrCat(" of ", Choices(spec)));
    case Kind::kString:
      return spec.choices.empty() ? "a string" : absl::StrCat("one of ", Choices(spec));
  }
  return "";
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

using Defaults = std::vector<std::pair<std::string, std::string>>;

// The flag files of one command line, which is parsed several times: each is read once, since it may be a pipe.
class FlagFiles {
 public:
  absl::StatusOr<std::vector<FlagFileLine>> Read(const std::string& path) {
    const auto found = read_.find(path);
    if (found != read_.end()) return found->second;
    return read_.emplace(path, ReadFlagFile(path)).first->second;
  }

 private:
  std::map<std::string, absl::StatusOr<std::vector<FlagFileLine>>> read_;
};

class CommandLineParser {
 public:
  // `trained`: values of network flags that go before the defaults.
  CommandLineParser(const Program& program, const Defaults& defaults, FlagFiles& flag_files,
                    const FlagValues& trained = {})
      : program_(program), flag_files_(flag_files), trained_(trained) {
    result_.program_ = program.name;
    result_.commit_ = program.commit;
    AddGroup(program.flags);
    for (const FlagGroup& group : program.more_flags) AddGroup(group);
    if (program.shared_flags) {
      for (const FlagGroup& group : SharedGroups()) AddGroup(group);
    }
    for (const auto& [name, help] : program.help) {
      Flag* flag = Find(name);
      OFFICIAL_CHECK(flag != nullptr) << program.name << " has a help text for --" << name << ", which does not exist";
      flag->spec.help = help;
      flag->spec.not_used.clear();
    }
    for (const auto& [name, why] : program.not_used) {
      Flag* flag = Find(name);
      OFFICIAL_CHECK(flag != nullptr) << program.name << " does not use --" << name << ", which does not exist";
      flag->spec.not_used = why;
    }
    for (const NetworkFlag& flag : program.network) {
      OFFICIAL_CHECK(Find(flag.name) != nullptr)
          << program.name << " has a network that depends on --" << flag.name << ", which does not exist";
    }
    for (size_t i = 0; i < defaults.size(); ++i) {
      const auto& [name, value] = defaults[i];
      Flag* flag = Find(name);
      OFFICIAL_CHECK(flag != nullptr) << program.name << " has a default for --" << name << ", which does not exist";
      const absl::Status status = Set(*flag, value);
      OFFICIAL_CHECK(status.ok()) << status;
      flag->default_value = flag->flag->CurrentValue();
      if (i >= program.defaults.size()) flag->origin = "default, which other flags decide";
    }
    for (const auto& [name, value] : trained_) Set(*Find(name), value).IgnoreError();  // Trained has tried them
  }

  // Sets the flags as given, without the checks that look at values.
  absl::Status ParseArguments(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i] == "--") {
        result_.words_.insert(result_.words_.end(), arguments.begin() + i + 1, arguments.end());
        break;
      }
      if (!absl::StartsWith(arguments[i], "-") || arguments[i] == "-") {
        result_.words_.push_back(arguments[i]);
        continue;
      }
      const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
      bool took_next = false;
      RETURN_IF_ERROR(ParseFlag(arguments[i], next, &took_next, {}));
      if (RequestEndsParsing()) return absl::OkStatus();
      if (took_next) ++i;
    }
    TakeModelDirOfTfConfig();
    return absl::OkStatus();
  }

  // As TensorFlow's RunConfig: where the command line names no directory, that of TF_CONFIG counts as given.
  void TakeModelDirOfTfConfig() {
    const char* const text = std::getenv("TF_CONFIG");
    Flag* const flag = Find("model_dir");
    if (text == nullptr || flag == nullptr || flag->given || Find("workers") == nullptr) return;
    // What is wrong with it is told when the run begins.
    const absl::StatusOr<std::string> model_dir = distribute::ModelDirOfTfConfig(text);
    if (model_dir.ok() && !model_dir->empty()) flag->given = Set(*flag, *model_dir).ok();
  }

  // False in a worker of a cluster that is not its chief, whose alone --model_dir is, and in a process whose tasks
  // others run.
  bool OwnsModelDir() {
    const Flag* const workers = Find("workers");
    if (workers == nullptr) return true;
    for (const absl::string_view name : {"serve", "remote_cluster"}) {
      const Flag* const flag = Find(name);
      if (flag != nullptr && !flag->flag->CurrentValue().empty()) return false;
    }
    const auto environment = [](const char* name) { return std::getenv(name); };
    const auto launch = distribute::ReadLauncherEnv(environment, workers->flag->CurrentValue());
    // What is wrong with the environment is told when the run begins.
    return !launch.ok() || !*launch || distribute::IsChief((*launch)->started.cluster, (*launch)->started.task);
  }

  // What the network flags were in the training in --model_dir, of which those are left out that the flag could not
  // have now. Nothing if this run does not go on from there.
  FlagValues Trained() {
    FlagValues trained;
    const Flag* const clean = Find("clean");
    const Flag* const resume = Find("resume");
    const bool answers = RequestEndsParsing() || result_.request_ == CommandLine::Request::kEnvironment;
    if (program_.network.empty() || answers || !OwnsModelDir()) return trained;
    if ((clean != nullptr && clean->flag->CurrentValue() == "true") ||
        (resume != nullptr && resume->flag->CurrentValue() == "never")) {
      return trained;
    }
    const FlagValues all = FlagsOfTraining(ModelDir());
    for (const NetworkFlag& network_flag : program_.network) {
      const auto found = all.find(network_flag.name);
      if (found == all.end()) continue;
      Flag& flag = *Find(network_flag.name);
      const std::string present = flag.flag->CurrentValue();
      if (Set(flag, found->second).ok() && Check(flag).ok()) trained.insert({found->first, flag.flag->CurrentValue()});
      Set(flag, present).IgnoreError();
    }
    return trained;
  }

  // Of the values of a training those that this run takes, if its command line does not give others.
  FlagValues Taken(const FlagValues& trained) {
    if (UsesTraining()) return trained;
    FlagValues taken;
    for (const NetworkFlag& flag : program_.network) {
      const auto found = trained.find(flag.name);
      if (found != trained.end() && flag.IsLeftToData(Find(flag.name)->default_value)) taken.insert(*found);
    }
    return taken;
  }

  std::string ModelDir() { return Find("model_dir")->flag->CurrentValue(); }

  // Whether the flags make the program use what was trained, in place of training or besides.
  bool UsesTraining() {
    if (!program_.shared_flags) return true;
    for (const absl::string_view name : {"predict", "eval_only", "export_dir"}) {
      const Flag* const flag = Find(name);
      if (flag != nullptr && flag->flag->CurrentValue() != flag->default_value) return true;
    }
    return false;
  }

  absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments) {
    RETURN_IF_ERROR(ParseArguments(arguments));
    if (RequestEndsParsing()) return std::move(result_);
    for (const NetworkFlag& network_flag : program_.network) TakeFromTraining(network_flag);
    for (const UnknownFlag& unknown : unknown_) {
      const bool excused = undefok_.contains(unknown.name) ||
                           (absl::StartsWith(unknown.name, "no") && undefok_.contains(unknown.name.substr(2)));
      if (!excused) return AtPlace(unknown.where, UnknownError(unknown.name));
    }
    if (program_.words.empty() && !result_.words_.empty()) return WordError();
    const bool runs = result_.request_ != CommandLine::Request::kEnvironment;
    for (const CommandLine::Group& group : result_.groups_) {
      for (const Flag& flag : group.flags) {
        if (runs || flag.given) RETURN_IF_ERROR(AtPlace(flag.where, Check(flag)));
      }
    }
    if (!runs) return std::move(result_);
    for (const Validator& validator : validators_) RETURN_IF_ERROR(validator(result_));
    RETURN_IF_ERROR(CheckRehearsal());
    return std::move(result_);
  }

 private:
  using Flag = CommandLine::Flag;

  // Completes a flag's value by that of the training, and notes it.
  void TakeFromTraining(const NetworkFlag& network_flag) {
    const auto trained = trained_.find(network_flag.name);
    if (trained == trained_.end() || trained->second.empty()) return;
    Flag& flag = *Find(network_flag.name);
    if (flag.given && !network_flag.appends) return;
    if (flag.given) Set(flag, absl::StrCat(trained->second, ",", flag.flag->CurrentValue())).IgnoreError();
    if (flag.given) {
      absl::StrAppend(&flag.origin, ", after that of the training in --model_dir");
    } else if (flag.flag->CurrentValue() == trained->second) {
      flag.origin = "training in --model_dir";
    }
    if (trained->second == flag.default_value) return;
    absl::StrAppend(&result_.taken_from_training_, result_.taken_from_training_.empty() ? "" : " ", "--",
                    network_flag.name, "=", misc::Printable(trained->second));
  }

  struct UnknownFlag {
    std::string name;
    std::string where;
  };

  void AddGroup(const FlagGroup& group) {
    CommandLine::Group added{group.name, {}};
    const int group_index = static_cast<int>(result_.groups_.size());
    for (const FlagSpec& spec : group.flags) {
      absl::CommandLineFlag* flag = absl::FindCommandLineFlag(spec.name);
      OFFICIAL_CHECK(flag != nullptr) << "--" << spec.name << " has no ABSL_FLAG";
      std::string error;
      OFFICIAL_CHECK(flag->ParseFrom(flag->DefaultValue(), &error)) << "default of --" << spec.name << ": " << error;
      for (const absl::string_view name : {spec.name, spec.short_name}) {
        if (name.empty()) continue;
        const std::pair<int, int> place(group_index, static_cast<int>(added.flags.size()));
        OFFICIAL_CHECK(result_.index_.emplace(name, place).second) << "two flags are called --" << name;
      }
      added.flags.push_back({.spec = spec, .flag = flag, .default_value = flag->DefaultValue(), .origin = "default"});
    }
    if (!added.flags.empty()) result_.groups_.push_back(std::move(added));
    validators_.insert(validators_.end(), group.validators.begin(), group.validators.end());
  }

  Flag* Find(absl::string_view name) {
    const auto found = result_.index_.find(name);
    if (found == result_.index_.end()) return nullptr;
    return &result_.groups_[found->second.first].flags[found->second.second];
  }

  // A file that is open on the way to the present line; `where` is that line, empty on the command line.
  struct Place {
    std::vector<std::filesystem::path> open_files;
    std::string where;
  };

  // One word that begins with a dash. `next` is the word after it, null if there is none that could be its value.
  absl::Status ParseFlag(absl::string_view word, const std::string* next, bool* took_next, const Place& place) {
    if (!absl::ConsumePrefix(&word, "--")) absl::ConsumePrefix(&word, "-");
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    std::optional<absl::string_view> value;
    if (equals != absl::string_view::npos) value = word.substr(equals + 1);

    if (const auto request = RequestOf(name); request.has_value()) {
      result_.request_ = *request;
      if (*request != CommandLine::Request::kCompletion) return absl::OkStatus();
      *took_next = !value.has_value() && next != nullptr;
      return AtPlace(place.where, ChooseShell(*took_next ? absl::string_view(*next) : value.value_or("")));
    }
    Flag* flag = Find(name);
    if (flag != nullptr && IsBoolean(*flag)) return AtPlace(place.where, Give(*flag, value.value_or("true"), place));
    if (flag == nullptr && absl::StartsWith(name, "no")) {
      if (Flag* positive = Find(name.substr(2)); positive != nullptr) {
        if (IsBoolean(*positive) && !value.has_value()) return Give(*positive, "false", place);
        return AtPlace(place.where, NegationError(*positive, name));
      }
    }
    const bool is_list_of_names = name == "undefok";
    const bool is_flag_file = name == "flagfile";
    if (flag == nullptr && !is_list_of_names && !is_flag_file) {
      unknown_.push_back({std::string(name), place.where});
      return absl::OkStatus();
    }
    if (!value.has_value()) {
      if (next == nullptr || *next == "--" || IsFlag(*next)) {
        return AtPlace(place.where, NoValueError(name, flag, next));
      }
      value = *next;
      *took_next = true;
    }
    if (is_flag_file) return AtPlace(place.where, ParseFlagFile(std::string(*value), place));
    if (is_list_of_names) {
      for (const std::string& undefined : ListItems(*value)) undefok_.insert(undefined);
      return absl::OkStatus();
    }
    return AtPlace(place.where, Give(*flag, *value, place));
  }

  absl::Status CheckRehearsal() const {
    if (result_.rehearsal().empty()) return absl::OkStatus();
    for (const absl::string_view name : {"predict", "serve", "remote_cluster"}) {
      if (!result_.has(name) || !result_.given(name)) continue;
      return FlagError(name, absl::StrCat("cannot be combined with --", result_.rehearsal(),
                                          ", which is for a training of this process"));
    }
    return absl::OkStatus();
  }

  absl::Status ChooseShell(absl::string_view shell) {
    if (std::find(kShells.begin(), kShells.end(), shell) == kShells.end()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --completion=", misc::Printable(shell), ": needs one of <",
                                                     absl::StrJoin(kShells, "|"), ">"));
    }
    result_.shell_ = std::string(shell);
    return absl::OkStatus();
  }

  absl::Status ParseFlagFile(const std::string& path, Place place) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
    std::vector<std::filesystem::path>& open_files = place.open_files;
    if (std::find(open_files.begin(), open_files.end(), resolved) != open_files.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --flagfile=", misc::Printable(path), ": the file includes itself"));
    }
    open_files.push_back(resolved);
    ASSIGN_OR_RETURN(const std::vector<FlagFileLine> lines, flag_files_.Read(path));
    for (const FlagFileLine& line : lines) {
      place.where = line.where;
      bool took_next = false;
      RETURN_IF_ERROR(ParseFlag(line.text, nullptr, &took_next, place));
    }
    return absl::OkStatus();
  }

  // Sets a flag for the user.
  absl::Status Give(Flag& flag, absl::string_view value, const Place& place) {
    RETURN_IF_ERROR(Set(flag, value));
    flag.where = place.where;
    flag.origin = place.where.empty() ? "command line" : place.where;
    if (place.open_files.empty() || flag.flag->CurrentValue() != flag.default_value) flag.given = true;
    return absl::OkStatus();
  }

  absl::Status Set(Flag& flag, absl::string_view value) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --", flag.spec.name, "=", misc::Printable(value), ": ", why));
    };
    // Values end up in messages, logs and flag files, one per line.
    if (std::any_of(value.begin(), value.end(), absl::ascii_iscntrl))
      return refuse("control characters are not allowed");
    const Kind kind = KindOf(*flag.flag);
    std::vector<std::string> items =
        kind == Kind::kList ? ListItems(value) : std::vector<std::string>{std::string(value)};
    for (std::string& item : items) item = ProgramSpelling(flag.spec, item);
    std::string error;
    if (flag.flag->ParseFrom(absl::StrJoin(items, ","), &error)) return absl::OkStatus();
    // Abseil's own text does not say what would be right.
    return refuse(absl::StrCat("needs ", DescribeValues(flag), SizeHint(flag.spec, *flag.flag, value)));
  }

  absl::Status Check(const Flag& flag) const {
    const FlagSpec& spec = flag.spec;
    const std::string value = flag.flag->CurrentValue();
    if (spec.required && value.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", spec.name, " is required: ", HelpOf(flag)));
    }
    switch (KindOf(*flag.flag)) {
      case Kind::kInteger:
      case Kind::kNumber: {
        double number = 0;
        const bool unset = value.empty();
        if (unset || (absl::SimpleAtod(value, &number) && spec.range.Contains(number))) break;
        return FlagError(spec.name, absl::StrCat("needs ", DescribeValues(flag)));
      }
      case Kind::kString: {
        if (absl::StartsWith(value, "gs://")) {
          return FlagError(spec.name,
                           "Google Cloud Storage is neither read nor written; copy it to a directory of this "
                           "machine (gcloud storage cp -r), or mount it (gcsfuse), and give that");
        }
        const bool unset = value.empty() && !flag.flag->IsOfType<std::string>();
        if (unset || spec.choices.empty() || IsChoice(spec, value)) break;
        return FlagError(spec.name, absl::StrCat("needs ", DescribeValues(flag), ChoiceHint(spec, value)));
      }
      case Kind::kList:
        for (const std::string& item : ListItems(value)) {
          if (spec.choices.empty() || IsChoice(spec, item)) continue;
          return FlagError(spec.name, absl::StrCat("needs ", DescribeValues(flag), "; '", misc::Printable(item),
                                                   "' is not one of them", ChoiceHint(spec, item)));
        }
        break;
      case Kind::kBoolean:
        break;
    }
    return absl::OkStatus();
  }

  std::optional<CommandLine::Request> RequestOf(absl::string_view name) const {
    if (name == "help" || name == "h" || name == "?" || name == "helpshort") return CommandLine::Request::kHelp;
    if (name == "helpfull") return CommandLine::Request::kHelpFull;
    if (name == "version") return CommandLine::Request::kVersion;
    if (name == "completion") return CommandLine::Request::kCompletion;
    if (name == "dump_config") return CommandLine::Request::kDumpConfig;
    if (name == "print_schedule" && program_.rehearses) return CommandLine::Request::kPrintSchedule;
    if (name == "dry_run" && program_.rehearses) return CommandLine::Request::kDryRun;
    if (name == "find_lr" && program_.rehearses) return CommandLine::Request::kFindLr;
    if (name == "env" && program_.environment != nullptr) return CommandLine::Request::kEnvironment;
    return std::nullopt;
  }

  // Whether what was found so far answers without the rest of the command line.
  bool RequestEndsParsing() const {
    switch (result_.request_) {
      case CommandLine::Request::kHelp:
      case CommandLine::Request::kHelpFull:
      case CommandLine::Request::kVersion:
      case CommandLine::Request::kCompletion:
        return true;
      case CommandLine::Request::kRun:
      case CommandLine::Request::kDumpConfig:
      case CommandLine::Request::kEnvironment:
      case CommandLine::Request::kPrintSchedule:
      case CommandLine::Request::kDryRun:
      case CommandLine::Request::kFindLr:
        return false;
    }
    return false;
  }

  // Whether a word is one of this program's flags, so that it cannot be the value of the one before.
  bool IsFlag(absl::string_view word) {
    if (!absl::ConsumePrefix(&word, "-")) return false;
    absl::ConsumePrefix(&word, "-");
    const absl::string_view name = word.substr(0, word.find('='));
    if (Find(name) != nullptr || RequestOf(name).has_value() || name == "flagfile" || name == "undefok") return true;
    if (!absl::StartsWith(name, "no")) return false;
    const Flag* positive = Find(name.substr(2));
    return positive != nullptr && IsBoolean(*positive);
  }

  absl::Status NoValueError(absl::string_view name, const Flag* flag, const std::string* next) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --", name, ": needs a value", flag == nullptr ? "" : absl::StrCat(", ", DescribeValues(*flag)),
        next == nullptr ? absl::StrCat(" (--", name, "=...)")
                        : absl::StrCat("; ", misc::Printable(*next), " is the next flag")));
  }

  absl::Status NegationError(const Flag& flag, absl::string_view name) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --", name, ": ",
        IsBoolean(flag) ? absl::StrCat("takes no value; write --", name, " or --", flag.spec.name, "=false")
                        : absl::StrCat("--", flag.spec.name, " is not a boolean, it needs ", DescribeValues(flag))));
  }

  absl::Status UnknownError(const std::string& name) const {
    std::vector<std::string> known;
    for (const GeneralFlag& flag : GeneralFlags(program_)) known.emplace_back(flag.name);
    for (const CommandLine::Group& group : result_.groups_) {
      for (const Flag& flag : group.flags) {
        known.emplace_back(flag.spec.name);
        if (!flag.spec.short_name.empty()) known.emplace_back(flag.spec.short_name);
        if (IsBoolean(flag) && absl::StartsWith(name, "no")) known.push_back(absl::StrCat("no", flag.spec.name));
      }
    }
    std::string meant = InPlaceOf(name, [&](absl::string_view flag) { return result_.index_.contains(flag); });
    if (meant.empty() && program_.in_place_of != nullptr) meant = program_.in_place_of(name);
    if (meant.empty()) {
      std::vector<std::string> nearest = misc::NearestNames(name, known);
      for (std::string& candidate : nearest) candidate.insert(0, "--");
      meant = absl::StrJoin(nearest, " or ");
    }
    return absl::InvalidArgumentError(absl::StrCat("unknown flag --", misc::Printable(name),
                                                   meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
  }

  absl::Status WordError() const {
    const std::string& word = result_.words_.front();
    bool boolean = false;
    for (const absl::string_view value : {"true", "false", "t", "f", "1", "0"}) {
      boolean |= absl::EqualsIgnoreCase(value, word);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the word '", misc::Printable(word), "' does not belong to a flag; ",
                     boolean ? "a boolean takes its value after =, as in --clean=true" : "flags begin with - or --"));
  }

  const Program& program_;
  FlagFiles& flag_files_;
  const FlagValues trained_;
  CommandLine result_;
  std::vector<Validator> validators_;
  std::set<std::string, std::less<>> undefok_;
  std::vector<UnknownFlag> unknown_;
};

namespace {

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
  const FlagValues trained = untrained.Trained();
  const FlagValues taken = untrained.Taken(trained);
  const std::string model_dir = untrained.ModelDir();
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
