#include "utils/flags/network.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"

namespace official::flags {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

bool HasCheckpoint(const std::string& model_dir) {
  const absl::StatusOr<std::vector<std::string>> names = files::ListDirectory(model_dir);
  return names.ok() && std::any_of(names->begin(), names->end(), [](absl::string_view name) {
           return absl::StartsWith(name, misc::kCheckpointPrefix) && absl::EndsWith(name, misc::kIndexSuffix);
         });
}

std::string AsFlag(absl::string_view name, absl::string_view value) {
  return value.empty() ? absl::StrCat("no --", name) : absl::StrCat("--", name, "=", misc::Printable(value));
}

}  // namespace

FlagValues FlagsOfTraining(const std::string& model_dir) {
  FlagValues values;
  if (!HasCheckpoint(model_dir)) return values;
  const absl::StatusOr<std::string> text = files::ReadFile(files::JoinPath(model_dir, misc::kFlagsFile), kMaxBytes);
  if (!text.ok()) return values;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const size_t equals = line.find('=');
    if (equals == line.npos || !absl::ConsumePrefix(&line, "--")) continue;
    if (std::any_of(line.begin(), line.end(), absl::ascii_iscntrl)) continue;
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
    values[std::string(parts.first)] = std::string(parts.second);
  }
  return values;
}

absl::Status CheckSameNetwork(const std::string& model_dir, absl::Span<const NetworkFlag> network,
                              const FlagValues& present, const FlagValues& trained) {
  std::vector<std::string> before, now, advice;
  for (const NetworkFlag& flag : network) {
    const auto was = trained.find(flag.name), is = present.find(flag.name);
    if (was == trained.end() || is == present.end() || flag.Part(was->second) == flag.Part(is->second)) continue;
    if (flag.IsLeftToData(was->second) || flag.IsLeftToData(is->second)) continue;
    before.push_back(AsFlag(flag.name, was->second));
    now.push_back(AsFlag(flag.name, is->second));
    advice.push_back(absl::StrCat("--", flag.name, "=", misc::Printable(was->second)));
  }
  if (before.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the network in --model_dir=", misc::Printable(model_dir), " was trained with ",
                   absl::StrJoin(before, " and "), ", but this command has ", absl::StrJoin(now, " and "), "; add ",
                   absl::StrJoin(advice, " "), " to use that network, or name another --model_dir"));
}

}  // namespace official::flags
