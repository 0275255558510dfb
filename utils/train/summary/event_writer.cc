#include "utils/train/summary/event_writer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/data/png_encoder.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"
#include "utils/protos/event.pb.h"
#include "utils/protos/tensor_conversion.h"

namespace official::train {
namespace {

constexpr absl::string_view kNamePrefix = "events.out.tfevents.";
constexpr int kDigits = 10;  // of the seconds in a name

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// An image float32 [height, width, channels] as bytes; source: NormalizeFloatImage of TensorFlow's summary_image_op.cc.
compute::Tensor ToBytes(const compute::Tensor& image) {
  constexpr uint8_t kNotFinite[] = {255, 0, 0, 255};
  const int64_t channels = image.shape().dim(2);
  const float* const begin = image.data<float>();
  const float* const end = begin + image.num_elements();
  const auto is_finite = [channels](const float* pixel) {
    return std::all_of(pixel, pixel + channels, [](float value) { return std::isfinite(value); });
  };
  float lowest = 0, largest = 0;  // the largest of the absolute values
  for (const float* pixel = begin; pixel != end; pixel += channels) {
    if (!is_finite(pixel)) continue;
    for (int64_t c = 0; c < channels; ++c) {
      lowest = std::min(lowest, pixel[c]);
      largest = std::max(largest, std::abs(pixel[c]));
    }
  }
  const float offset = lowest < 0 ? 128 : 0, range = lowest < 0 ? 127 : 255;
  const float scale = largest < 1e-6f ? 0 : range / largest;
  const compute::Tensor bytes(compute::DType::kUInt8, image.shape());
  uint8_t* out = bytes.data<uint8_t>();
  for (const float* pixel = begin; pixel != end; pixel += channels, out += channels) {
    if (is_finite(pixel)) {
      std::transform(pixel, pixel + channels, out, [=](float v) { return static_cast<uint8_t>(v * scale + offset); });
    } else {
      std::copy(kNotFinite, kNotFinite + channels, out);
    }
  }
  return bytes;
}

// Returns a name for a new event file that sorts after those that are there. They may have it already, with suffixes.
absl::StatusOr<std::string> NewName(const std::string& directory) {
  const auto name_at = [](int64_t seconds) {
    return absl::StrFormat("%s%0*d.%s", kNamePrefix, kDigits, seconds, HostName());
  };
  std::string name = name_at(static_cast<int64_t>(SecondsSince1970()));
  ASSIGN_OR_RETURN(const std::vector<std::string> others, files::ListDirectory(directory));
  for (const std::string& other : others) {
    absl::string_view rest = other;
    if (other < name || absl::StartsWith(other, name) || !absl::ConsumePrefix(&rest, kNamePrefix)) continue;
    const absl::string_view digits = rest.substr(0, rest.find('.'));
    int64_t seconds;
    if (digits.size() == kDigits && absl::SimpleAtoi(digits, &seconds)) name = name_at(seconds + 1);
  }
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Open(const std::string& directory, EventFlushing flushing) {
  RETURN_IF_ERROR(files::MakeDirectories(directory));
  ASSIGN_OR_RETURN(const std::string name, NewName(directory));
  const std::string path = files::JoinPath(directory, name);
  auto records = data::TFRecordWriter::Open(path, data::Compression::kNone, files::FileWriter::Mode::kCreateNew);
  // A second writer in the same second gets a name that sorts, and so is read, after the first.
  for (int i = 1; absl::IsAlreadyExists(records.status()) && i < 1000; ++i) {
    records = data::TFRecordWriter::Open(absl::StrFormat("%s.%03d", path, i), data::Compression::kNone,
                                         files::FileWriter::Mode::kCreateNew);
  }
  RETURN_IF_ERROR(records.status());
  std::unique_ptr<EventWriter> writer(new EventWriter(*std::move(records), flushing));
  tensorflow::Event event;
  event.set_file_version("brain.Event:2");
  RETURN_IF_ERROR(writer->Write(event));
  RETURN_IF_ERROR(writer->Flush());
  return writer;
}

absl::Status EventWriter::Write(tensorflow::Event& event) {
  event.set_wall_time(SecondsSince1970());
  RETURN_IF_ERROR(records_->Write(event.SerializeAsString()));
  ++num_pending_;
  const bool is_due = num_pending_ >= flushing_.max_pending || Clock::now() - last_flush_ >= flushing_.max_age;
  return is_due ? Flush() : absl::OkStatus();
}

absl::Status EventWriter::AddScalars(int64_t step, absl::Span<const Scalar> scalars) {
  tensorflow::Event event;
  event.set_step(step);
  for (const auto& [tag, scalar] : scalars) {
    tensorflow::Summary::Value* const value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(scalar);
  }
  return Write(event);
}

absl::Status EventWriter::AddImages(int64_t step, absl::string_view tag, const compute::Tensor& images,
                                    int64_t max_images) {
  const compute::Shape& shape = images.shape();
  const compute::TensorType type{images.dtype(), compute::Shape(shape.dims().subspan(1))};
  tensorflow::Event event;
  event.set_step(step);
  for (int64_t i = 0; i < std::min(shape.dim(0), max_images); ++i) {
    const compute::Tensor image(type, images.data<float>() + i * type.shape.num_elements());
    tensorflow::Summary::Value* const value = event.mutable_summary()->add_value();
    value->set_tag(absl::StrCat(tag, "/image/", i));
    value->mutable_image()->set_height(static_cast<int32_t>(shape.dim(1)));
    value->mutable_image()->set_width(static_cast<int32_t>(shape.dim(2)));
    value->mutable_image()->set_colorspace(static_cast<int32_t>(shape.dim(3)));
    value->mutable_image()->set_encoded_image_string(data::EncodePng(ToBytes(image)));
  }
  return Write(event);
}

absl::Status EventWriter::AddText(int64_t step, absl::string_view tag, absl::string_view text) {
  return WriteText(step, tag, StringTensorProto(misc::ReplaceInvalidUtf8(text)));
}

absl::Status EventWriter::AddTextTable(int64_t step, absl::string_view tag,
                                       const std::vector<std::vector<std::string>>& rows) {
  tensorflow::TensorProto table;
  table.set_dtype(tensorflow::DT_STRING);
  for (const size_t size : {rows.size(), rows[0].size()}) {
    table.mutable_tensor_shape()->add_dim()->set_size(static_cast<int64_t>(size));
  }
  for (const std::vector<std::string>& row : rows) {
    OFFICIAL_CHECK(row.size() == rows[0].size());
    for (const std::string& cell : row) table.add_string_val(misc::ReplaceInvalidUtf8(cell));
  }
  return WriteText(step, tag, std::move(table));
}

absl::Status EventWriter::WriteText(int64_t step, absl::string_view tag, tensorflow::TensorProto tensor) {
  tensorflow::Event event;
  event.set_step(step);
  tensorflow::Summary::Value* const value = event.mutable_summary()->add_value();
  value->set_tag(absl::StrCat(tag, "/text_summary"));  // as TensorFlow 1.x names it
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  *value->mutable_tensor() = std::move(tensor);
  return Write(event);
}

absl::Status EventWriter::AddSessionLog(int64_t step, SessionStatus status, absl::string_view checkpoint_path) {
  tensorflow::Event event;
  event.set_step(step);
  event.mutable_session_log()->set_status(status == SessionStatus::kStart ? tensorflow::SessionLog::START
                                                                          : tensorflow::SessionLog::CHECKPOINT);
  event.mutable_session_log()->set_checkpoint_path(misc::ReplaceInvalidUtf8(checkpoint_path));
  return Write(event);
}

absl::Status EventWriter::AddRunMetadata(int64_t step, absl::string_view tag, absl::string_view run_metadata) {
  tensorflow::Event event;
  event.set_step(step);
  event.mutable_tagged_run_metadata()->set_tag(std::string(tag));
  event.mutable_tagged_run_metadata()->set_run_metadata(run_metadata.data(), run_metadata.size());
  return Write(event);
}

absl::Status EventWriter::AddGraphDef(absl::string_view graph_def) {
  tensorflow::Event event;
  event.set_graph_def(graph_def.data(), graph_def.size());
  return Write(event);
}

absl::Status EventWriter::Flush() {
  num_pending_ = 0;
  last_flush_ = Clock::now();
  return records_->Flush();
}

absl::Status EventWriter::Close() { return records_->Close(); }

}  // namespace official::train
