// The command line of a program: Abseil flags in groups, under the grammar of TensorFlow's official models.
//   --name=value, --name value, -name ... alike; short names are full aliases (-bs 100, --bs=100)
//   --flag, --noflag, --flag=true|t|1|false|f|0 for a boolean, which never takes the next word
//   a list is separated by commas, blanks around its items are dropped, the empty string is the empty list
//   the empty value unsets an optional flag; the last of several values holds
//   --flagfile=PATH reads flags from a file (flag_file.h), which may name further files
//   --undefok=a,b lets unknown flags of these names pass; -- ends the flags
//   --help (-h, -?, --helpshort), --helpfull, --version and what else general_flags.h has
// Beyond TensorFlow: the error for an unknown flag names the nearest one, words that are not flags are refused, numbers
// have ranges, and the exit status of a bad flag is 2.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/flags/flag_group.h"
#include "utils/flags/network.h"

namespace official::flags {

struct Example {
  std::string command;  // as typed, e.g. "mnist_main --train_epochs=5"
  std::string what;     // its effect, in one sentence
};

// The description of a program for its command line. One that trains has the five shared groups, and its own.
struct Program {
  std::string name;
  std::string description;
  std::vector<Example> examples = {};
  std::vector<std::pair<std::string, std::string>> defaults = {};  // shared flags: name and value, e.g. {"te", "40"}
  // Returns further defaults, which depend on the values that the command line gives to other flags; called when those
  // are set. It must not change those flags.
  std::function<std::vector<std::pair<std::string, std::string>>()> dependent_defaults = nullptr;
  std::vector<std::pair<std::string, std::string>> help = {};  // for shared flags with a special meaning here
  // Shared flags that have no effect here, and why: FlagSpec::not_used.
  std::vector<std::pair<std::string, std::string>> not_used = {};
  FlagGroup flags = {};      // its own
  std::string words = "";    // meaning of words that are not flags, e.g. "IMAGE..."; empty: none are allowed
  bool shared_flags = true;  // false, for a tool: only its own flags, which may name flags of the shared groups
  std::vector<FlagGroup> more_flags = {};  // further groups of its own, which --helpfull shows
  // The flags that decide which network the program uses. When it uses what was trained in --model_dir (--predict,
  // --eval_only, --export_dir; a tool always does), they have the values of that training unless the command line gives
  // them. Flags that are otherwise left to the data also have that training's values when a training resumes.
  std::vector<NetworkFlag> network = {};
  // Returns what to write instead of an unknown flag, e.g. "--params_override=num_heads=..."; "" if there is nothing.
  std::function<std::string(const std::string& name)> in_place_of = nullptr;
  std::string commit = "unknown";  // the commit that the program was built from, set by RunMain
  bool rehearses = false;          // true: it has --print_schedule, --dry_run, --find_lr and --batch_size=auto
  // Returns the answer to --env. Unset: the program does not have this flag.
  std::function<std::string(const Program& program, bool json)> environment = nullptr;
};

// The result of parsing. The values themselves are in the Abseil flags: read them with absl::GetFlag.
class CommandLine {
 public:
  enum class Request {
    kRun,
    // These end the command line.
    kHelp,
    kHelpFull,
    kHelpMatch,
    kVersion,
    kCompletion,
    // These are answered with all flags known.
    kDumpConfig,
    kEnvironment,
    // These the program itself answers; see Program::rehearses.
    kPrintSchedule,
    kDryRun,
    kFindLr,
  };

  struct Flag {
    FlagSpec spec;
    absl::CommandLineFlag* flag;  // the Abseil flag: type, help text, present value
    std::string default_value;    // the program's
    bool given = false;
    std::string where = "";   // "path:line" if the value is from a file
    std::string origin = "";  // of the value: "default", "command line", "path:line", ...
  };
  struct Group {
    std::string name;
    std::vector<Flag> flags;
  };

  // Sets every flag to the program's default, then to what `arguments` (argv without the program's name) say, then
  // checks all values: each flag's range and choices first, then the validators of the groups. InvalidArgument, in one
  // line that names flag, value and what would be right, if something is wrong; help and version requests take
  // precedence over what comes after them, and with --env only the flags that are given are checked. Network flags that
  // differ from those of the training in --model_dir are wrong, too, unless the run starts over there (--clean) or will
  // refuse the checkpoint (--resume=never).
  static absl::StatusOr<CommandLine> Parse(const Program& program, const std::vector<std::string>& arguments);

  Request request() const { return request_; }
  // True if the program's own code answers the request.
  bool runs_body() const { return request_ == Request::kRun || !rehearsal().empty(); }
  // Returns the name of the flag that has the program rehearse a run; "" without.
  absl::string_view rehearsal() const;
  // The value of the request: for kCompletion the shell, "bash", "zsh" or "fish"; for kHelpMatch the text to look for.
  const std::string& request_value() const { return request_value_; }

  // True if the user chose the value of a flag (by its long name): the flag is on the command line, or in a flag file
  // with another value than the default. So AllFlagsText of a run, read back, gives the same results.
  bool given(absl::string_view name) const;

  // True if the program has a flag of this name.
  bool has(absl::string_view name) const { return index_.count(name) > 0; }

  // True if the program has a flag of this name that has an effect there; see FlagSpec::not_used.
  bool uses(absl::string_view name) const { return has(name) && Find(name).spec.not_used.empty(); }

  // Returns the present value of a flag of the program, by its long or short name.
  std::string ValueOf(absl::string_view name) const { return Find(name).flag->CurrentValue(); }

  // The words that are not flags, if the program takes any.
  const std::vector<std::string>& words() const { return words_; }
  // Returns InvalidArgument, with what to write, if the first of them was meant as the value of a boolean or as a flag.
  absl::Status CheckFirstWord() const;

  // The network flags that have another value than the program's default because the training in --model_dir had it:
  // "--name=value --name=value".
  const std::string& taken_from_training() const { return taken_from_training_; }

  // Returns every flag with its present value as a line --name=value, in the order of the help. --flagfile reads it
  // back.
  std::string AllFlagsText() const;

  // Returns name and present value of the flags that all workers of a run must have the same.
  std::vector<std::pair<std::string, std::string>> FlagsOfAllWorkers() const;

  // Returns what the flags name that the program reads, files and directories. The files of --flagfile, and those that
  // they name, are among them.
  std::vector<std::string> InputPaths() const;

  // The name of the program, and the commit that it was built from.
  const std::string& program() const { return program_; }
  const std::string& commit() const { return commit_; }

  // The groups in the order of the help: the program's own first.
  const std::vector<Group>& groups() const { return groups_; }

 private:
  friend class CommandLineParser;
  CommandLine() = default;
  const Flag& Find(absl::string_view name) const;

  Request request_ = Request::kRun;
  std::string request_value_;
  std::vector<Group> groups_;
  std::map<std::string, std::pair<int, int>, std::less<>> index_;  // long or short name -> group and flag
  std::vector<std::string> words_;
  std::string boolean_before_words_;  // the name of the boolean that the first of them follows; empty: none
  std::vector<std::string> flag_files_;
  std::string taken_from_training_;
  std::string program_, commit_;
};

// Returns one line for each flag that the user gave although this program does not use it: what has no effect, and why.
std::vector<std::string> NotesOnUnusedFlags(const CommandLine& command_line);

// Returns the help text of the flag in this program.
std::string HelpOf(const CommandLine::Flag& flag);

}  // namespace official::flags
