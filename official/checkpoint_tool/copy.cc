#include <re2/re2.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "official/checkpoint_tool/progress.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/misc/text.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

absl::Status RuleError(const std::string& rule, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("flag --map: the rule \"", misc::Printable(rule), "\" ", why));
}

// REGEX=REPLACEMENT: replaces every match in a name. Nothing that a rule holds takes more than linear time.
struct Rule {
  std::string text;
  std::unique_ptr<re2::RE2> regex;
  std::string replacement;
  int num_changed = 0;

  static absl::StatusOr<Rule> Parse(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0) return RuleError(text, "has no =; write REGEX=REPLACEMENT");
    Rule rule = {.text = text,
                 .regex = std::make_unique<re2::RE2>(text.substr(0, equals), re2::RE2::Quiet),
                 .replacement = text.substr(equals + 1)};
    if (!rule.regex->ok()) return RuleError(text, absl::StrCat("is no regular expression: ", rule.regex->error()));
    std::string error;
    if (!rule.regex->CheckRewriteString(rule.replacement, &error)) return RuleError(text, error);
    return rule;
  }

  std::string Apply(std::string name) {
    if (const std::string before = name; re2::RE2::GlobalReplace(&name, *regex, replacement) > 0 && name != before) {
      ++num_changed;
    }
    return name;
  }
};

absl::StatusOr<VariableNames> NewNames(const Checkpoint& source, const std::vector<std::string>& map) {
  std::vector<Rule> rules;
  for (const std::string& text : map) {
    ASSIGN_OR_RETURN(Rule rule, Rule::Parse(text));
    rules.push_back(std::move(rule));
  }
  VariableNames names;
  for (const StoredTensor& variable : source.reader->ListTensors()) {
    std::string name = variable.name;
    for (Rule& rule : rules) name = rule.Apply(name);
    RETURN_IF_ERROR(CheckVariableName(name));
    const auto [there, is_new] = names.emplace(name, variable.name);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat("variables ", misc::Printable(there->second), " and ",
                                                   misc::Printable(variable.name), " would both be named ",
                                                   misc::Printable(name), "; change the rules of --map"));
  }
  for (const Rule& rule : rules) {
    if (rule.num_changed == 0) return RuleError(rule.text, absl::StrCat("changes no name in ", source.path));
  }
  return names;
}

absl::StatusOr<int> CopyVariables(Checkpoint& source, const VariableNames& names, const Output& output) {
  const ReadingProgress progress("copying the variables", {&source});
  return WriteCheckpoint(source, names, output);
}

absl::Status Copy(const Words& words, const Options& options, std::ostream& out) {
  const Output output = {.path = words[1], .overwrite = options.overwrite};
  RETURN_IF_ERROR(CheckOutput(output));
  ASSIGN_OR_RETURN(Checkpoint source, OpenCheckpoint(words[0]));
  ASSIGN_OR_RETURN(const VariableNames names, NewNames(source, options.map));
  ASSIGN_OR_RETURN(const int written, CopyVariables(source, names, output));
  int num_renamed = 0;
  for (const auto& [new_name, old_name] : names) {
    if (new_name == old_name) continue;
    ++num_renamed;
    if (options.json) {
      flags::PrintJson({{"event", "renamed"}, {"from", old_name}, {"to", new_name}}, out);
    } else {
      out << misc::Printable(old_name) << " -> " << misc::Printable(new_name) << "\n";
    }
  }
  if (options.json) {
    flags::PrintJson({{"event", "end"}, {"path", output.path}, {"variables", written}, {"renamed", num_renamed}}, out);
  } else {
    out << "wrote " << written << " variables to " << output.path;
    if (num_renamed > 0) out << ", " << num_renamed << " of them renamed";
    out << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Rename(const Words& words, const Options& options, std::ostream& out) {
  if (options.map.empty()) return absl::InvalidArgumentError("rename needs --map=REGEX=REPLACEMENT");
  return Copy(words, options, out);
}

absl::Status Convert(const Words& words, const Options& options, std::ostream& out) {
  return Copy(words, options, out);
}

}  // namespace official::checkpoint_tool
