#include "utils/distribute/coordinator/variable_client.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/coordinator/variable_server.h"
#include "utils/distribute/shards.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::coordinator {
namespace {

using compute::Tensor;

std::string Begin(Request request) { return {static_cast<char>(request)}; }

void AppendStep(const std::string& step, absl::Span<const compute::TensorType> inputs, std::string& request) {
  distribute::AppendText(step, request);
  distribute::AppendNumber(static_cast<int64_t>(inputs.size()), request);
  for (const compute::TensorType& input : inputs) distribute::AppendType(input, request);
}

int64_t NumRows(const compute::TensorType& type) { return type.shape.rank() == 0 ? 1 : type.shape.dim(0); }

// Calls f(shard, its number, its part of the bytes of a value).
template <typename F>
void ForEachShard(const VariableClient::Placed& placed, const Tensor& value, const F& f) {
  const char* data = static_cast<const char*>(value.raw_data());
  for (size_t i = 0; i < placed.shards.size(); ++i) {
    const VariableClient::Shard& shard = placed.shards[i];
    f(shard, static_cast<int64_t>(i), absl::string_view(data, shard.type.num_bytes()));
    data += shard.type.num_bytes();
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> VariableClient::Ask(const std::vector<std::string>& requests) {
  std::vector<distribute::ParameterServers::Request> asked(requests.size());
  for (size_t s = 0; s < requests.size(); ++s) {
    if (!requests[s].empty()) asked[s] = {requests[s]};
  }
  return servers_.Ask(asked);
}

absl::Status VariableClient::UpdatePlacement() {
  ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                   Ask(std::vector<std::string>(servers_.num_servers(), Begin(Request::kList))));
  std::map<std::string, std::map<int64_t, Shard>> found;  // by variable and number
  for (int s = 0; s < servers_.num_servers(); ++s) {
    for (absl::string_view rest = answers[s]; !rest.empty();) {
      compute::VariableSpec spec;
      ASSIGN_OR_RETURN(spec.name, distribute::TakeText(rest));
      ASSIGN_OR_RETURN(spec.type, distribute::TakeType(rest));
      ASSIGN_OR_RETURN(const std::string variable, distribute::TakeText(rest));
      ASSIGN_OR_RETURN(const int64_t number, distribute::TakeNumber(rest));
      Shard& shard = found[variable][number];
      shard.name = spec.name;
      shard.type = spec.type;
      shard.servers.push_back(s);
    }
  }
  placed_.clear();
  for (auto& [name, shards] : found) {
    Placed& placed = placed_[name];
    placed.type = shards.begin()->second.type;
    int64_t num_rows = 0;
    for (auto& [number, shard] : shards) {
      num_rows += NumRows(shard.type);
      placed.shards.push_back(std::move(shard));
    }
    if (placed.shards.size() > 1) placed.type.shape.set_dim(0, num_rows);
  }
  return absl::OkStatus();
}

absl::StatusOr<const VariableClient::Placed*> VariableClient::Find(const std::string& name) const {
  if (const auto found = placed_.find(name); found != placed_.end()) return &found->second;
  return absl::NotFoundError(absl::StrCat("variable ", name,
                                          " is on no ps; make it with "
                                          "ClusterCoordinator::CreateVariables before functions are scheduled"));
}

absl::Status VariableClient::Create(const std::string& name, const Tensor& value, int64_t num_shards) {
  Placed placed = {value.type(), {}};
  for (int64_t i = 0; i < num_shards; ++i) {
    Shard& shard = placed.shards.emplace_back();
    shard = {num_shards == 1 ? name : distribute::NameOfShard(name, i),
             {next_server_++ % servers_.num_servers()},
             value.type()};
    if (num_shards > 1)
      shard.type.shape.set_dim(0, distribute::RowsOfShard(NumRows(value.type()), num_shards, i).size());
  }
  placed_[name] = std::move(placed);
  return Write(name, value);
}

absl::Status VariableClient::Write(const std::string& name, const Tensor& value) {
  ASSIGN_OR_RETURN(const Placed* const placed, Find(name));
  if (value.type() != placed->type) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", name, " is ", placed->type.ToString(), ", its value ", value.type().ToString()));
  }
  std::vector<std::string> requests(servers_.num_servers(), Begin(Request::kWrite));
  ForEachShard(*placed, value, [&](const Shard& shard, int64_t number, absl::string_view bytes) {
    for (const int s : shard.servers) {
      distribute::AppendText(shard.name, requests[s]);
      distribute::AppendType(shard.type, requests[s]);
      requests[s].append(bytes.data(), bytes.size());
      distribute::AppendText(name, requests[s]);
      distribute::AppendNumber(number, requests[s]);
    }
  });
  return Ask(requests).status();
}

absl::StatusOr<std::vector<Tensor>> VariableClient::Read(absl::Span<const std::string> names) {
  std::vector<std::string> requests(servers_.num_servers(), Begin(Request::kRead));
  std::vector<const Placed*> asked;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(asked.emplace_back(), Find(name));
    for (const Shard& shard : asked.back()->shards) distribute::AppendText(shard.name, requests[shard.servers[0]]);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, Ask(requests));
  std::vector<absl::string_view> rests(answers.begin(), answers.end());
  std::vector<Tensor> values;
  for (const Placed* const placed : asked) {
    const Tensor& value = values.emplace_back(placed->type);
    char* data = static_cast<char*>(value.raw_data());
    for (const Shard& shard : placed->shards) {
      absl::string_view& rest = rests[shard.servers[0]];
      ASSIGN_OR_RETURN(const compute::TensorType type, distribute::TakeType(rest));
      if (type != shard.type) return absl::DataLossError(absl::StrCat("a ps has changed variable ", shard.name));
      ASSIGN_OR_RETURN(const Tensor elements, distribute::TakeElements(type, rest));
      std::memcpy(data, elements.raw_data(), type.num_bytes());
      data += type.num_bytes();
    }
  }
  return values;
}

absl::Status VariableClient::Prepare(const std::string& step, absl::Span<const compute::TensorType> inputs) {
  std::string request = Begin(Request::kPrepare);
  AppendStep(step, inputs, request);
  return Ask(std::vector<std::string>(servers_.num_servers(), request)).status();
}

absl::Status VariableClient::Update(const std::string& step, absl::Span<const compute::TensorType> inputs,
                                    absl::Span<const std::string> variables, absl::Span<const Tensor> values) {
  std::vector<const Placed*> updated;  // null: a number for all servers
  std::vector<bool> updates(servers_.num_servers());
  for (const std::string& variable : variables) {
    updated.push_back(nullptr);
    if (variable.empty()) continue;
    ASSIGN_OR_RETURN(updated.back(), Find(variable));
    const Tensor& value = values[updated.size() - 1];
    if (value.type() != updated.back()->type) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", variable, " is ", updated.back()->type.ToString(),
                                                     ", and step ", step, " updates it by ", value.type().ToString()));
    }
    for (const Shard& shard : updated.back()->shards) updates[shard.servers[0]] = true;
  }
  std::vector<std::string> requests(servers_.num_servers());
  for (int s = 0; s < servers_.num_servers(); ++s) {
    if (!updates[s]) continue;
    requests[s] = Begin(Request::kUpdate);
    AppendStep(step, inputs, requests[s]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (updated[i] == nullptr) {
      for (int s = 0; s < servers_.num_servers(); ++s) {
        if (updates[s]) distribute::AppendElements(values[i], requests[s]);
      }
      continue;
    }
    ForEachShard(*updated[i], values[i], [&](const Shard& shard, int64_t, absl::string_view bytes) {
      requests[shard.servers[0]].append(bytes.data(), bytes.size());
    });
  }
  return Ask(requests).status();
}

}  // namespace official::coordinator
