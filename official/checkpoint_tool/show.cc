#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "official/checkpoint_tool/values.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/misc/text.h"

namespace official::checkpoint_tool {
namespace {

using compute::Tensor;
using train::StoredTensor;

logs::Json::Object Head(const StoredTensor& variable) {
  return {{"event", "variable"},
          {"name", variable.name},
          {"dtype", variable.dtype_name},
          {"shape", logs::Json::Array(variable.shape.dims().begin(), variable.shape.dims().end())}};
}

void PrintTensor(const StoredTensor& variable, const Tensor& tensor, const Options& options, std::ostream& out) {
  const Statistics statistics = StatisticsOf(tensor);
  const int64_t shown = std::min<int64_t>(options.num_values, tensor.num_elements());
  if (options.json) {
    logs::Json::Array values;
    for (int64_t i = 0; i < shown; ++i) values.push_back(ElementJson(tensor, i));
    logs::Json::Object object = Head(variable);
    object.insert(object.end(), {{"min", statistics.min},
                                 {"max", statistics.max},
                                 {"mean", statistics.mean},
                                 {"std", statistics.std},
                                 {"not_finite", statistics.num_nonfinite},
                                 {"values", std::move(values)}});
    return flags::PrintJson(std::move(object), out);
  }
  out << misc::Printable(variable.name) << "  " << TypeText(variable) << "\n  "
      << absl::StrFormat("min %.6g, max %.6g, mean %.6g, std %.6g, %d not finite\n ", statistics.min, statistics.max,
                         statistics.mean, statistics.std, statistics.num_nonfinite);
  for (int64_t i = 0; i < shown; ++i) out << " " << ElementText(tensor, i);
  out << (shown < tensor.num_elements() ? " ...\n" : "\n");
}

void PrintStrings(const StoredTensor& variable, std::vector<std::string> texts, const Options& options,
                  std::ostream& out) {
  texts.resize(std::min<size_t>(texts.size(), options.num_values));
  if (options.json) {
    logs::Json::Object object = Head(variable);
    object.emplace_back("values", logs::Json::Array(texts.begin(), texts.end()));
    return flags::PrintJson(std::move(object), out);
  }
  out << misc::Printable(variable.name) << "  " << TypeText(variable) << "\n ";
  for (const std::string& text : texts) out << " \"" << misc::Printable(text) << "\"";
  out << (static_cast<int64_t>(texts.size()) < variable.shape.num_elements() ? " ...\n" : "\n");
}

}  // namespace

absl::Status Show(const Words& words, const Options& options, std::ostream& out) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(words[0]));
  std::vector<std::string> names(words.begin() + 1, words.end());
  for (const std::string& name : names) RETURN_IF_ERROR(CheckHasVariable(checkpoint, name));
  const bool all = names.empty();
  if (all) {
    for (const StoredTensor& variable : checkpoint.reader->ListTensors()) names.push_back(variable.name);
  }
  for (const std::string& name : names) {
    const StoredTensor variable = *checkpoint.reader->Find(name);
    if (variable.dtype_name == "string") {
      absl::StatusOr<std::vector<std::string>> texts = checkpoint.reader->ReadStrings(name);
      if (all && absl::IsUnimplemented(texts.status())) continue;  // they are too many, say
      RETURN_IF_ERROR(texts.status());
      PrintStrings(variable, *std::move(texts), options, out);
      continue;
    }
    const absl::StatusOr<Tensor> tensor = checkpoint.reader->Read(name);
    if (all && absl::IsUnimplemented(tensor.status())) continue;  // its values cannot be shown
    RETURN_IF_ERROR(tensor.status());
    PrintTensor(variable, *tensor, options, out);
  }
  return absl::OkStatus();
}

}  // namespace official::checkpoint_tool
