#include "official/report/event_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/tf_record.h"
#include "utils/protos/event.pb.h"

namespace official::report {
namespace {

constexpr size_t kMaxImages = 12;
constexpr size_t kMaxImageBytes = 1 << 18;
constexpr double kMaxTime = 1e11;  // seconds since 1970; a damaged time could be any number
// The tags of the texts of samples, and of their images without the numbers.
constexpr absl::string_view kSampleTexts = "samples/text_summary", kSampleImages = "samples/image/";
constexpr absl::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

void AddImage(const tensorflow::Summary::Value& value, int64_t step, Split split, Run& run) {
  const std::string& png = value.image().encoded_image_string();
  if (!absl::StartsWith(png, kPngSignature) || png.size() > kMaxImageBytes) return;
  if (split == Split::kEvaluation) {
    absl::string_view number = value.tag();
    size_t example;
    if (absl::ConsumePrefix(&number, kSampleImages) && absl::SimpleAtoi(number, &example) && example < kMaxSamples) {
      run.samples.pngs[example] = png;
    }
    return;
  }
  if (!run.images.empty() && run.images.back().step != step) run.images.clear();
  if (run.images.size() < kMaxImages) run.images.push_back({value.tag(), png, step});
}

// The rows of a table of strings: at least two of at least one cell. Nothing if it is no such table, or a huge one.
std::optional<std::vector<std::vector<std::string>>> RowsOf(const tensorflow::TensorProto& table) {
  const auto& dims = table.tensor_shape().dim();
  if (table.dtype() != tensorflow::DT_STRING || dims.size() != 2) return std::nullopt;
  const int64_t num_rows = dims[0].size(), num_columns = dims[1].size();
  if (num_rows < 2 || num_rows > int64_t{kMaxSamples} + 1) return std::nullopt;
  if (num_columns < 1 || num_columns > int64_t{kMaxSampleColumns}) return std::nullopt;
  if (table.string_val_size() != num_rows * num_columns || table.ByteSizeLong() > kMaxSampleBytes) return std::nullopt;
  std::vector<std::vector<std::string>> rows(num_rows);
  for (int i = 0; i < table.string_val_size(); ++i) rows[i / num_columns].push_back(table.string_val(i));
  return rows;
}

void AddSamples(const tensorflow::Summary::Value& value, int64_t step, const std::string& path, Run& run) {
  auto rows = RowsOf(value.tensor());
  if (!rows) {
    // Where some are bad, others may be; one note is enough.
    if (!run.notes.empty() && absl::StartsWith(run.notes.back(), path)) return;
    run.notes.push_back(absl::StrCat(path, ": the samples of step ", step, " are not a table of texts"));
    return;
  }
  run.samples.step = step;
  run.samples.columns = std::move(rows->front());
  rows->erase(rows->begin());
  run.samples.rows = *std::move(rows);
}

void AddEvent(const tensorflow::Event& event, Split split, const std::string& path, Run& run) {
  if (event.wall_time() > 0 && event.wall_time() <= kMaxTime) {
    run.first_time = std::min(run.first_time.value_or(event.wall_time()), event.wall_time());
    run.last_time = std::max(run.last_time.value_or(event.wall_time()), event.wall_time());
  }
  if (event.has_session_log() && event.session_log().status() == tensorflow::SessionLog::START) {
    for (auto& [key, series] : run.curves) {
      if (key.second == split) series.ForgetFrom(event.step());
    }
  }
  for (const tensorflow::Summary::Value& value : event.summary().value()) {
    if (value.has_image()) {
      AddImage(value, event.step(), split, run);
    } else if (split == Split::kEvaluation && value.tag() == kSampleTexts) {
      AddSamples(value, event.step(), path, run);
    } else if (value.value_case() == tensorflow::Summary::Value::kSimpleValue && value.tag() != "global_step") {
      AddValue({CurveName(value.tag(), split), split}, event.step(), value.simple_value(), run.curves);
    }
  }
}

}  // namespace

std::string CurveName(const std::string& tag, Split split) {
  if (split == Split::kEvaluation) return tag;
  if (tag == "global_step/sec") return "steps_per_sec";
  return std::string(absl::StripPrefix(absl::StripSuffix(tag, "_1"), "train_"));
}

absl::Status ReadEventFile(const std::string& path, Split split, Run& run, logs::TaskProgress& progress) {
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path));
  std::string record;
  tensorflow::Event event;
  int64_t counted = 0;  // bytes of the file
  while (true) {
    const absl::StatusOr<bool> found = reader->Next(&record);
    progress.Add(reader->record_offset() - std::exchange(counted, reader->record_offset()));
    if (!found.ok()) {
      if (!absl::IsDataLoss(found.status())) return found.status();
      if (!absl::StrContains(absl::StripPrefix(found.status().message(), path), "truncated")) {
        run.notes.emplace_back(found.status().message());
      }
      return absl::OkStatus();
    }
    if (!*found) return absl::OkStatus();
    if (event.ParseFromString(record)) {
      AddEvent(event, split, path, run);
    } else {
      run.notes.push_back(absl::StrCat(path, ": a record is not an event"));
      return absl::OkStatus();
    }
  }
}

}  // namespace official::report
