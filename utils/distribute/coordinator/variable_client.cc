#include "utils/distribute/coordinator/variable_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/coordinator/variable_server.h"
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

}  // namespace

absl::Status VariableClient::UpdatePlacement() {
  ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                   servers_.Ask(std::vector<std::string>(servers_.num_servers(), Begin(Request::kList))));
  placed_.clear();
  for (int s = 0; s < servers_.num_servers(); ++s) {
    for (absl::string_view rest = answers[s]; !rest.empty();) {
      ASSIGN_OR_RETURN(const std::string name, distribute::TakeText(rest));
      Placed& placed = placed_[name];
      ASSIGN_OR_RETURN(placed.type, distribute::TakeType(rest));
      placed.servers.push_back(s);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const VariableClient::Placed*> VariableClient::Find(const std::string& name) const {
  if (const auto found = placed_.find(name); found != placed_.end()) return &found->second;
  return absl::NotFoundError(absl::StrCat("variable ", name,
                                          " is on no ps; make it with "
                                          "ClusterCoordinator::CreateVariables before functions are scheduled"));
}

absl::Status VariableClient::Write(const std::string& name, const Tensor& value) {
  Placed& placed = placed_[name];
  if (placed.servers.empty()) placed = {{next_server_++ % servers_.num_servers()}, value.type()};
  std::vector<std::string> requests(servers_.num_servers(), Begin(Request::kNothing));
  for (const int s : placed.servers) {
    requests[s] = Begin(Request::kWrite);
    distribute::AppendText(name, requests[s]);
    distribute::AppendTensor(value, requests[s]);
  }
  return servers_.Ask(requests).status();
}

absl::StatusOr<std::vector<Tensor>> VariableClient::Read(absl::Span<const std::string> names) {
  std::vector<std::string> requests(servers_.num_servers(), Begin(Request::kRead));
  std::vector<int> asked;  // by name
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const Placed* const placed, Find(name));
    asked.push_back(placed->servers[0]);
    distribute::AppendText(name, requests[asked.back()]);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, servers_.Ask(requests));
  std::vector<absl::string_view> rests(answers.begin(), answers.end());
  std::vector<Tensor> values;
  for (const int server : asked) {
    ASSIGN_OR_RETURN(Tensor value, distribute::TakeTensor(rests[server]));
    values.push_back(std::move(value));
  }
  return values;
}

absl::Status VariableClient::Prepare(const std::string& step, absl::Span<const compute::TensorType> inputs) {
  std::string request = Begin(Request::kPrepare);
  AppendStep(step, inputs, request);
  return servers_.Ask(std::vector<std::string>(servers_.num_servers(), request)).status();
}

absl::Status VariableClient::Update(const std::string& step, absl::Span<const compute::TensorType> inputs,
                                    absl::Span<const std::string> variables, absl::Span<const Tensor> values) {
  std::vector<bool> updates(servers_.num_servers());
  for (const std::string& variable : variables) {
    if (variable.empty()) continue;
    ASSIGN_OR_RETURN(const Placed* const placed, Find(variable));
    updates[placed->servers[0]] = true;
  }
  std::vector<std::string> requests;
  for (int s = 0; s < servers_.num_servers(); ++s) {
    std::string& request = requests.emplace_back(Begin(updates[s] ? Request::kUpdate : Request::kNothing));
    if (!updates[s]) continue;
    AppendStep(step, inputs, request);
    for (size_t i = 0; i < variables.size(); ++i) {
      if (!variables[i].empty() && placed_.at(variables[i]).servers[0] != s) continue;
      distribute::AppendElements(values[i], request);
    }
  }
  return servers_.Ask(requests).status();
}

}  // namespace official::coordinator
