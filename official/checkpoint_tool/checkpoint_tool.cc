// checkpoint_tool COMMAND ...: lists, shows, compares, averages, verifies, renames and converts checkpoints.
#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/checkpoint_tool/commands.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/flags/num_words.h"
#include "utils/misc/text.h"

ABSL_FLAG(int, num_values, 8, "For show: the number of values that are shown of each variable.");
ABSL_FLAG(double, tolerance, 0,
          "For diff: floats a and b differ if |a - b| is more than this number times the largest of 1, |a| and |b|.");
ABSL_FLAG(std::optional<int>, last, std::nullopt,
          "For average: the number of checkpoints of one directory that are averaged, the latest ones.");
ABSL_FLAG(std::vector<std::string>, map, {},
          "For rename and convert: REGEX=REPLACEMENT replaces each match of the regular expression (RE2) "
          "in the name of a variable; \\1 stands for its first group. Several rules apply one after the other. In a "
          "regular expression, write \\x2c for a comma and \\x3d for an equals sign.");
ABSL_FLAG(bool, overwrite, false, "For average, rename and convert: replace an output that exists.");

namespace official::checkpoint_tool {
namespace {

struct Command {
  std::string name;
  std::string words;  // what follows the name
  size_t min_words, max_words;
  absl::Status (*run)(const Words&, const Options&, std::ostream&);
  std::vector<std::string> flags = {};  // its own
};

constexpr size_t kAny = 1 << 20;

const std::vector<Command>& Commands() {
  static const auto* const commands = new std::vector<Command>{
      {"ls", "PATH", 1, 1, List},
      {"show", "PATH [NAME...]", 1, kAny, Show, {"num_values"}},
      {"diff", "A B", 2, 2, Diff, {"tolerance"}},
      {"average", "OUT PATH...", 2, kAny, Average, {"last", "overwrite"}},
      {"verify", "PATH", 1, 1, Verify},
      {"rename", "IN OUT", 2, 2, Rename, {"map", "overwrite"}},
      {"convert", "IN OUT", 2, 2, Convert, {"map", "overwrite"}},
  };
  return *commands;
}

flags::Program ToolProgram() {
  return {
      .name = "checkpoint_tool",
      .description =
          "Works with checkpoints of all models, in TensorFlow's format and in safetensors: ls lists variables, show "
          "prints values, diff compares two checkpoints (exit status 1 if they differ), average writes the mean of "
          "several, verify checks every checksum and that all numbers are finite (exit status 65 if not), rename "
          "changes the names of variables, convert changes the format, to safetensors if OUT ends in .safetensors. A "
          "PATH is the directory of a run, which means its latest checkpoint, or one checkpoint (run/model.ckpt-600, "
          "also with .index or .data-...), or a safetensors file.",
      .examples = {{"checkpoint_tool ls run1", "the checkpoints of a run, and the variables of the latest"},
                   {"checkpoint_tool show run1 dense/bias", "its smallest and largest value, mean, first values"},
                   {"checkpoint_tool diff run1 run2 --tolerance=1e-6", "compare two runs"},
                   {"checkpoint_tool average averaged run1 --last=5",
                    "average the last five checkpoints; the program that trained run1 can then use "
                    "--model_dir=averaged"},
                   {"checkpoint_tool verify run1", "check all checkpoints of a run"},
                   {"checkpoint_tool rename run1 new/model.ckpt-0 --map='^dense_1/=head/'", "rename variables"},
                   {"checkpoint_tool convert run1 weights.safetensors", "convert to safetensors"},
                   {"checkpoint_tool convert weights.safetensors new/model.ckpt-0", "and back"}},
      .flags = {.name = "checkpoint_tool",
                .flags = {{.name = "num_values", .key = true, .range = flags::AtLeast(0)},
                          {.name = "tolerance", .key = true, .range = flags::AtLeast(0)},
                          {.name = "last",
                           .key = true,
                           .range = flags::AtLeast(2),
                           .unset_means = "the checkpoints are named one by one"},
                          {.name = "map", .key = true},
                          {.name = "overwrite", .key = true},
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = "COMMAND PATH...",
      .shared_flags = false,
  };
}

std::string Names() {
  return absl::StrJoin(Commands(), ", ", [](std::string* out, const Command& command) { out->append(command.name); });
}

absl::StatusOr<const Command*> FindCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
    names.push_back(command.name);
  }
  const std::vector<std::string> nearest = misc::NearestNames(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no command ", misc::Printable(name),
                   nearest.empty() ? absl::StrCat("; the commands are ", Names())
                                   : absl::StrCat("; did you mean ", absl::StrJoin(nearest, " or "), "?")));
}

// Flags of other commands would have no effect.
absl::Status CheckFlags(const Command& command, const flags::CommandLine& command_line) {
  for (const Command& other : Commands()) {
    for (const std::string& flag : other.flags) {
      if (!command_line.given(flag)) continue;
      if (std::find(command.flags.begin(), command.flags.end(), flag) != command.flags.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("flag --", flag, " has no effect on ", command.name, "; it is for ", other.name));
    }
  }
  return absl::OkStatus();
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  Words words = command_line.words();
  if (words.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("name a command, one of ", Names(), "; --help has examples"));
  }
  ASSIGN_OR_RETURN(const Command* const command, FindCommand(words[0]));
  words.erase(words.begin());
  RETURN_IF_ERROR(flags::CheckNumWords(words, absl::StrCat("checkpoint_tool ", command->name), command->words,
                                       command->min_words, command->max_words));
  RETURN_IF_ERROR(CheckFlags(*command, command_line));
  const Options options = {.json = flags::WantsJson(),
                           .num_values = absl::GetFlag(FLAGS_num_values),
                           .tolerance = absl::GetFlag(FLAGS_tolerance),
                           .last = absl::GetFlag(FLAGS_last),
                           .map = absl::GetFlag(FLAGS_map),
                           .overwrite = absl::GetFlag(FLAGS_overwrite)};
  return command->run(words, options, std::cout);
}

}  // namespace
}  // namespace official::checkpoint_tool

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::checkpoint_tool::ToolProgram(),
                                  official::checkpoint_tool::Main);
}
