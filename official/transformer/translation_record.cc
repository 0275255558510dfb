#include "official/transformer/translation_record.h"

#include <limits>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/example.h"

namespace official::transformer {
namespace {

absl::Status ParseIds(const data::ExampleView& example, absl::string_view name, std::vector<int64_t>* ids) {
  RETURN_IF_ERROR(example.Int64s(name, ids));
  if (ids->empty()) return absl::DataLossError(absl::StrFormat("feature %s has no ids", name));
  for (const int64_t id : *ids) {
    if (id >= 0 && id <= std::numeric_limits<int32_t>::max()) continue;
    return absl::DataLossError(
        absl::StrFormat("feature %s has the id %d, expected one of at least 0 and below 2^31", name, id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseTranslation(absl::string_view serialized, std::vector<int64_t>* inputs,
                              std::vector<int64_t>* targets) {
  ASSIGN_OR_RETURN(const data::ExampleView example, data::ExampleView::Parse(serialized));
  RETURN_IF_ERROR(ParseIds(example, "inputs", inputs));
  return ParseIds(example, "targets", targets);
}

}  // namespace official::transformer
