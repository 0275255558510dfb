// The names of the files in the directory of a run, its --model_dir, that more than one part of the code names, and the
// copy of those that programs read beside a checkpoint. train/model_dir.h lists all that a training writes there.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::misc {

// All flags of the last training, one a line as --name=value. A training writes it when it begins, right before its
// first checkpoint. Programs that use what was trained, and a training that resumes, read the flags of the network from
// it; report_main shows it.
inline constexpr absl::string_view kFlagsFile = "flags.txt";

// The names of the classes of an image data set, one a line. The conversion of the data writes it next to the records,
// a training of ResNet copies it here before it writes the flags. ResNet's predictions and the server read it.
inline constexpr absl::string_view kClassNamesFile = "labels.txt";

// With --benchmark_logger_type=BenchmarkFileLogger, in --benchmark_log_dir or else here: the metrics, a line of JSON
// each. A training appends its own and those of its evaluations; report_main draws them.
inline constexpr absl::string_view kMetricLog = "metric.log";

// In the same directory: the model, the data, the machine and the parameters of the run, as JSON. A run writes it when
// it begins; report_main shows it.
inline constexpr absl::string_view kRunLog = "benchmark_run.log";

// The state file, in TensorFlow's form: it names the latest checkpoint and those that are kept. A training writes it
// after each checkpoint; train/checkpoint/checkpoint_dir.h reads it for all that look for the latest one.
inline constexpr absl::string_view kStateFile = "checkpoint";

// A checkpoint of a training is named "model.ckpt-<step>", which begins the names of its files.
inline constexpr absl::string_view kCheckpointPrefix = "model.ckpt-";

// The index of a checkpoint: the names of its tensors, and where they are in the data. It gets its name after the
// data and is removed before them: without it there is no checkpoint.
inline constexpr absl::string_view kIndexSuffix = ".index";

// The values of the tensors. This is the only shard that we write; TensorFlow may have written several.
inline constexpr absl::string_view kDataSuffix = ".data-00000-of-00001";

// With --save_meta_graph: the graph that TensorFlow restores the checkpoint into. Only TensorFlow reads it.
inline constexpr absl::string_view kMetaSuffix = ".meta";

// The files that programs read beside a checkpoint in --model_dir.
inline constexpr absl::string_view kRunFiles[] = {kFlagsFile, kClassNamesFile};

// Copies kRunFiles, as far as they are there, from one directory to another, which exists. A copy that has the same
// contents already is not written again. Errors of the file system; DataLoss if a file is larger than 16 MiB.
absl::Status CopyRunFiles(const std::string& from, const std::string& to);

}  // namespace official::misc
