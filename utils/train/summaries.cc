#include "utils/train/summaries.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/train/summary/graph_summary.h"

namespace official::train {
namespace {

constexpr int64_t kShownImages = 6;  // of a batch

}  // namespace

StepSummaries::StepSummaries(CheckpointedModel& model, const ReplicatedProgram& program)
    : model_(model),
      names_({"learning_rate"}),
      tags_({model.model().learning_rate_tag}),
      last_step_(model.state().global_step) {
  const BuiltModel& built = program.model();
  names_.insert(names_.end(), built.fetch_names.begin() + 1, built.fetch_names.end());
  tags_.insert(tags_.end(), built.fetch_tags.begin() + 1, built.fetch_tags.end());
  for (const BuiltModel::Metric& metric : built.metrics) {
    names_.push_back(metric.name);
    tags_.push_back(metric.summary_tag);
  }
}

absl::StatusOr<StepSummaries::Scalars> StepSummaries::Read(const ReplicatedProgram& program, float learning_rate) {
  const BuiltModel& built = program.model();
  Scalars values = {{"learning_rate", learning_rate}};
  for (size_t i = 1; i < built.fetch_names.size(); ++i) {
    ASSIGN_OR_RETURN(const double value, model_.replicas().MeanFetch(program, static_cast<int>(i)));
    values.emplace_back(built.fetch_names[i], value);
  }
  for (const BuiltModel::Metric& metric : built.metrics) {
    ASSIGN_OR_RETURN(const double value, model_.replicas().MetricValue(metric));
    values.emplace_back(metric.name, value);
  }
  return values;
}

absl::Status StepSummaries::WriteTrace(absl::Span<const logs::DeviceTrace> trace) {
  if (!model_.dir().writes()) return absl::OkStatus();
  const int64_t step = model_.state().global_step;
  return model_.dir().train_events().AddRunMetadata(step, absl::StrCat("step_", step), RunMetadataOf(trace));
}

absl::Status StepSummaries::Flush() {
  return model_.dir().writes() ? model_.dir().train_events().Flush() : absl::OkStatus();
}

absl::Status StepSummaries::Write(const data::Batch& batch, double loss, const Scalars& values, Clock::time_point now) {
  if (!model_.dir().writes()) return absl::OkStatus();
  const int64_t step = model_.state().global_step;
  std::vector<EventWriter::Scalar> scalars = {{"loss", static_cast<float>(loss)}};
  for (size_t i = 0; i < values.size(); ++i) scalars.emplace_back(tags_[i], static_cast<float>(values[i].second));
  if (last_step_ > 0) {
    const std::chrono::duration<double> elapsed = now - last_time_;
    scalars.emplace_back("global_step/sec",
                         static_cast<float>(static_cast<double>(step - last_step_) / elapsed.count()));
    const std::chrono::duration<double> waited = data_wait_;
    scalars.emplace_back("data_wait_fraction", static_cast<float>(std::min(1.0, waited / elapsed)));
  }
  if (model_.config().servers.max_gradient_staleness) {
    scalars.emplace_back("Gradient staleness percentage",
                         static_cast<float>(model_.num_dropped_gradients()) / static_cast<float>(step + 1));
  }
  last_time_ = now;
  last_step_ = step;
  data_wait_ = {};
  EventWriter& events = model_.dir().train_events();
  RETURN_IF_ERROR(events.AddScalars(step, scalars));
  const std::optional<size_t> images = model_.model().image_feature;
  if (!images) return absl::OkStatus();
  // Of the rows of other workers there is nothing; the chief holds the first.
  int64_t held = 0;
  model_.replicas().held_rows(Mode::kTrain).ForRanges(batch.num_examples, [&](int64_t begin, int64_t end) {
    if (begin == held) held = end;
  });
  return events.AddImages(step, "images", batch.features[*images], std::min(kShownImages, held));
}

logs::DeviceTrace TraceOf(const std::vector<compute::KernelTiming>& timings, int64_t start_us,
                          absl::string_view device) {
  logs::DeviceTrace trace{.device = absl::StrCat("/device:", absl::AsciiStrToUpper(device))};
  for (const compute::KernelTiming& t : timings) {
    trace.events.push_back({.name = t.name,
                            .op = t.op,
                            .result = t.result,
                            .algorithm = t.algorithm,
                            .start_us = start_us + (t.start_ns - timings[0].start_ns) / 1000,
                            .duration_us = t.duration_ns / 1000,
                            .flops = t.flops,
                            .bytes = t.bytes});
  }
  return trace;
}

}  // namespace official::train
