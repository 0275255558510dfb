#include "utils/flags/completion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "utils/flags/flag_value.h"
#include "utils/flags/general_flags.h"

namespace official::flags {
namespace {

enum class Value { kNone, kBoolean, kNumber, kChoice, kDirectory, kFile };

struct Entry {
  std::string name;
  std::string short_name;  // "" if there is none
  Value value = Value::kNone;
  std::vector<std::string> choices = {};
  bool is_list = false;
  std::string help;  // the first sentence
};

std::string FirstSentence(const std::string& text) {
  for (size_t dot = text.find(". "); dot != text.npos; dot = text.find(". ", dot + 1)) {
    if (dot > 3 && text[dot - 2] != '.') return text.substr(0, dot);
  }
  return text.substr(0, text.size() - (absl::EndsWith(text, ".") ? 1 : 0));
}

Value ValueOf(const CommandLine::Flag& flag) {
  if (IsBoolean(flag)) return Value::kBoolean;
  if (!flag.spec.choices.empty()) return Value::kChoice;
  const std::string values = DescribeValues(flag);
  if (absl::StartsWith(values, "an integer") || absl::StartsWith(values, "a number")) return Value::kNumber;
  return absl::EndsWith(flag.spec.name, "_dir") ? Value::kDirectory : Value::kFile;
}

std::vector<Entry> EntriesOf(const Program& program, const CommandLine& command_line) {
  std::vector<Entry> entries;
  for (const GeneralFlag& flag : GeneralFlags(program)) {
    Entry entry{.name = std::string(flag.name),
                .short_name = std::string(flag.short_name),
                .help = FirstSentence(std::string(flag.help))};
    if (flag.name == "completion") {
      entry.value = Value::kChoice;
      for (const absl::string_view shell : kShells) entry.choices.emplace_back(shell);
    } else if (!flag.value.empty()) {
      entry.value = flag.value == "PATH" ? Value::kFile : Value::kNumber;  // of others nothing can be completed
    }
    entries.push_back(std::move(entry));
  }
  for (const CommandLine::Group& group : command_line.groups()) {
    for (const CommandLine::Flag& flag : group.flags) {
      if (!flag.spec.not_used.empty()) continue;
      Entry entry{.name = std::string(flag.spec.name),
                  .short_name = std::string(flag.spec.short_name),
                  .value = ValueOf(flag),
                  .is_list = flag.flag->IsOfType<std::vector<std::string>>(),
                  .help = FirstSentence(HelpOf(flag))};
      for (const absl::string_view choice : flag.spec.choices) entry.choices.emplace_back(choice);
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

// ---- bash ----

constexpr char kBash[] = R"(# Completion of PROGRAM in bash. To use it:  source <(PROGRAM --completion=bash)
_PROGRAM_completion() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flag='' prefix='' kind='' words=''
  COMPREPLY=()
  # Bash makes a word of each =, unless COMP_WORDBREAKS has none.
  if [[ $word == -*=* ]]; then
    flag=${word%%=*} prefix=${word%%=*}= word=${word#*=}
  elif [[ $word == '=' ]]; then
    flag=$before word=''
  elif [[ $before == '=' && $COMP_CWORD -ge 2 ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $before == -* && $word != -* ]]; then
    flag=$before
  fi
  case ${flag#-} in
CASES  esac
  # A boolean takes no next word.
  if [[ $kind == boolean ]]; then
    [[ $before == '=' || $word == '' && ${COMP_WORDS[COMP_CWORD]} == '=' || $prefix != '' ]] || kind=''
    words='true false'
  fi
  if [[ $kind == *list && $word == *,* ]]; then
    prefix+=${word%,*}, word=${word##*,}
  fi
  case $kind in
  number) return ;;
  boolean | choice*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
  directory) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
  file*) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  *)
    if [[ $word == -* || FILES == no ]]; then
      mapfile -t COMPREPLY < <(compgen -W 'NAMES' -- "$word")
      [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    else
      kind=file
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
    ;;
  esac
  [[ $kind == directory || $kind == file* ]] && compopt -o filenames 2>/dev/null
  COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}
complete -F _PROGRAM_completion PROGRAM
)";

std::string BashKind(const Entry& entry) {
  const absl::string_view list = entry.is_list ? "list" : "";
  switch (entry.value) {
    case Value::kNone:
      return "";
    case Value::kBoolean:
      return "kind=boolean";
    case Value::kNumber:
      return "kind=number";
    case Value::kChoice:
      return absl::StrCat("kind=choice", list, " words='", absl::StrJoin(entry.choices, " "), "'");
    case Value::kDirectory:
      return "kind=directory";
    case Value::kFile:
      return absl::StrCat("kind=file", list);
  }
  return "";
}

std::string BashScript(const Program& program, const std::vector<Entry>& entries) {
  std::string names, cases;
  const auto add_names = [&names](absl::string_view dash, const std::string& name, const Entry& entry) {
    const bool takes_value = entry.value != Value::kNone && entry.value != Value::kBoolean;
    absl::StrAppend(&names, names.empty() ? "" : " ", dash, name, takes_value ? "=" : "");
    if (entry.value == Value::kBoolean) absl::StrAppend(&names, " ", dash, "no", name);
  };
  for (const Entry& entry : entries) {
    add_names("--", entry.name, entry);
    if (!entry.short_name.empty()) add_names("-", entry.short_name, entry);
    const std::string kind = BashKind(entry);
    if (kind.empty()) continue;
    absl::StrAppend(&cases, "  ", entry.name, " | -", entry.name);
    if (!entry.short_name.empty()) absl::StrAppend(&cases, " | ", entry.short_name, " | -", entry.short_name);
    absl::StrAppend(&cases, ") ", kind, " ;;\n");
  }
  return absl::StrReplaceAll(
      kBash,
      {{"PROGRAM", program.name}, {"CASES", cases}, {"NAMES", names}, {"FILES", program.words.empty() ? "no" : "yes"}});
}

// ---- zsh ----

// Text within the brackets of a specification of _arguments, in single quotes.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshAction(const Entry& entry) {
  switch (entry.value) {
    case Value::kNone:
    case Value::kBoolean:
      return "";
    case Value::kNumber:
      return ":number: ";
    case Value::kChoice:
      return absl::StrCat(":value:", entry.is_list ? "_sequence compadd - " : "(", absl::StrJoin(entry.choices, " "),
                          entry.is_list ? "" : ")");
    case Value::kDirectory:
      return ":directory:_files -/";
    case Value::kFile:
      return ":file:_files";
  }
  return "";
}

std::string ZshScript(const Program& program, const std::vector<Entry>& entries) {
  std::string text =
      absl::StrCat("#compdef ", program.name, "\n# Completion of ", program.name, " in zsh. To use it:  source <(",
                   program.name, " --completion=zsh)\n_", program.name, "_completion() {\n  _arguments");
  const auto add = [&](const std::string& name, const Entry& entry, const std::string& help) {
    const bool takes_value = entry.value != Value::kNone && entry.value != Value::kBoolean;
    absl::StrAppend(&text, " \\\n    '", name, takes_value ? "=" : "", "[", ZshText(help), "]", ZshAction(entry), "'");
  };
  for (const Entry& entry : entries) {
    add(absl::StrCat("--", entry.name), entry, entry.help);
    if (entry.value == Value::kBoolean) add(absl::StrCat("--no", entry.name), entry, absl::StrCat("Not: ", entry.help));
    if (!entry.short_name.empty()) add(absl::StrCat("-", entry.short_name), entry, entry.help);
  }
  if (!program.words.empty()) absl::StrAppend(&text, " \\\n    '*:file:_files'");
  return absl::StrCat(text, "\n}\nif [[ $funcstack[1] == _", program.name, " ]]; then\n  _", program.name,
                      "_completion \"$@\"\nelse\n  compdef _", program.name, "_completion ", program.name, "\nfi\n");
}

// ---- fish ----

std::string FishText(const std::string& text) { return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}); }

std::string FishValue(const Entry& entry) {
  switch (entry.value) {
    case Value::kNone:
    case Value::kBoolean:
      return "";
    case Value::kNumber:
      return " -x";
    case Value::kChoice:
      return absl::StrCat(" -x -a '", entry.is_list ? "(__fish_append , " : "", absl::StrJoin(entry.choices, " "),
                          entry.is_list ? ")" : "", "'");
    case Value::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case Value::kFile:
      return " -r -F";
  }
  return "";
}

std::string FishScript(const Program& program, const std::vector<Entry>& entries) {
  std::string text = absl::StrCat("# Completion of ", program.name, " in fish. To use it:  ", program.name,
                                  " --completion=fish | source\n");
  const auto add = [&](const std::string& names, const Entry& entry, const std::string& help) {
    absl::StrAppend(&text, "complete -c ", program.name, names, FishValue(entry), " -d '", FishText(help), "'\n");
  };
  if (program.words.empty()) absl::StrAppend(&text, "complete -c ", program.name, " -f\n");
  for (const Entry& entry : entries) {
    // fish takes a name of several letters behind one dash for an "old" option.
    const absl::string_view kind = entry.short_name.size() == 1 ? " -s " : " -o ";
    const std::string short_name = entry.short_name.empty() ? "" : absl::StrCat(kind, entry.short_name);
    add(absl::StrCat(" -l ", entry.name, short_name), entry, entry.help);
    if (entry.value == Value::kBoolean)
      add(absl::StrCat(" -l no", entry.name), entry, absl::StrCat("Not: ", entry.help));
  }
  return text;
}

}  // namespace

std::string CompletionScript(const Program& program, const CommandLine& command_line) {
  const std::vector<Entry> entries = EntriesOf(program, command_line);
  if (command_line.request_value() == "zsh") return ZshScript(program, entries);
  return command_line.request_value() == "fish" ? FishScript(program, entries) : BashScript(program, entries);
}

}  // namespace official::flags
