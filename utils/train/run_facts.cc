#include "utils/train/run_facts.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "utils/logs/log.h"

namespace official::train {
namespace {

std::string KeyOf(const RunFact& fact) { return absl::StrCat("_run/", fact.name); }

}  // namespace

absl::Status CompareFacts(const BundleReader& checkpoint, std::vector<RunFact>& facts) {
  for (RunFact& fact : facts) {
    const std::optional<StoredTensor> stored = checkpoint.Find(KeyOf(fact));
    if (!stored) continue;
    // A fact is one string. Others are not read: a hostile checkpoint may have a million of them.
    if (stored->dtype_name == "string" && stored->shape.num_elements() != 1) continue;
    const absl::StatusOr<std::vector<std::string>> found = checkpoint.ReadStrings(KeyOf(fact));
    if (!found.ok()) return absl::DataLossError(found.status().message());
    if ((*found)[0].empty()) continue;
    fact.before = (*found)[0];
    if (fact.value.empty()) fact.value = fact.before;
    if (fact.value == fact.before) continue;
    const std::string message = fact.difference(absl::CHexEscape(fact.before));
    if (fact.must_match) return absl::InvalidArgumentError(message);
    LOG(WARNING) << message;
  }
  return absl::OkStatus();
}

void AddFacts(const std::vector<RunFact>& facts, std::map<std::string, std::string>& strings) {
  for (const RunFact& fact : facts) {
    if (!fact.value.empty()) strings[KeyOf(fact)] = fact.value;
  }
}

}  // namespace official::train
