// Event files, which TensorBoard shows: events.out.tfevents.<seconds since 1970>.<host> in the directory of a run. It
// reads them in the order of their names: where the clock was set back, the seconds are one more than the latest there.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/records/tf_record.h"

namespace tensorflow {
class Event;
class TensorProto;
}  // namespace tensorflow

namespace official::train {

// When an event makes an EventWriter flush; the defaults are those of TensorFlow's FileWriter.
struct EventFlushing {
  int max_pending = 10;               // events since the last flush, this one included
  std::chrono::seconds max_age{120};  // since the last flush
};

// Appends events to its own file, for one thread at a time. Errors are those of the file system (utils/files). Events
// not flushed yet are lost if the process dies; TensorBoard tolerates a truncated record. It does not tolerate texts
// and paths that are not UTF-8: U+FFFD takes the place of such bytes.
class EventWriter {
 public:
  using Scalar = std::pair<std::string, float>;  // tag, value; NaN and infinity are legal

  enum class SessionStatus {
    // The first step of a session. TensorBoard forgets what it has read of it and of later steps, also in the same
    // file: it was lost by a restart.
    kStart,
    kCheckpoint,  // a checkpoint was saved
  };

  // Makes the directory if necessary. Each writer begins a new file.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory, EventFlushing flushing = {});

  // Adds scalars; those whose tags have the same part before the first "/" are shown in one group.
  absl::Status AddScalars(int64_t step, absl::Span<const Scalar> scalars);
  // Adds the first `max_images` of images [n, height, width, channels], float32 with 1, 3 or 4 channels, under
  // `tag`/image/0 and so on. Each is scaled separately, as tf.summary.image does: without negative values the largest
  // becomes 255, else 0 becomes 128 and the largest absolute value is 127 from it. A pixel that is not finite is red.
  absl::Status AddImages(int64_t step, absl::string_view tag, const compute::Tensor& images, int64_t max_images);
  // Adds a Markdown text, shown under `tag`.
  absl::Status AddText(int64_t step, absl::string_view tag, absl::string_view text);
  // Adds a table of Markdown texts, rows of equally many cells and at least one of them, shown under `tag`.
  absl::Status AddTextTable(int64_t step, absl::string_view tag, const std::vector<std::vector<std::string>>& rows);
  // Adds a session log. `checkpoint_path` is for kCheckpoint; TensorFlow uses the prefix without the step
  // ("<model_dir>/model.ckpt").
  absl::Status AddSessionLog(int64_t step, SessionStatus status, absl::string_view checkpoint_path = "");
  // Adds `run_metadata`, a serialized tensorflow.RunMetadata.
  absl::Status AddRunMetadata(int64_t step, absl::string_view tag, absl::string_view run_metadata);
  // Adds `graph_def`, a serialized tensorflow.GraphDef.
  absl::Status AddGraphDef(absl::string_view graph_def);

  // Makes all events so far visible to TensorBoard.
  absl::Status Flush();
  // Flushes and closes the file.
  absl::Status Close();

  const std::string& path() const { return records_->path(); }

 private:
  using Clock = std::chrono::steady_clock;

  EventWriter(std::unique_ptr<data::TFRecordWriter> records, EventFlushing flushing)
      : records_(std::move(records)), flushing_(flushing) {}
  // Stamps the event with the present time, appends it, and flushes if that is due.
  absl::Status Write(tensorflow::Event& event);
  // Adds strings for the text plugin.
  absl::Status WriteText(int64_t step, absl::string_view tag, tensorflow::TensorProto tensor);

  std::unique_ptr<data::TFRecordWriter> records_;
  const EventFlushing flushing_;
  int num_pending_ = 0;  // events since the last flush
  Clock::time_point last_flush_ = Clock::now();
};

}  // namespace official::train
