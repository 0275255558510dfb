#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

void PrintCheckpoint(const std::string& prefix, bool is_opened, bool json, std::ostream& out) {
  if (json) {
    flags::PrintJson({{"event", "checkpoint"}, {"path", prefix}, {"latest", is_opened}}, out);
  } else {
    out << "checkpoint " << prefix << (is_opened ? " (latest)" : "") << "\n";
  }
}

void PrintVariablesAsJson(const std::vector<StoredTensor>& variables, std::ostream& out) {
  for (const StoredTensor& variable : variables) {
    logs::Json::Array shape(variable.shape.dims().begin(), variable.shape.dims().end());
    flags::PrintJson({{"event", "variable"},
                      {"name", variable.name},
                      {"dtype", variable.dtype_name},
                      {"shape", std::move(shape)},
                      {"bytes", variable.num_bytes}},
                     out);
  }
}

void PrintVariables(const std::vector<StoredTensor>& variables, std::ostream& out) {
  size_t name_width = 0, type_width = 0;
  for (const StoredTensor& variable : variables) {
    name_width = std::max(name_width, misc::Printable(variable.name).size());
    type_width = std::max(type_width, TypeText(variable).size());
  }
  for (const StoredTensor& variable : variables) {
    out << absl::StrFormat("%-*s  %-*s  %12d\n", static_cast<int>(name_width), misc::Printable(variable.name),
                           static_cast<int>(type_width), TypeText(variable), variable.num_bytes);
  }
}

}  // namespace

absl::Status List(const Words& words, const Options& options, std::ostream& out) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(words[0]));
  const std::string directory = train::CheckpointNamed(words[0]);
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, train::ListCheckpoints(directory));
    for (const std::string& prefix : prefixes) {
      PrintCheckpoint(prefix, prefix == checkpoint.path, options.json, out);
    }
  }
  const std::vector<StoredTensor> variables = checkpoint.reader->ListTensors();
  int64_t num_bytes = 0;
  for (const StoredTensor& variable : variables) num_bytes += variable.num_bytes;
  if (options.json) {
    PrintVariablesAsJson(variables, out);
    flags::PrintJson({{"event", "end"},
                      {"path", checkpoint.path},
                      {"variables", static_cast<int64_t>(variables.size())},
                      {"bytes", num_bytes}},
                     out);
    return absl::OkStatus();
  }
  PrintVariables(variables, out);
  out << absl::StrFormat("%d variables, %d bytes in %s\n", variables.size(), num_bytes, checkpoint.path);
  return absl::OkStatus();
}

}  // namespace official::checkpoint_tool
