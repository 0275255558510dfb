// A run as its directory tells of it: the curves of event files and metric.log, flags.txt, benchmark_run.log.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "official/report/series.h"
#include "official/report/trace_file.h"

namespace official::report {

enum class Split { kTraining, kEvaluation };

// A curve: what is measured, and on which examples. Curves of the same name are drawn in one graph.
using CurveKey = std::pair<std::string, Split>;
using Curves = std::map<CurveKey, Series>;

// Curves beyond this number of a run are left out.
inline constexpr size_t kMaxCurves = 200;

// Adds a value to the curve of this key, if there is room for the curve.
void AddValue(const CurveKey& key, int64_t step, double value, Curves& curves);

struct Image {
  std::string tag;  // in the event file: "images/image/0"
  std::string png;
  int64_t step = 0;
};

// Examples of an evaluation with what was predicted for them, as --eval_samples records them.
struct Samples {
  int64_t step = 0;                              // of the evaluation
  std::vector<std::string> columns{};            // the names of the texts
  std::vector<std::vector<std::string>> rows{};  // of each example, a text for each column
  std::map<size_t, std::string> pngs{};          // the image of an example, by its place in `rows`
};
inline constexpr size_t kMaxSamples = 100, kMaxSampleColumns = 16, kMaxSampleBytes = 1 << 20;  // of a table

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

struct Run {
  std::string path;  // as it was given
  Curves curves{};
  std::optional<double> first_time{}, last_time{};  // of events, seconds since 1970
  std::vector<Image> images{};                      // those of the last step that has any
  Samples samples{};                                // of the last evaluation that has any
  NamedTexts flags{};                               // of the last run in the directory, without --
  NamedTexts facts{};                               // model, data, machine, versions: name and value
  std::string trace_file{};                         // the name of the timeline that op_times are from
  std::vector<OpTime> op_times{};                   // those that take the most time first
  std::vector<std::string> notes{};                 // files that could not be read to their ends, and why

  std::string Fact(const std::string& name) const;  // "" if it is not known
  int64_t last_step() const;                        // of all curves; 0 without any
};

// Reads the directory of a run, which may be written to meanwhile: the end of a file that is not yet complete is left
// out. Damaged files are used up to the damage, with a note. NotFound if there is no such directory or it has no record
// of a run; DataLoss if it has some but nothing in them can be used; PermissionDenied. The memory used does not depend
// on the length of the files.
absl::StatusOr<Run> ReadRun(const std::string& path);

}  // namespace official::report
