// The parser behind CommandLine::Parse: words and flag files become values of flags.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/flags/command_line.h"
#include "utils/flags/flag_file.h"
#include "utils/flags/flag_group.h"
#include "utils/flags/network.h"

namespace official::flags {

using Defaults = std::vector<std::pair<std::string, std::string>>;  // name and value

// The flag whose value a training program may choose itself, and the word that lets it.
inline constexpr char kBatchSize[] = "batch_size";
inline constexpr char kAutoBatchSize[] = "auto";

// The flag files of one command line, which is parsed several times: each is read once, since it may be a pipe.
class FlagFiles {
 public:
  absl::StatusOr<std::vector<FlagFileLine>> Read(const std::string& path);

 private:
  std::map<std::string, absl::StatusOr<std::vector<FlagFileLine>>> read_;
};

class CommandLineParser {
 public:
  using Flag = CommandLine::Flag;

  // Sets every flag to its default. `trained`: values of network flags that go before the defaults.
  CommandLineParser(const Program& program, const Defaults& defaults, FlagFiles& flag_files,
                    const FlagValues& trained = {});

  // Sets the flags as given, without the checks that look at values.
  absl::Status ParseArguments(const std::vector<std::string>& arguments);

  // Sets the flags as given and checks them: CommandLine::Parse. Ends the use of the parser.
  absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments);

  // Returns the flag of this long or short name, null if there is none.
  Flag* Find(absl::string_view name);

  // True if what was asked for so far answers without the rest of the command line.
  bool RequestEndsParsing() const;
  CommandLine::Request request() const { return result_.request(); }

 private:
  struct UnknownFlag {
    std::string name;
    std::string where;
  };
  // A file that is open on the way to the present line; `where` is that line, empty on the command line.
  struct Place {
    std::vector<std::filesystem::path> open_files;
    std::string where;
  };

  void AddGroup(const FlagGroup& group);
  // As TensorFlow's RunConfig: where the command line names no directory, that of TF_CONFIG counts as given.
  void TakeModelDirOfTfConfig();
  // Completes a flag's value by that of the training, and notes it.
  void TakeFromTraining(const NetworkFlag& network_flag);

  // One word that begins with a dash. `next` is the word after it, null if there is none that could be its value.
  absl::Status ParseFlag(absl::string_view word, const std::string* next, bool* took_next, const Place& place);
  absl::Status ParseFlagFile(const std::string& path, Place place);
  // Sets a flag for the user.
  absl::Status Give(Flag& flag, absl::string_view value, const Place& place);
  // Returns the name of the boolean that a word sets without a value; empty: it does not.
  std::string BooleanOf(absl::string_view word);
  absl::Status ChooseShell(absl::string_view shell);
  absl::Status CheckRehearsal() const;

  std::optional<CommandLine::Request> RequestOf(absl::string_view name) const;
  // Returns true if a word is one of this program's flags, so that it cannot be the value of the one before.
  bool IsFlag(absl::string_view word);

  absl::Status NoValueError(absl::string_view name, const Flag* flag, const std::string* next) const;
  absl::Status NegationError(const Flag& flag, absl::string_view name) const;
  absl::Status UnknownError(const std::string& name) const;
  absl::Status WordError() const;

  const Program& program_;
  FlagFiles& flag_files_;
  const FlagValues trained_;
  CommandLine result_;
  std::vector<Validator> validators_;
  std::set<std::string, std::less<>> undefok_;
  std::vector<UnknownFlag> unknown_;
};

}  // namespace official::flags
