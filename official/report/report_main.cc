// report_main MODEL_DIR...: writes a page about runs, with their curves, and prints a summary.
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "official/report/page.h"
#include "official/report/run.h"
#include "official/report/summary.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/logs/log.h"

ABSL_FLAG(std::optional<std::string>, output_file, std::nullopt, "The file that the page is written to.");

namespace official::report {
namespace {

constexpr size_t kMaxRuns = 64;
constexpr absl::string_view kBeginning = "<!DOCTYPE html>";

flags::Program ReportProgram() {
  return {
      .name = "report_main",
      .description =
          "Shows training runs: writes a page (HTML, one file, which needs no network) with the curves of loss, "
          "metrics, learning rate and speed, the flags and the machine, and prints a summary. Several runs are drawn "
          "in the same graphs, and flags that differ are marked. A run may still be training.",
      .examples = {{"report_main run1", "write run1/report.html"},
                   {"report_main run1 run2 --output_file=runs.html", "compare two runs"},
                   {"report_main run1 --output=json", "the summary as JSON, one object a line"}},
      .flags = {.name = "report_main",
                .flags = {{.name = "output_file",
                           .key = true,
                           .unset_means = "report.html in the directory of the run, or here if there are several runs"},
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = "MODEL_DIR...",
      .shared_flags = false,
  };
}

absl::Status CheckWords(const std::vector<std::string>& words) {
  if (words.empty()) {
    return absl::InvalidArgumentError("name the directory of a run, its --model_dir; --help has examples");
  }
  if (words.size() > kMaxRuns) {
    return absl::InvalidArgumentError(
        absl::StrCat("here are ", words.size(), " directories; one page shows at most ", kMaxRuns));
  }
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (word.empty()) return absl::InvalidArgumentError("the name of a directory is empty");
    if (!seen.insert(word).second) return absl::InvalidArgumentError(absl::StrCat("the run ", word, " is named twice"));
  }
  return absl::OkStatus();
}

std::string OutputFile(const std::vector<std::string>& words) {
  if (absl::GetFlag(FLAGS_output_file)) return *absl::GetFlag(FLAGS_output_file);
  return words.size() == 1 ? files::JoinPath(words[0], "report.html") : "report.html";
}

// A mistyped name must not replace a file that is no page.
absl::Status CheckOutputFile(const std::string& path) {
  const std::string directory = files::DirectoryOf(path);
  if (!files::Exists(directory)) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no directory ", directory, " for the page; make it, or give another --output_file"));
  }
  const auto file = files::RandomAccessFile::Open(path);
  std::string beginning(kBeginning.size(), '\0');
  if (file.ok() && (*file)->size() > 0 &&
      !((*file)->Read(0, static_cast<int64_t>(beginning.size()), beginning.data()).ok() && beginning == kBeginning)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is not an HTML page and is not replaced; give another --output_file"));
  }
  return files::CheckOutput(path);
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  const std::vector<std::string>& words = command_line.words();
  RETURN_IF_ERROR(CheckWords(words));
  std::vector<Run> runs;
  for (const std::string& word : words) {
    ASSIGN_OR_RETURN(runs.emplace_back(), ReadRun(word));
  }
  const std::string path = OutputFile(words);
  RETURN_IF_ERROR(CheckOutputFile(path));
  RETURN_IF_ERROR(files::WriteOutput(path, Page(runs)));
  const TextStyle style = StyleOfStandardOutput();
  for (const Run& run : runs) {
    for (const std::string& note : run.notes) LOG(WARNING) << note;
    if (flags::WantsJson()) {
      PrintJsonSummary(run, std::cout);
    } else {
      PrintSummary(run, style, std::cout);
    }
  }
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"}, {"page", path}}, std::cout);
  } else {
    std::cout << "page: " << path << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::report

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::report::ReportProgram(), official::report::Main);
}
