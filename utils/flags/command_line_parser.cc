#include "utils/flags/command_line_parser.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/general_flags.h"
#include "utils/flags/other_names.h"
#include "utils/flags/shared_groups.h"
#include "utils/misc/text.h"

namespace official::flags {
namespace {

absl::Status AtPlace(const std::string& where, const absl::Status& status) {
  if (status.ok() || where.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// Lets --batch_size be chosen by the program.
void OfferAuto(CommandLine::Flag& batch_size) {
  batch_size.spec.word_for_zero = kAutoBatchSize;
  batch_size.spec.help = absl::StrCat(HelpOf(batch_size),
                                      " auto: the first training in --model_dir times sizes that fit the memory, takes "
                                      "the smallest that is about as fast as any, and keeps it for all that resume.");
}

}  // namespace

absl::StatusOr<std::vector<FlagFileLine>> FlagFiles::Read(const std::string& path) {
  const auto found = read_.find(path);
  if (found != read_.end()) return found->second;
  return read_.emplace(path, ReadFlagFile(path)).first->second;
}

CommandLineParser::CommandLineParser(const Program& program, const Defaults& defaults, FlagFiles& flag_files,
                                     const FlagValues& trained)
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
  if (Flag* const batch_size = Find(kBatchSize); batch_size != nullptr && program.rehearses) OfferAuto(*batch_size);
  for (const NetworkFlag& flag : program.network) {
    OFFICIAL_CHECK(Find(flag.name) != nullptr)
        << program.name << " has a network that depends on --" << flag.name << ", which does not exist";
  }
  for (size_t i = 0; i < defaults.size(); ++i) {
    const auto& [name, value] = defaults[i];
    Flag* flag = Find(name);
    OFFICIAL_CHECK(flag != nullptr) << program.name << " has a default for --" << name << ", which does not exist";
    const absl::Status status = SetValue(*flag, value);
    OFFICIAL_CHECK(status.ok()) << status;
    flag->default_value = flag->flag->CurrentValue();
    if (i >= program.defaults.size()) flag->origin = "default, which other flags decide";
  }
  for (const auto& [name, value] : trained_) SetValue(*Find(name), value).IgnoreError();  // Trained has tried them
}

void CommandLineParser::AddGroup(const FlagGroup& group) {
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

CommandLine::Flag* CommandLineParser::Find(absl::string_view name) {
  const auto found = result_.index_.find(name);
  if (found == result_.index_.end()) return nullptr;
  return &result_.groups_[found->second.first].flags[found->second.second];
}

std::string CommandLineParser::BooleanOf(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return "";
  absl::ConsumePrefix(&word, "-");
  const Flag* const flag = Find(word);
  return flag != nullptr && IsBoolean(*flag) ? std::string(flag->spec.name) : "";
}

absl::Status CommandLineParser::ParseArguments(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      result_.words_.insert(result_.words_.end(), arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (!absl::StartsWith(arguments[i], "-") || arguments[i] == "-") {
      if (result_.words_.empty() && i > 0) result_.boolean_before_words_ = BooleanOf(arguments[i - 1]);
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

void CommandLineParser::TakeModelDirOfTfConfig() {
  const char* const text = std::getenv("TF_CONFIG");
  Flag* const flag = Find("model_dir");
  if (text == nullptr || flag == nullptr || flag->given || Find("workers") == nullptr) return;
  // What is wrong with it is told when the run begins.
  const absl::StatusOr<std::string> model_dir = distribute::ModelDirOfTfConfig(text);
  if (model_dir.ok() && !model_dir->empty()) flag->given = SetValue(*flag, *model_dir).ok();
}

absl::StatusOr<CommandLine> CommandLineParser::Parse(const std::vector<std::string>& arguments) {
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
      if (runs || flag.given) RETURN_IF_ERROR(AtPlace(flag.where, CheckValue(flag)));
    }
  }
  if (!runs) return std::move(result_);
  for (const Validator& validator : validators_) RETURN_IF_ERROR(validator(result_));
  RETURN_IF_ERROR(CheckRehearsal());
  return std::move(result_);
}

void CommandLineParser::TakeFromTraining(const NetworkFlag& network_flag) {
  const auto trained = trained_.find(network_flag.name);
  if (trained == trained_.end() || trained->second.empty()) return;
  Flag& flag = *Find(network_flag.name);
  const std::string given = flag.given ? flag.flag->CurrentValue() : "";
  if (flag.given && (!network_flag.appends || network_flag.Part(given) == trained->second)) return;
  if (flag.given) SetValue(flag, absl::StrCat(trained->second, ",", given)).IgnoreError();
  if (flag.given) {
    absl::StrAppend(&flag.origin, ", after that of the training in --model_dir");
  } else if (flag.flag->CurrentValue() == trained->second) {
    flag.origin = "training in --model_dir";
  }
  if (trained->second == flag.default_value) return;
  absl::StrAppend(&result_.taken_from_training_, result_.taken_from_training_.empty() ? "" : " ", "--",
                  network_flag.name, "=", misc::Printable(trained->second));
}

absl::Status CommandLineParser::ParseFlag(absl::string_view word, const std::string* next, bool* took_next,
                                          const Place& place) {
  if (!absl::ConsumePrefix(&word, "--")) absl::ConsumePrefix(&word, "-");
  const size_t equals = word.find('=');
  const absl::string_view name = word.substr(0, equals);
  std::optional<absl::string_view> value;
  if (equals != absl::string_view::npos) value = word.substr(equals + 1);

  if (const auto request = RequestOf(name); request.has_value()) {
    result_.request_ = *request;
    const bool matches = *request == CommandLine::Request::kHelpMatch;
    if (!matches && *request != CommandLine::Request::kCompletion) return absl::OkStatus();
    *took_next = !value.has_value() && next != nullptr;
    const absl::string_view given = *took_next ? absl::string_view(*next) : value.value_or("");
    if (!matches) return AtPlace(place.where, ChooseShell(given));
    if (given.empty()) return AtPlace(place.where, NoValueError(name, nullptr, nullptr));
    result_.request_value_ = std::string(given);
    return absl::OkStatus();
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

absl::Status CommandLineParser::ParseFlagFile(const std::string& path, Place place) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  std::vector<std::filesystem::path>& open_files = place.open_files;
  if (std::find(open_files.begin(), open_files.end(), resolved) != open_files.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --flagfile=", misc::Printable(path), ": the file includes itself"));
  }
  open_files.push_back(resolved);
  ASSIGN_OR_RETURN(const std::vector<FlagFileLine> lines, flag_files_.Read(path));
  result_.flag_files_.push_back(path);
  for (const FlagFileLine& line : lines) {
    place.where = line.where;
    bool took_next = false;
    RETURN_IF_ERROR(ParseFlag(line.text, nullptr, &took_next, place));
  }
  return absl::OkStatus();
}

absl::Status CommandLineParser::Give(Flag& flag, absl::string_view value, const Place& place) {
  RETURN_IF_ERROR(SetValue(flag, value));
  flag.where = place.where;
  flag.origin = place.where.empty() ? "command line" : place.where;
  if (place.open_files.empty() || flag.flag->CurrentValue() != flag.default_value) flag.given = true;
  return absl::OkStatus();
}

absl::Status CommandLineParser::ChooseShell(absl::string_view shell) {
  if (std::find(kShells.begin(), kShells.end(), shell) == kShells.end()) {
    return absl::InvalidArgumentError(absl::StrCat("flag --completion=", misc::Printable(shell), ": needs one of <",
                                                   absl::StrJoin(kShells, "|"), ">"));
  }
  result_.request_value_ = std::string(shell);
  return absl::OkStatus();
}

absl::Status CommandLineParser::CheckRehearsal() const {
  if (result_.rehearsal().empty()) return absl::OkStatus();
  for (const absl::string_view name : {"predict", "serve", "remote_cluster"}) {
    if (!result_.has(name) || !result_.given(name)) continue;
    return FlagError(name, absl::StrCat("cannot be combined with --", result_.rehearsal(),
                                        ", which is for a training of this process"));
  }
  return absl::OkStatus();
}

std::optional<CommandLine::Request> CommandLineParser::RequestOf(absl::string_view name) const {
  if (name == "help" || name == "h" || name == "?" || name == "helpshort") return CommandLine::Request::kHelp;
  if (name == "helpfull") return CommandLine::Request::kHelpFull;
  if (name == "helpmatch") return CommandLine::Request::kHelpMatch;
  if (name == "version") return CommandLine::Request::kVersion;
  if (name == "completion") return CommandLine::Request::kCompletion;
  if (name == "dump_config") return CommandLine::Request::kDumpConfig;
  if (name == "print_schedule" && program_.rehearses) return CommandLine::Request::kPrintSchedule;
  if (name == "dry_run" && program_.rehearses) return CommandLine::Request::kDryRun;
  if (name == "find_lr" && program_.rehearses) return CommandLine::Request::kFindLr;
  if (name == "env" && program_.environment != nullptr) return CommandLine::Request::kEnvironment;
  return std::nullopt;
}

bool CommandLineParser::RequestEndsParsing() const {
  switch (result_.request_) {
    case CommandLine::Request::kHelp:
    case CommandLine::Request::kHelpFull:
    case CommandLine::Request::kHelpMatch:
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

bool CommandLineParser::IsFlag(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return false;
  absl::ConsumePrefix(&word, "-");
  const absl::string_view name = word.substr(0, word.find('='));
  if (Find(name) != nullptr || RequestOf(name).has_value() || name == "flagfile" || name == "undefok") return true;
  if (!absl::StartsWith(name, "no")) return false;
  const Flag* positive = Find(name.substr(2));
  return positive != nullptr && IsBoolean(*positive);
}

absl::Status CommandLineParser::NoValueError(absl::string_view name, const Flag* flag, const std::string* next) const {
  return absl::InvalidArgumentError(
      absl::StrCat("flag --", name, ": needs a value", flag == nullptr ? "" : absl::StrCat(", ", DescribeValues(*flag)),
                   next == nullptr ? absl::StrCat(" (--", name, "=...)")
                                   : absl::StrCat("; ", misc::Printable(*next), " is the next flag")));
}

absl::Status CommandLineParser::NegationError(const Flag& flag, absl::string_view name) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --", name, ": ",
      IsBoolean(flag) ? absl::StrCat("takes no value; write --", name, " or --", flag.spec.name, "=false")
                      : absl::StrCat("--", flag.spec.name, " is not a boolean, it needs ", DescribeValues(flag))));
}

absl::Status CommandLineParser::UnknownError(const std::string& name) const {
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

absl::Status CommandLineParser::WordError() const {
  RETURN_IF_ERROR(result_.CheckFirstWord());
  return absl::InvalidArgumentError(absl::StrCat("the word '", misc::Printable(result_.words_.front()),
                                                 "' does not belong to a flag; flags begin with - or --"));
}

}  // namespace official::flags
