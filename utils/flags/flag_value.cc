#include "utils/flags/flag_value.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/flags/other_names.h"
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

// True if the flag's value is 0 in place of its word, since numbers of its range are larger.
bool IsWordForZero(const CommandLine::Flag& flag) {
  const FlagSpec& spec = flag.spec;
  return !spec.word_for_zero.empty() && !spec.range.Contains(0) && flag.flag->CurrentValue() == "0";
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
  // The type does not hold the value. As a double, it may be equal to the largest one that it does.
  return number >= static_cast<double>(MaxOf(flag)) ? absl::StrCat(", at most ", MaxOf(flag)) : "";
}

// Refuses a path below ~, the home directory, which shells do not expand after =.
absl::Status CheckTilde(absl::string_view name, absl::string_view value) {
  if (!absl::StartsWith(value, "~/")) return absl::OkStatus();
  const char* const home = std::getenv("HOME");
  return FlagError(
      name,
      absl::StrCat("~ is not expanded here; write ", misc::Printable(home == nullptr ? "$HOME" : home),
                   misc::Printable(value.substr(1)), ", or ./", misc::Printable(value), " for a name that begins so"));
}

}  // namespace

std::vector<std::string> ListItems(absl::string_view text) {
  std::vector<std::string> items;
  if (absl::StripAsciiWhitespace(text).empty()) return items;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    items.emplace_back(absl::StripAsciiWhitespace(item));
  }
  return items;
}

std::string ValueText(const CommandLine::Flag& flag) {
  return IsWordForZero(flag) ? std::string(flag.spec.word_for_zero) : flag.flag->CurrentValue();
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

absl::Status SetValue(CommandLine::Flag& flag, absl::string_view value) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("flag --", flag.spec.name, "=", misc::Printable(value), ": ", why));
  };
  // Values end up in messages, logs and flag files, one per line.
  if (std::any_of(value.begin(), value.end(), absl::ascii_iscntrl)) return refuse("control characters are not allowed");
  const Kind kind = KindOf(*flag.flag);
  if (kind == Kind::kString && absl::EndsWith(value, " ")) {
    return refuse("ends in a blank, which a flag file cannot hold; leave the blank out");
  }
  std::vector<std::string> items =
      kind == Kind::kList ? ListItems(value) : std::vector<std::string>{std::string(value)};
  for (std::string& item : items) item = ProgramSpelling(flag.spec, item);
  std::string error;
  const bool parsed = flag.flag->ParseFrom(absl::StrJoin(items, ","), &error);
  const bool stands_for_word = parsed && IsWordForZero(flag) && value != flag.spec.word_for_zero;
  if (parsed && !stands_for_word) return absl::OkStatus();
  // Abseil's own text does not say what would be right.
  return refuse(absl::StrCat("needs ", DescribeValues(flag), SizeHint(flag.spec, *flag.flag, value)));
}

absl::Status CheckValue(const CommandLine::Flag& flag) {
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
      if (unset || IsWordForZero(flag) || (absl::SimpleAtod(value, &number) && spec.range.Contains(number))) break;
      return FlagError(spec.name, absl::StrCat("needs ", DescribeValues(flag)));
    }
    case Kind::kString: {
      if (!spec.is_text && absl::StartsWith(value, "gs://")) {
        return FlagError(spec.name,
                         "Google Cloud Storage is neither read nor written; copy it to a directory of this "
                         "machine (gcloud storage cp -r), or mount it (gcsfuse), and give that");
      }
      if (!spec.is_text) RETURN_IF_ERROR(CheckTilde(spec.name, value));
      const bool unset = value.empty() && !flag.flag->IsOfType<std::string>();
      if (unset || spec.choices.empty() || IsChoice(spec, value)) break;
      return FlagError(spec.name, absl::StrCat("needs ", DescribeValues(flag), ChoiceHint(spec, value)));
    }
    case Kind::kList:
      for (const std::string& item : ListItems(value)) {
        RETURN_IF_ERROR(CheckTilde(spec.name, item));
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

}  // namespace official::flags
