// The flags that every program has and that are no ABSL_FLAGs: what they are for the help and for completion. The
// command line reads them itself.
#pragma once

#include <array>
#include <vector>

#include "absl/strings/string_view.h"
#include "utils/flags/command_line.h"

namespace official::flags {

// The values of --completion.
inline constexpr std::array<absl::string_view, 3> kShells = {"bash", "zsh", "fish"};

struct GeneralFlag {
  absl::string_view name;
  absl::string_view short_name;  // "" if there is none
  absl::string_view value;       // what follows the =, for people: "PATH"; "" for a flag without a value
  absl::string_view help;
};

// Returns them in the order of the help: of --env, --print_schedule, --dry_run and --find_lr
// those that the program answers.
std::vector<GeneralFlag> GeneralFlags(const Program& program);

}  // namespace official::flags
