#include "utils/train/server_client.h"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/logs/log.h"
#include "utils/train/server_messages.h"

namespace official::train {
namespace {

using compute::Tensor;

std::string BeginRequest(Request request) { return {static_cast<char>(request)}; }

}  // namespace

absl::StatusOr<RunState> TakePartAgain(distribute::ParameterServers& servers, const std::string& data) {
  const std::string request = BeginRequest(Request::kTakePart) + data;
  ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                   servers.Ask(std::vector<distribute::ParameterServers::Request>(servers.num_servers(), {request})));
  return RunStateFrom(answers[0]);
}

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Create(const Model& model, const EstimatorConfig& config,
                                                                   const data::ElementSpec& spec,
                                                                   distribute::ParameterServers& servers,
                                                                   Replicas& replicas) {
  std::unique_ptr<ServerClient> client(new ServerClient(servers, replicas, config));
  for (int s = 0; s < servers.num_servers(); ++s) {
    ASSIGN_OR_RETURN(BuiltModel built,
                     BuildServerUpdate(model, config, spec, servers.num_servers(), s, RowCounts{.num_rows = 1}));
    client->placed_.push_back(std::move(built.placed));
  }
  return client;
}

absl::StatusOr<std::vector<std::string>> ServerClient::Ask(Which which, const std::string& request,
                                                           const SpecsOf& specs_of, const RowsOf& rows_of) {
  std::vector<distribute::ParameterServers::Request> requests(placed_.size());
  std::vector<std::string> rows(placed_.size());
  std::map<std::string, const char*> values;  // of the variables of this request, which may have shards on each server
  for (size_t s = 0; s < placed_.size(); ++s) {
    if (which == (s == 0 ? Which::kOthers : Which::kFirst)) continue;
    requests[s].emplace_back(request);
    for (const auto* specs : specs_of(placed_[s])) {
      for (const compute::VariableSpec& spec : *specs) {
        const Place place = PlaceOf(placed_[s], spec);
        const char*& value = values[place.variable];
        if (value == nullptr) {
          ASSIGN_OR_RETURN(value, host_.Read(place.variable));
        }
        requests[s].emplace_back(value + place.offset, spec.type.num_bytes());
      }
    }
    rows_of(placed_[s], rows[s]);
    if (!rows[s].empty()) requests[s].emplace_back(rows[s]);
  }
  return servers_.Ask(requests);
}

absl::StatusOr<int64_t> ServerClient::TakeCounts(absl::string_view& answer) {
  ASSIGN_OR_RETURN(const int64_t global_step, distribute::TakeNumber(answer));
  ASSIGN_OR_RETURN(num_dropped_, distribute::TakeNumber(answer));
  return global_step;
}

absl::Status ServerClient::SendVariables(int64_t global_step) {
  std::string request = BeginRequest(Request::kSendVariables);
  distribute::AppendNumber(global_step, request);
  return Ask(Which::kAll, request,
             [](const BuiltModel::Placed& placed) {
               return VariableLists{&placed.variables, &placed.slots};
             })
      .status();
}

absl::StatusOr<int64_t> ServerClient::AskForValues(const std::string& request, const RowsOf& rows_of,
                                                   std::vector<std::string>& answers) {
  constexpr std::chrono::milliseconds kAskAgain(20);
  constexpr std::chrono::seconds kTellAfter(10);
  const auto begin = std::chrono::steady_clock::now();
  bool told = false;
  const auto no_values = [](const auto&) { return VariableLists(); };
  absl::StatusOr<std::vector<std::string>> asked = Ask(Which::kAll, request, no_values, rows_of);
  // The chief may have to evaluate before it trains. If it is lost, the exchange says so.
  for (; absl::IsUnavailable(asked.status()); asked = Ask(Which::kAll, request, no_values, rows_of)) {
    if (StopIsWanted()) {
      return absl::CancelledError(absl::StrCat("stopped while it waited for variables: ", asked.status().message()));
    }
    if (std::chrono::steady_clock::now() - begin > kTellAfter && !std::exchange(told, true)) {
      LOG(INFO) << "has waited " << kTellAfter.count() << " s for variables: " << asked.status().message();
    }
    std::this_thread::sleep_for(kAskAgain);
  }
  ASSIGN_OR_RETURN(answers, std::move(asked));
  absl::string_view first = answers[0];
  return TakeCounts(first);
}

ServerClient::Place ServerClient::PlaceOf(const BuiltModel::Placed& placed, const compute::VariableSpec& spec) {
  const auto shard = placed.shards.find(spec.name);
  if (shard == placed.shards.end()) return {spec.name, 0};
  const int64_t row_bytes = spec.type.num_bytes() / spec.type.shape.dim(0);
  return {shard->second.variable, shard->second.first_row * row_bytes};
}

absl::StatusOr<char*> ServerClient::Memory(const BuiltModel::Placed& placed, const compute::VariableSpec& spec) {
  const Place place = PlaceOf(placed, spec);
  ASSIGN_OR_RETURN(char* const variable, host_.Write(place.variable));
  return variable + place.offset;
}

absl::Status ServerClient::TakeValues(const BuiltModel::Placed& placed, const std::vector<compute::VariableSpec>& specs,
                                      absl::string_view& answer) {
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, distribute::TakeElements(spec.type, answer));
    if (placed.shards.count(spec.name) > 0) {
      ASSIGN_OR_RETURN(char* const shard, Memory(placed, spec));
      std::memcpy(shard, value.raw_data(), value.num_bytes());
    } else {
      RETURN_IF_ERROR(replicas_.Write(spec.name, value));
    }
  }
  return absl::OkStatus();
}

void ServerClient::BeginStep() {
  for (StepRows& rows : rows_) rows.Clear();
  joined_.clear();
}

absl::Status ServerClient::FindRows(ReplicatedProgram& micro_batch) {
  return replicas_.strategy().Run([&](int r) { return rows_[r].Find(micro_batch.replicas[r]); });
}

absl::Status ServerClient::TakeGradients(const ReplicatedProgram& micro_batch) {
  return replicas_.strategy().Run([&](int r) { return rows_[r].TakeGradients(micro_batch.replicas[r]); });
}

void ServerClient::JoinRows() {
  if (rows_.size() == 1) return;
  std::vector<std::vector<TableRows>> of_replicas;
  for (const StepRows& rows : rows_) of_replicas.push_back(rows.groups());
  joined_ = SumOfReplicas(std::move(of_replicas));
}

std::vector<int32_t> ServerClient::IdsOf(const BuiltModel::RowGroup& group) const {
  return joined().empty() ? std::vector<int32_t>() : IdsIn(group, joined()[group.index].ids);
}

absl::Status ServerClient::TakeRows(const BuiltModel::Placed& placed, const BuiltModel::RowGroup& group,
                                    absl::string_view& answer) {
  const std::vector<int32_t> ids = IdsOf(group);
  for (const compute::VariableSpec& table : group.tables) {
    ASSIGN_OR_RETURN(char* const rows, Memory(placed, table));
    ASSIGN_OR_RETURN(const size_t num_bytes, WriteRows(table, ids, answer, rows));
    answer.remove_prefix(num_bytes);
  }
  return absl::OkStatus();
}

absl::Status ServerClient::FinishReading(int64_t global_step) {
  RETURN_IF_ERROR(host_.Flush());
  RETURN_IF_ERROR(replicas_.Write(kGlobalStep, Tensor::Scalar(global_step)));
  if (!options_.sync_replicas || !has_token_) local_step_ = global_step;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ServerClient::ReadVariables() {
  JoinRows();
  std::string request = BeginRequest(Request::kReadVariables);
  distribute::AppendNumber(local_step_, request);
  const auto append_ids = [&](const BuiltModel::Placed& placed, std::string& bytes) {
    for (const BuiltModel::RowGroup& group : placed.row_groups) AppendIds(IdsOf(group), bytes);
  };
  std::vector<std::string> answers;
  ASSIGN_OR_RETURN(const int64_t global_step, AskForValues(request, append_ids, answers));
  for (size_t s = 0; s < placed_.size(); ++s) {
    absl::string_view answer = answers[s];
    answer.remove_prefix(kCountsBytes);
    RETURN_IF_ERROR(TakeValues(placed_[s], placed_[s].whole, answer));
    for (const BuiltModel::RowGroup& group : placed_[s].row_groups)
      RETURN_IF_ERROR(TakeRows(placed_[s], group, answer));
  }
  RETURN_IF_ERROR(FinishReading(global_step));
  return global_step;
}

absl::StatusOr<int64_t> ServerClient::ReadAll() {
  std::string request = BeginRequest(Request::kReadAll);
  distribute::AppendNumber(local_step_, request);
  std::vector<std::string> answers;
  ASSIGN_OR_RETURN(const int64_t global_step, AskForValues(
                                                  request, [](const auto&, std::string&) {}, answers));
  // Each server counts the updates for an optimizer that needs their number; those of the first server are saved.
  for (size_t s = placed_.size(); s-- > 0;) {
    absl::string_view answer = answers[s];
    answer.remove_prefix(kCountsBytes);
    RETURN_IF_ERROR(TakeValues(placed_[s], placed_[s].variables, answer));
    RETURN_IF_ERROR(TakeValues(placed_[s], placed_[s].slots, answer));
    if (s > 0) continue;
    worker_positions_.clear();
    while (!answer.empty()) {
      data::Position& position = worker_positions_.emplace_back();
      ASSIGN_OR_RETURN(position.epoch, distribute::TakeNumber(answer));
      ASSIGN_OR_RETURN(position.index, distribute::TakeNumber(answer));
    }
  }
  RETURN_IF_ERROR(FinishReading(global_step));
  return global_step;
}

absl::Status ServerClient::Rest() { return Ask(Which::kAll, BeginRequest(Request::kRest)).status(); }

absl::StatusOr<int64_t> ServerClient::GlobalStep() {
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, Ask(Which::kFirst, BeginRequest(Request::kCountSteps)));
  absl::string_view first = answers[0];
  return TakeCounts(first);
}

absl::StatusOr<int64_t> ServerClient::Update(float learning_rate, const data::Position& next) {
  JoinRows();
  std::string request = BeginRequest(Request::kUpdate);
  for (const int64_t number : {local_step_, next.epoch, next.index}) distribute::AppendNumber(number, request);
  distribute::AppendElements(Tensor::Scalar(learning_rate), request);
  const auto send = [&](Which which) {
    return Ask(
        which, request, [](const BuiltModel::Placed& placed) { return VariableLists{&placed.sums}; },
        [&](const BuiltModel::Placed& placed, std::string& bytes) {
          for (const BuiltModel::RowGroup& group : placed.row_groups) AppendRows(joined()[group.index], group, bytes);
        });
  };
  // The first server comes last where its step lets workers go on, and first where it decides.
  if (options_.sync_replicas) RETURN_IF_ERROR(send(Which::kOthers).status());
  const bool is_limited = options_.sync_replicas || options_.max_gradient_staleness;
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, send(is_limited ? Which::kFirst : Which::kAll));
  absl::string_view first = answers[0];
  ASSIGN_OR_RETURN(const int64_t global_step, TakeCounts(first));
  ASSIGN_OR_RETURN(const int64_t is_taken, distribute::TakeNumber(first));
  if (options_.sync_replicas) return WaitForToken();
  if (is_limited && is_taken == 1) RETURN_IF_ERROR(send(Which::kOthers).status());
  return global_step;
}

absl::StatusOr<int64_t> ServerClient::WaitForToken() {
  std::chrono::seconds tell_after(10);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<std::string> answers, Ask(Which::kFirst, BeginRequest(Request::kTakeToken)));
    absl::string_view first = answers[0];
    ASSIGN_OR_RETURN(const int64_t global_step, TakeCounts(first));
    ASSIGN_OR_RETURN(const int64_t token, distribute::TakeNumber(first));
    // Gradients that are computed with an older token are dropped.
    if (token == global_step) {
      local_step_ = token;
      has_token_ = true;
      return token;
    }
    if (token != kNone) continue;
    if (StopIsWanted()) return global_step;
    ASSIGN_OR_RETURN(const int64_t missing, distribute::TakeNumber(first));
    if (std::chrono::steady_clock::now() - begin < tell_after) continue;
    LOG(INFO) << "has waited " << tell_after.count() << " s for "
              << (missing < 0 ? "more gradients"
                              : absl::StrCat("the gradients of ", servers_.NameOf(static_cast<int>(missing))))
              << " of step " << global_step + 1;
    tell_after *= 2;
  }
}

}  // namespace official::train
