// The description of flags for the command line and the help, beyond their ABSL_FLAG definitions (type, default, help
// text).
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::flags {

class CommandLine;

// The values that a number may have. NaN and infinity are never in a range.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool without_min = false;  // true: min itself is not in the range
  bool without_max = false;

  bool Contains(double value) const;
  std::string ToString() const;  // "at least 1", "more than 0", "at least 0 and less than 1"; "" if there is no bound
};

constexpr Range AtLeast(double min) { return {.min = min}; }
constexpr Range MoreThan(double min) { return {.min = min, .without_min = true}; }
// The half-open interval [0, 1) of dropout rates and momenta.
constexpr Range Fraction() { return {.min = 0, .max = 1, .without_max = true}; }

// Names that other training programs have for a flag, for users who try one of them.
struct OtherNames {
  absl::string_view names;        // separated by blanks
  absl::string_view advice = "";  // what follows "--" and the flag's name in the hint, e.g. "=0"
};

struct FlagSpec {
  absl::string_view name;                       // name of an ABSL_FLAG
  absl::string_view short_name = "";            // a full alias, e.g. "bs"
  bool key = false;                             // shown by --help
  Range range = {};                             // for a number
  absl::string_view word_for_zero = "";         // for a number: accepted for 0, e.g. "auto", in or out of the range
  std::vector<absl::string_view> choices = {};  // for a string or the items of a list: the only values
  bool any_case = false;               // true: choices match in any case; the flag gets the spelling of `choices`
  bool required = false;               // true: the empty value is refused
  absl::string_view unset_means = "";  // meaning of an optional flag without a value, e.g. "all of them"
  std::string help = "";               // replaces the ABSL_FLAG's text, which is for another program
  // Why the program accepts the flag, for TensorFlow's command lines, but does not use it; empty: it does.
  std::string not_used = "";
  std::vector<OtherNames> other_names = {};
  bool per_worker = false;  // true: no number depends on it, and the workers of a run may have different values
  bool input = false;       // true: it names a file or directory that the program reads
  bool is_text = false;     // true: it is no path or address, whatever it begins with
  bool local = false;       // true: it is for this process alone, and no client of --remote_cluster sends it
};

// Checks several flags together, after the whole command line is parsed; returns FlagError or OK.
using Validator = std::function<absl::Status(const CommandLine&)>;

struct FlagGroup {
  std::string name;  // the heading in the help
  std::vector<FlagSpec> flags;
  std::vector<Validator> validators = {};
};

// Returns InvalidArgument "flag --name=value: why", with the flag's present value; "flag --name: why" if it is unset.
absl::Status FlagError(absl::string_view name, absl::string_view why);

}  // namespace official::flags
