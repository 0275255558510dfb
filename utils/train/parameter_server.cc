#include "utils/train/parameter_server.h"

#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/logs/log.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

// The first byte of a request. What follows: the values to begin with; nothing; nothing; the worker, its next position,
// the learning rate and the sums; nothing; the worker and its data. Tensors follow one another without names: client
// and server have built the same graph. An answer has the global step, 0 where that is not placed, and the values that
// were asked for, all of them with the positions of several workers; the last one a state instead.
enum class Request : char {
  kSendVariables = 'S',
  kReadVariables = 'R',
  kReadAll = 'A',
  kUpdate = 'U',
  kCountSteps = 'C',
  kTakePart = 'T'
};

std::string BeginRequest(Request request) { return {static_cast<char>(request)}; }

int64_t BytesOf(const std::vector<compute::VariableSpec>& specs) {
  int64_t bytes = 0;
  for (const compute::VariableSpec& spec : specs) bytes += spec.type.num_bytes();
  return bytes;
}

absl::StatusOr<BuiltModel> BuildServerUpdate(const Model& model, const EstimatorConfig& config,
                                             const data::ElementSpec& spec, int num_servers, int server) {
  return BuildModel(model, Mode::kTrain, config.dtype, config.loss_scale, Batched(spec, 1), /*has_examples=*/true,
                    /*num_replicas=*/1, StepPart::kUpdate, /*pack_sizes=*/std::nullopt,
                    ServerUpdate{.num_servers = num_servers, .server = server});
}

}  // namespace

ParameterServer::ParameterServer(BuiltModel built, compute::Device& device)
    : built_(std::move(built)), variables_(device), arena_(device) {}

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Create(const Model& model,
                                                                         const EstimatorConfig& config,
                                                                         const data::ElementSpec& spec, int num_servers,
                                                                         int server, compute::Device& device) {
  ASSIGN_OR_RETURN(BuiltModel built, BuildServerUpdate(model, config, spec, num_servers, server));
  std::unique_ptr<ParameterServer> made(new ParameterServer(std::move(built), device));
  const BuiltModel& own = made->built_;
  RETURN_IF_ERROR(made->variables_.Create(*own.graph, config.seed));
  std::set<std::string> placed;
  for (const auto* specs : {&own.placed.variables, &own.placed.slots, &own.placed.sums}) {
    for (const compute::VariableSpec& spec : *specs) placed.insert(spec.name);
  }
  for (const compute::VariableSpec& variable : made->variables_.specs()) {
    if (placed.count(variable.name) == 0) made->variables_.Remove(variable.name);
  }
  ASSIGN_OR_RETURN(made->update_, compute::Program::Compile(*own.graph, own.roots, device, made->variables_,
                                                            {.arena = &made->arena_}));
  return made;
}

absl::Status ParameterServer::Write(const std::vector<compute::VariableSpec>& specs, absl::string_view bytes) {
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, distribute::TakeElements(spec.type, bytes));
    RETURN_IF_ERROR(variables_.Write(spec.name, value));
  }
  return bytes.empty() ? absl::OkStatus() : absl::DataLossError("a message between a worker and a ps is too long");
}

absl::Status ParameterServer::Read(const std::vector<compute::VariableSpec>& specs, std::string& answer) const {
  answer.reserve(answer.size() + BytesOf(specs));
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, variables_.Read(spec.name));
    distribute::AppendElements(value, answer);
  }
  return absl::OkStatus();
}

void ParameterServer::SetBeginning(RunState state, std::string data) {
  state_ = std::move(state);
  data_ = std::move(data);
}

absl::StatusOr<std::string> ParameterServer::Welcome(absl::string_view request) const {
  ASSIGN_OR_RETURN(const int64_t worker, distribute::TakeNumber(request));
  if (request != data_) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " has the data set ", request,
                                                   ", but the others have ", data_,
                                                   "; give all workers the same data"));
  }
  RunState state = state_;
  if (worker >= 0 && worker < static_cast<int64_t>(state.worker_positions.size())) {
    state.position = state.worker_positions[worker];
  }
  if (has_values_ && variables_.Has(kGlobalStep)) {
    ASSIGN_OR_RETURN(const Tensor global_step, variables_.Read(kGlobalStep));
    state.global_step = global_step.scalar<int64_t>();
  }
  return BytesOf(state);
}

absl::StatusOr<std::string> ParameterServer::Answer(absl::string_view request) {
  if (request.empty()) return absl::DataLossError("a message between a worker and a ps is empty");
  const auto asked = static_cast<Request>(request[0]);
  request.remove_prefix(1);
  const BuiltModel::Placed& placed = built_.placed;
  std::vector<compute::VariableSpec> all = placed.variables;
  all.insert(all.end(), placed.slots.begin(), placed.slots.end());
  std::string answer(sizeof(int64_t), '\0');  // with room for the global step
  const std::lock_guard<std::mutex> lock(mutex_);
  if (asked == Request::kTakePart) return Welcome(request);
  if (!has_values_ && asked != Request::kSendVariables) {
    return absl::UnavailableError("the chief has not sent the variables yet");
  }
  switch (asked) {
    case Request::kSendVariables:
      RETURN_IF_ERROR(Write(all, request));
      has_values_ = true;
      break;
    case Request::kUpdate: {
      ASSIGN_OR_RETURN(const int64_t worker, distribute::TakeNumber(request));
      data::Position next;
      ASSIGN_OR_RETURN(next.epoch, distribute::TakeNumber(request));
      ASSIGN_OR_RETURN(next.index, distribute::TakeNumber(request));
      ASSIGN_OR_RETURN(const Tensor learning_rate, distribute::TakeElements({DType::kFloat32, {}}, request));
      RETURN_IF_ERROR(Write(placed.sums, request));
      RETURN_IF_ERROR(update_->Run({learning_rate.Clone()}));
      if (worker >= 0 && worker < static_cast<int64_t>(state_.worker_positions.size())) {
        state_.worker_positions[worker] = next;
      }
      break;
    }
    case Request::kReadVariables:
      RETURN_IF_ERROR(Read(placed.variables, answer));
      break;
    case Request::kReadAll:
      RETURN_IF_ERROR(Read(all, answer));
      for (const data::Position& position : state_.worker_positions) {
        distribute::AppendNumber(position.epoch, answer);
        distribute::AppendNumber(position.index, answer);
      }
      break;
    case Request::kCountSteps:
      break;
    default:
      return absl::DataLossError("a message between a worker and a ps is no request");
  }
  if (variables_.Has(kGlobalStep)) {
    ASSIGN_OR_RETURN(const Tensor global_step, variables_.Read(kGlobalStep));
    std::memcpy(answer.data(), global_step.raw_data(), sizeof(int64_t));
  }
  return answer;
}

absl::StatusOr<RunState> TakePartAgain(distribute::ParameterServers& servers, const std::string& data) {
  std::string request = BeginRequest(Request::kTakePart);
  distribute::AppendNumber(servers.worker(), request);
  request += data;
  ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                   servers.Ask(std::vector<std::string>(servers.num_servers(), request)));
  return RunStateFrom(answers[0]);
}

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Create(const Model& model, const EstimatorConfig& config,
                                                                   const data::ElementSpec& spec,
                                                                   distribute::ParameterServers& servers,
                                                                   Replicas& replicas) {
  std::unique_ptr<ServerClient> client(new ServerClient(servers, replicas, config.interruption));
  for (int s = 0; s < servers.num_servers(); ++s) {
    ASSIGN_OR_RETURN(BuiltModel built, BuildServerUpdate(model, config, spec, servers.num_servers(), s));
    client->placed_.push_back(std::move(built.placed));
  }
  return client;
}

absl::Status ServerClient::Append(const std::vector<compute::VariableSpec>& specs, std::string& request) const {
  request.reserve(request.size() + BytesOf(specs));
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
    distribute::AppendElements(value, request);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ServerClient::SendVariables() {
  std::vector<std::string> requests;
  for (const BuiltModel::Placed& placed : placed_) {
    std::string& request = requests.emplace_back(BeginRequest(Request::kSendVariables));
    RETURN_IF_ERROR(Append(placed.variables, request));
    RETURN_IF_ERROR(Append(placed.slots, request));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, servers_.Ask(requests));
  absl::string_view first = answers[0];
  return distribute::TakeNumber(first);
}

absl::StatusOr<int64_t> ServerClient::ReadVariables(bool slots) {
  constexpr std::chrono::milliseconds kAskAgain(20);
  constexpr int kTellAfter = 500;  // times
  const std::vector<std::string> requests(placed_.size(),
                                          BeginRequest(slots ? Request::kReadAll : Request::kReadVariables));
  absl::StatusOr<std::vector<std::string>> answers = servers_.Ask(requests);
  // The chief may have to evaluate before it trains. If it is lost, the exchange says so.
  for (int asked = 1; absl::IsUnavailable(answers.status()); ++asked) {
    const std::string wait = absl::StrCat(servers_.NameOf(0), " to send the variables to the ps");
    if (interruption_() == Interruption::kStop) {
      return absl::CancelledError(absl::StrCat("stopped while it waited for ", wait));
    }
    if (asked == kTellAfter) {
      LOG(INFO) << "has waited 10 s for " << wait;
    }
    std::this_thread::sleep_for(kAskAgain);
    answers = servers_.Ask(requests);
  }
  RETURN_IF_ERROR(answers.status());
  int64_t global_step = 0;
  // Each server counts the updates for an optimizer that needs their number; those of the first server are saved.
  for (size_t s = placed_.size(); s-- > 0;) {
    absl::string_view bytes = (*answers)[s];
    ASSIGN_OR_RETURN(global_step, distribute::TakeNumber(bytes));
    std::vector<compute::VariableSpec> specs = placed_[s].variables;
    if (slots) specs.insert(specs.end(), placed_[s].slots.begin(), placed_[s].slots.end());
    for (const compute::VariableSpec& spec : specs) {
      ASSIGN_OR_RETURN(const Tensor value, distribute::TakeElements(spec.type, bytes));
      RETURN_IF_ERROR(replicas_.Write(spec.name, value));
    }
    worker_positions_.clear();
    while (!bytes.empty()) {
      data::Position& position = worker_positions_.emplace_back();
      ASSIGN_OR_RETURN(position.epoch, distribute::TakeNumber(bytes));
      ASSIGN_OR_RETURN(position.index, distribute::TakeNumber(bytes));
    }
  }
  RETURN_IF_ERROR(replicas_.Write(kGlobalStep, Tensor::Scalar(global_step)));
  return global_step;
}

absl::StatusOr<int64_t> ServerClient::GlobalStep() {
  const std::vector<std::string> requests(placed_.size(), BeginRequest(Request::kCountSteps));
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, servers_.Ask(requests));
  absl::string_view first = answers[0];
  return distribute::TakeNumber(first);
}

absl::StatusOr<int64_t> ServerClient::Update(float learning_rate, const data::Position& next) {
  std::vector<std::string> requests;
  for (const BuiltModel::Placed& placed : placed_) {
    std::string& request = requests.emplace_back(BeginRequest(Request::kUpdate));
    for (const int64_t number : {int64_t{servers_.worker()}, next.epoch, next.index}) {
      distribute::AppendNumber(number, request);
    }
    distribute::AppendElements(Tensor::Scalar(learning_rate), request);
    RETURN_IF_ERROR(Append(placed.sums, request));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> answers, servers_.Ask(requests));
  absl::string_view first = answers[0];
  return distribute::TakeNumber(first);
}

}  // namespace official::train
