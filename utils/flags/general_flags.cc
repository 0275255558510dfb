#include "utils/flags/general_flags.h"

namespace official::flags {

std::vector<GeneralFlag> GeneralFlags(const Program& program) {
  std::vector<GeneralFlag> flags = {
      {"help", "h", "", "Show the common flags."},
      {"helpfull", "", "", "Show all flags."},
      {"helpmatch", "", "TEXT", "Show the flags whose name or help has this text, in lower or upper case."},
      {"version", "", "",
       "Show the version of the program, the commit that it was built from, and the libraries for GPUs."},
  };
  if (program.environment != nullptr) {
    flags.push_back({"env", "", "",
                     "Show what a report of a problem needs: versions, the processor, memory, GPUs and the environment "
                     "variables that the program reads. With --output=json as a JSON object."});
  }
  if (program.rehearses) {
    flags.insert(flags.end(),
                 {{"print_schedule", "", "",
                   "Show the learning rate over the steps of the run as a table and a plot, instead of training."},
                  {"dry_run", "", "",
                   "Check flags, files and data, show parameters and memory, and compute one training step and one "
                   "evaluation step, instead of training. Nothing is written to --model_dir."},
                  {"find_lr", "", "",
                   "Train up to 100 steps with a learning rate that rises from 1e-7 to 1, show the losses, and suggest "
                   "the rate at which they fall most steeply. Nothing is written to --model_dir."}});
  }
  flags.insert(flags.end(),
               {{"dump_config", "", "",
                 "Check all flags, and show each with its value and where that is from. --flagfile reads it back."},
                {"completion", "", "SHELL",
                 "Show a script that makes a shell (bash, zsh or fish) complete the flags of this program."},
                {"flagfile", "", "PATH", "Read flags from a file with one --name=value per line; # begins a comment."},
                {"undefok", "", "NAMES", "Ignore unknown flags of these names, which are separated by commas."}});
  return flags;
}

}  // namespace official::flags
