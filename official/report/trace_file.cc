#include "official/report/trace_file.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::report {
namespace {

constexpr size_t kMaxOps = 1000;  // there are fewer types of ops

double NumberOf(const nlohmann::json& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

void AddEvent(const nlohmann::json& event, std::map<std::string, OpTime>& ops) {
  const auto phase = event.find("ph"), name = event.find("name"), args = event.find("args");
  if (phase == event.end() || *phase != "X" || name == event.end() || !name->is_string()) return;
  if (ops.size() >= kMaxOps && ops.count(*name) == 0) return;
  OpTime& op = ops[*name];
  op.op = *name;
  op.us += NumberOf(event, "dur");
  ++op.count;
  if (args == event.end() || !args->is_object()) return;
  op.flops += NumberOf(*args, "flops");
  op.bytes += NumberOf(*args, "bytes");
}

}  // namespace

absl::StatusOr<std::vector<OpTime>> ReadTrace(const std::string& path) {
  RETURN_IF_ERROR(files::RandomAccessFile::Open(path).status());  // a pipe would be waited for
  std::map<std::string, OpTime> ops;
  using Parsed = nlohmann::json::parse_event_t;
  // An event is an object in an array in the object that is the file; it is used and not kept.
  const auto use_event = [&](int depth, Parsed parsed, nlohmann::json& value) {
    if (parsed != Parsed::object_end || depth != 2) return true;
    AddEvent(value, ops);
    return false;
  };
  std::ifstream file(path);
  if (!nlohmann::json::parse(file, use_event, /*allow_exceptions=*/false).is_object()) {
    return absl::DataLossError(absl::StrCat(path, " is not a complete timeline"));
  }
  std::vector<OpTime> sorted;
  for (auto& [name, op] : ops) sorted.push_back(std::move(op));
  std::stable_sort(sorted.begin(), sorted.end(), [](const OpTime& a, const OpTime& b) { return a.us > b.us; });
  return sorted;
}

std::string LatestTrace(const std::vector<std::string>& names) {
  std::tuple<bool, int64_t, std::string> latest = {false, -1, ""};
  for (const std::string& name : names) {
    const bool is_profile = absl::StartsWith(name, "profile-");
    absl::string_view steps = name;
    if (!absl::ConsumePrefix(&steps, is_profile ? "profile-" : "timeline-")) continue;
    if (!absl::ConsumeSuffix(&steps, ".json")) continue;
    int64_t first = 0;
    const std::vector<absl::string_view> parts = absl::StrSplit(steps, '-');
    if (!absl::SimpleAtoi(parts[0], &first)) continue;
    latest = std::max(latest, {is_profile, first, name});
  }
  return std::get<2>(latest);
}

}  // namespace official::report
