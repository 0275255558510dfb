#include "utils/flags/help.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/cuda_backend/gpu_kernels.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/general_flags.h"
#include "utils/misc/text.h"
#include "utils/misc/version.h"

namespace official::flags {
namespace {

constexpr int kWidth = 80;
constexpr int kNameIndent = 2;
constexpr int kTextIndent = 6;

//   -bs, --batch_size
//       Examples in one step, over all GPUs.
//       (an integer, at least 1; default: '32')
std::string FlagHelp(const CommandLine::Flag& flag) {
  const FlagSpec& spec = flag.spec;
  const absl::string_view no = IsBoolean(flag) ? "[no]" : "";
  const std::string names =
      absl::StrCat(spec.short_name.empty() ? "" : absl::StrCat("-", no, spec.short_name, ", "), "--", no, spec.name);
  std::string default_text = absl::StrCat("default: '", flag.default_value, "'");
  if (flag.default_value.empty()) {
    default_text = spec.unset_means.empty() ? "default: unset" : absl::StrCat("default: ", spec.unset_means);
  }
  return absl::StrCat(
      std::string(kNameIndent, ' '), names, "\n", misc::Wrap(HelpOf(flag), kTextIndent, kWidth),
      misc::Wrap(absl::StrCat("(", DescribeValues(flag), "; ", default_text, ")"), kTextIndent, kWidth));
}

constexpr char kEnvironment[] = R"(
environment:
  OFFICIAL_MAX_ISA=avx2, avx512 or avx512_bf16
      Use no newer vector instructions, even if the processor has them: with
      avx512 nothing for bfloat16, for example. Intel's processors that are made
      for AMX are slow with avx512_bf16, and use it only if it is asked for. The
      last bits of results depend on it.
      (default: no limit)
)";

std::string FlagHelp(const GeneralFlag& flag) {
  return absl::StrCat(std::string(kNameIndent, ' '),
                      flag.short_name.empty() ? "" : absl::StrCat("-", flag.short_name, ", "), "--", flag.name,
                      flag.value.empty() ? "" : absl::StrCat("=", flag.value), "\n",
                      misc::Wrap(flag.help, kTextIndent, kWidth));
}

std::string GeneralHelp(const Program& program) {
  std::string text = "\ngeneral:\n";
  for (const GeneralFlag& flag : GeneralFlags(program)) absl::StrAppend(&text, FlagHelp(flag));
  return absl::StrCat(text, kEnvironment);
}

}  // namespace

std::string HelpText(const Program& program, const CommandLine& command_line, bool full) {
  std::string text = misc::Wrap(absl::StrCat(program.name, ": ", program.description), 0, kWidth);
  if (!program.examples.empty()) absl::StrAppend(&text, "\nExamples:\n");
  for (const Example& example : program.examples) {
    absl::StrAppend(&text, std::string(kNameIndent, ' '), example.command, "\n",
                    misc::Wrap(example.what, kTextIndent, kWidth));
  }
  absl::StrAppend(&text, "\nUsage: ", program.name, command_line.groups().empty() ? "" : " [--flag=value]...",
                  program.words.empty() ? "" : absl::StrCat(" ", program.words), "\n");
  for (const CommandLine::Group& group : command_line.groups()) {
    const bool own = group.name == program.flags.name;
    std::string flags;
    for (const CommandLine::Flag& flag : group.flags) {
      if (full || own || flag.spec.key) absl::StrAppend(&flags, FlagHelp(flag));
    }
    if (!flags.empty()) absl::StrAppend(&text, "\n", group.name, ":\n", flags);
  }
  const bool shows_all = full || (!program.shared_flags && program.more_flags.empty());
  return absl::StrCat(text, shows_all ? GeneralHelp(program) : "\nTry --helpfull for all flags.\n");
}

absl::StatusOr<std::string> MatchingHelpText(const Program& program, const CommandLine& command_line) {
  const std::string wanted = absl::AsciiStrToLower(command_line.request_value());
  std::string text;
  const auto add_group = [&](absl::string_view name, absl::string_view flags) {
    if (!flags.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", name, ":\n", flags);
  };
  for (const CommandLine::Group& group : command_line.groups()) {
    std::string flags;
    for (const CommandLine::Flag& flag : group.flags) {
      const std::string searched = absl::StrCat(flag.spec.name, "\n", flag.spec.short_name, "\n", HelpOf(flag));
      if (absl::StrContains(absl::AsciiStrToLower(searched), wanted)) absl::StrAppend(&flags, FlagHelp(flag));
    }
    add_group(group.name, flags);
  }
  std::string general;
  for (const GeneralFlag& flag : GeneralFlags(program)) {
    const std::string searched = absl::StrCat(flag.name, "\n", flag.short_name, "\n", flag.help);
    if (absl::StrContains(absl::AsciiStrToLower(searched), wanted)) absl::StrAppend(&general, FlagHelp(flag));
  }
  add_group("general", general);
  if (!text.empty()) return text;
  return absl::InvalidArgumentError(absl::StrCat("flag --helpmatch=", misc::Printable(command_line.request_value()),
                                                 ": no flag has this text; --helpfull shows all flags"));
}

std::string VersionText(const Program& program) {
#ifdef __clang__
  constexpr char kCompiler[] = __VERSION__;
#else
  constexpr char kCompiler[] = "GCC " __VERSION__;
#endif
  return absl::StrCat(program.name, " ", misc::kVersion, ", commit ", program.commit, ", ", kCompiler, ", ",
                      compute::kGpuKernels, "\n");
}

}  // namespace official::flags
