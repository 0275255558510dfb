#include "official/report/event_files.h"

#include <algorithm>

#include "absl/strings/match.h"
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
constexpr absl::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

void AddImage(const tensorflow::Summary::Value& value, int64_t step, Run& run) {
  const std::string& png = value.image().encoded_image_string();
  if (!absl::StartsWith(png, kPngSignature) || png.size() > kMaxImageBytes) return;
  if (!run.images.empty() && run.images.back().step != step) run.images.clear();
  if (run.images.size() < kMaxImages) run.images.push_back({value.tag(), png, step});
}

void AddEvent(const tensorflow::Event& event, Split split, Run& run) {
  if (event.wall_time() > 0 && event.wall_time() <= kMaxTime) {
    run.first_time = std::min(run.first_time.value_or(event.wall_time()), event.wall_time());
    run.last_time = std::max(run.last_time.value_or(event.wall_time()), event.wall_time());
  }
  if (event.has_session_log() && event.session_log().status() == tensorflow::SessionLog::START) {
    for (auto& [key, series] : run.curves) {
      if (key.second == split) series.ForgetFrom(event.step() + 1);
    }
  }
  for (const tensorflow::Summary::Value& value : event.summary().value()) {
    if (value.has_image()) {
      AddImage(value, event.step(), run);
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

absl::Status ReadEventFile(const std::string& path, Split split, Run& run) {
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path));
  std::string record;
  tensorflow::Event event;
  while (true) {
    const absl::StatusOr<bool> found = reader->Next(&record);
    if (!found.ok()) {
      if (!absl::IsDataLoss(found.status())) return found.status();
      if (!absl::StrContains(absl::StripPrefix(found.status().message(), path), "truncated")) {
        run.notes.emplace_back(found.status().message());
      }
      return absl::OkStatus();
    }
    if (!*found) return absl::OkStatus();
    if (event.ParseFromString(record)) {
      AddEvent(event, split, run);
    } else {
      run.notes.push_back(absl::StrCat(path, ": a record is not an event"));
      return absl::OkStatus();
    }
  }
}

}  // namespace official::report
