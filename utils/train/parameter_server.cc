#include "utils/train/parameter_server.h"

#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/logs/log.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

// The first byte of a request. Tensors follow one another without names: client and server have built the same graph.
// An answer has the global step, 0 where that is not placed, the number of dropped gradients, and what was asked for.
enum class Request : char {
  kSendVariables = 'S',  // the global step and the values to begin with
  kReadVariables = 'R',  // the step that the server must have reached
  kReadAll = 'A',        // the same; also for slots and the positions of several workers
  kUpdate = 'U',         // the step of the variables that were read, the position in the data that follows, the
                         // learning rate and the sums; the answer: 1, or 0 if they are dropped
  kTakeToken = 'T',      // the answer: the token, or kNone and the worker that the step lacks, or kNone
  kCountSteps = 'C',
  kRest = 'E',     // the worker gives no more gradients, and steps do not wait for it
  kTakePart = 'P'  // what the worker trains on; the answer: the state of the job alone
};

constexpr int64_t kNone = -1;
constexpr size_t kCountsBytes = 2 * sizeof(int64_t);  // at the beginning of an answer
// Servers wait this long before they answer that something is not there yet.
constexpr std::chrono::milliseconds kLongest(500);

std::string BeginRequest(Request request) { return {static_cast<char>(request)}; }

int64_t BytesOf(const std::vector<compute::VariableSpec>& specs) {
  int64_t bytes = 0;
  for (const compute::VariableSpec& spec : specs) bytes += spec.type.num_bytes();
  return bytes;
}

absl::StatusOr<BuiltModel> BuildServerUpdate(const Model& model, const EstimatorConfig& config,
                                             const data::ElementSpec& spec, int num_servers, int server,
                                             int64_t num_rows) {
  // The types that the model has for one example of zeros.
  data::ElementSpec types = Batched(spec, 1);
  if (model.share) {
    const BatchShare share = model.share(Mode::kTrain, data::ExampleOfZeros(spec), {0, 1});
    for (size_t i = 0; i < types.features.size(); ++i) types.features[i].type = share.features[i].type();
    for (size_t i = 0; i < types.labels.size(); ++i) types.labels[i].type = share.labels[i].type();
  }
  return BuildModel(model, Mode::kTrain, config.dtype, config.loss_scale, types, /*has_examples=*/true,
                    /*num_replicas=*/1, StepPart::kUpdate, /*pack_sizes=*/std::nullopt,
                    ServerUpdate{.num_servers = num_servers,
                                 .placement = config.servers.placement,
                                 .by_rows = !config.has_micro_batches(),
                                 .num_rows = num_rows,
                                 .server = server});
}

}  // namespace

ParameterServer::ParameterServer(BuildFn build, const EstimatorConfig& config, int server, int num_workers,
                                 compute::Device& device)
    : build_(std::move(build)),
      options_(config.servers),
      server_(server),
      num_workers_(num_workers),
      seed_(config.seed),
      device_(device),
      variables_(device),
      arena_(device),
      has_left_(num_workers) {}

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Create(const Model& model,
                                                                         const EstimatorConfig& config,
                                                                         const data::ElementSpec& spec, int num_servers,
                                                                         int server, int num_workers,
                                                                         compute::Device& device) {
  const auto build = [=](int64_t num_rows) {
    return BuildServerUpdate(model, config, spec, num_servers, server, num_rows);
  };
  std::unique_ptr<ParameterServer> made(new ParameterServer(build, config, server, num_workers, device));
  RETURN_IF_ERROR(made->CompiledFor(RoundUpRows({})).status());
  return made;
}

absl::StatusOr<ParameterServer::Compiled*> ParameterServer::CompiledFor(int64_t num_rows) {
  if (const auto found = compiled_.find(num_rows); found != compiled_.end()) return &found->second;
  Compiled made;
  ASSIGN_OR_RETURN(made.built, build_(num_rows));
  const BuiltModel& own = made.built;
  if (compiled_.empty()) RETURN_IF_ERROR(CreateVariables(own));
  const auto compile = [&](const compute::GraphRoots& roots) {
    return compute::Program::Compile(*own.graph, roots, device_, variables_, {.arena = &arena_});
  };
  ASSIGN_OR_RETURN(made.update, compile(own.roots));
  if (own.settle != nullptr) {
    ASSIGN_OR_RETURN(made.settle, compile({.feeds = {}, .fetches = {}, .targets = {own.settle}}));
  }
  if (own.catch_up != nullptr) {
    std::vector<compute::Value> ids;
    for (const compute::Value& feed : own.roots.feeds) {
      if (feed.dtype() == DType::kInt32) ids.push_back(feed);
    }
    ASSIGN_OR_RETURN(made.catch_up, compile({.feeds = ids, .fetches = {}, .targets = {own.catch_up}}));
  }
  return &compiled_.emplace(num_rows, std::move(made)).first->second;
}

absl::Status ParameterServer::CreateVariables(const BuiltModel& model) {
  RETURN_IF_ERROR(variables_.Create(*model.graph, seed_));
  std::set<std::string> placed;
  for (const auto* specs : {&model.placed.variables, &model.placed.slots, &model.placed.sums}) {
    for (const compute::VariableSpec& spec : *specs) placed.insert(spec.name);
  }
  for (const compute::VariableSpec& variable : variables_.specs()) {
    const bool is_kept = placed.count(variable.name) > 0 || absl::StartsWith(variable.name, compute::kDeferredPrefix);
    if (!is_kept) variables_.Remove(variable.name);
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::Write(const std::vector<compute::VariableSpec>& specs, absl::string_view bytes) {
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, distribute::TakeElements(spec.type, bytes));
    RETURN_IF_ERROR(variables_.Write(spec.name, value));
  }
  return bytes.empty() ? absl::OkStatus() : absl::DataLossError("a message between a worker and a ps is too long");
}

void ParameterServer::Read(const std::vector<compute::VariableSpec>& specs, std::string& answer) const {
  answer.reserve(answer.size() + BytesOf(specs));
  for (const compute::VariableSpec& spec : specs) {
    answer.append(static_cast<const char*>(variables_.data(spec.name)), spec.type.num_bytes());
  }
}

absl::StatusOr<int64_t> ParameterServer::GlobalStep() const {
  if (!variables_.Has(kGlobalStep)) return 0;
  ASSIGN_OR_RETURN(const Tensor global_step, variables_.Read(kGlobalStep));
  return global_step.scalar<int64_t>();
}

void ParameterServer::SetBeginning(RunState state, std::string data) {
  positions_.clear();
  for (const data::Position& position : state.worker_positions) positions_.push_back({.done = position, .pending = {}});
  state_ = std::move(state);
  data_ = std::move(data);
}

absl::StatusOr<std::string> ParameterServer::Welcome(int worker, absl::string_view data) const {
  if (data != data_) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " has the data set ", data,
                                                   ", but the others have ", data_,
                                                   "; give all workers the same data"));
  }
  RunState state = state_;
  // The gradient of a batch that is pending is there yet.
  if (!positions_.empty()) state.position = positions_[worker].pending.value_or(positions_[worker].done);
  if (has_values_ && variables_.Has(kGlobalStep)) {
    ASSIGN_OR_RETURN(state.global_step, GlobalStep());
  }
  return BytesOf(state);
}

absl::StatusOr<std::string> ParameterServer::Answer(int worker, std::string request) {
  if (request.empty()) return absl::DataLossError("a message between a worker and a ps is empty");
  const auto asked = static_cast<Request>(request[0]);
  absl::string_view rest(request);
  rest.remove_prefix(1);
  std::unique_lock<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(error_);
  if (asked == Request::kTakePart) return Welcome(worker, rest);
  if (!has_values_ && asked != Request::kSendVariables) {
    return absl::UnavailableError(absl::StrCat("the chief has not sent them to ps ", server_, " yet"));
  }
  if (has_left_[worker] && (asked == Request::kReadVariables || asked == Request::kUpdate)) {  // it is back
    has_left_[worker] = false;
    if (sync_) sync_->Return(worker);
  }
  std::string answer(kCountsBytes, '\0');
  switch (asked) {
    case Request::kSendVariables:
      RETURN_IF_ERROR(SendVariables(rest));
      break;
    case Request::kUpdate: {
      ASSIGN_OR_RETURN(const bool is_taken, Apply(worker, std::move(request)));
      distribute::AppendNumber(is_taken ? 1 : 0, answer);
      break;
    }
    case Request::kReadVariables:
    case Request::kReadAll: {
      ASSIGN_OR_RETURN(const int64_t step, distribute::TakeNumber(rest));
      RETURN_IF_ERROR(WaitForStep(step, lock));
      if (asked == Request::kReadVariables) {
        Read(placed().whole, answer);
        RETURN_IF_ERROR(ReadRows(rest, answer));
        break;
      }
      RETURN_IF_ERROR(Settle());
      Read(placed().variables, answer);
      Read(placed().slots, answer);
      for (const Position& position : positions_) {
        distribute::AppendNumber(position.done.epoch, answer);
        distribute::AppendNumber(position.done.index, answer);
      }
      break;
    }
    case Request::kTakeToken:
      if (!sync_) return absl::DataLossError("a worker wants a token of a ps that has none");
      WaitForToken(worker, lock, answer);
      break;
    case Request::kRest:
      StopWaitingFor(worker);
      break;
    case Request::kCountSteps:
      break;
    default:
      return absl::DataLossError("a message between a worker and a ps is no request");
  }
  ASSIGN_OR_RETURN(const int64_t global_step, GlobalStep());
  const int64_t counts[] = {global_step, num_dropped_};
  static_assert(sizeof counts == kCountsBytes);
  std::memcpy(answer.data(), counts, sizeof counts);
  return answer;
}

absl::Status ParameterServer::SendVariables(absl::string_view values) {
  ASSIGN_OR_RETURN(const int64_t global_step, distribute::TakeNumber(values));
  std::vector<compute::VariableSpec> all = placed().variables;
  all.insert(all.end(), placed().slots.begin(), placed().slots.end());
  RETURN_IF_ERROR(Settle());
  RETURN_IF_ERROR(Write(all, values));
  has_values_ = true;
  if (!options_.sync_replicas) return absl::OkStatus();
  const int aggregated = options_.replicas_to_aggregate.value_or(num_workers_);
  // TensorFlow's default is as many tokens at the beginning as gradients are aggregated: a fast worker then computes
  // two gradients of the first step. With the fewest that there can be, each step has its gradients and no others.
  sync_.emplace(SyncReplicas::Options{.replicas_to_aggregate = aggregated,
                                      .num_workers = num_workers_,
                                      .num_tokens = std::max(0, aggregated - num_workers_),
                                      .has_tokens = variables_.Has(kGlobalStep)},
                global_step);
  for (int w = 0; w < num_workers_; ++w) {
    if (has_left_[w]) sync_->Leave(w);
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::ReadRows(absl::string_view request, std::string& answer) {
  const RowGroups& groups = placed().row_groups;
  std::vector<TableRows> rows;
  bool is_any = false;
  for (const BuiltModel::RowGroup& group : groups) {
    ASSIGN_OR_RETURN(rows.emplace_back().ids, TakeIds(group, request));
    is_any = is_any || !rows.back().ids.empty();
  }
  if (!request.empty()) return absl::DataLossError("a message between a worker and a ps is too long");
  if (!is_any) return absl::OkStatus();
  ASSIGN_OR_RETURN(Compiled* const compiled, CompiledFor(RoundUpRows(rows)));
  if (compiled->catch_up != nullptr) {
    RETURN_IF_ERROR(compiled->catch_up->Run(RowFeeds(groups, rows, RoundUpRows(rows))));
  }
  for (size_t g = 0; g < groups.size(); ++g) AppendRowsOf(groups[g], rows[g].ids, variables_, answer);
  return absl::OkStatus();
}

absl::Status ParameterServer::Settle() {
  const Compiled& any = compiled_.begin()->second;
  return any.settle == nullptr ? absl::OkStatus() : any.settle->Run({});
}

absl::StatusOr<bool> ParameterServer::Apply(int worker, std::string request) {
  absl::string_view rest(request);
  rest.remove_prefix(1);
  ASSIGN_OR_RETURN(const int64_t local_step, distribute::TakeNumber(rest));
  data::Position next;
  ASSIGN_OR_RETURN(next.epoch, distribute::TakeNumber(rest));
  ASSIGN_OR_RETURN(next.index, distribute::TakeNumber(rest));
  bool is_taken = true;
  const size_t num_bytes = sizeof(float) + BytesOf(placed().sums);
  if (rest.size() < num_bytes) {
    return absl::DataLossError("the gradients of a worker are shorter than those of this ps");
  }
  ASSIGN_OR_RETURN(std::vector<TableRows> rows, TakeAllRows(placed().row_groups, rest.substr(num_bytes)));
  if (sync_) {
    is_taken = sync_->Apply(worker, local_step, std::move(request));
    // A batch is done when the step of its gradient is.
    if (is_taken && !positions_.empty()) positions_[worker].pending = next;
    RETURN_IF_ERROR(MakeStep());
  } else {
    // The first server decides for all.
    if (options_.max_gradient_staleness && variables_.Has(kGlobalStep)) {
      ASSIGN_OR_RETURN(const int64_t global_step, GlobalStep());
      is_taken = global_step - local_step <= *options_.max_gradient_staleness;
    }
    if (is_taken) RETURN_IF_ERROR(Update(rest.substr(0, num_bytes), rows));
  }
  if (!is_taken) ++num_dropped_;
  if (!positions_.empty() && (!sync_ || !is_taken)) positions_[worker] = {.done = next, .pending = std::nullopt};
  return is_taken;
}

absl::Status ParameterServer::Update(absl::string_view learning_rate_and_sums, const std::vector<TableRows>& rows) {
  ASSIGN_OR_RETURN(const Tensor learning_rate, distribute::TakeElements({DType::kFloat32, {}}, learning_rate_and_sums));
  RETURN_IF_ERROR(Write(placed().sums, learning_rate_and_sums));
  const int64_t num_rows = RoundUpRows(rows);
  ASSIGN_OR_RETURN(Compiled* const compiled, CompiledFor(num_rows));
  std::vector<Tensor> feeds = {learning_rate.Clone()};
  for (Tensor& feed : RowFeeds(placed().row_groups, rows, num_rows)) feeds.push_back(std::move(feed));
  return compiled->update->Run(feeds);
}

absl::Status ParameterServer::MakeStep() {
  if (!error_.ok() || !sync_->IsComplete()) return error_;
  // Whoever waits for the step has its error, too.
  error_ = UpdateByMean(sync_->Take());
  for (auto& [done, pending] : positions_) done = std::exchange(pending, std::nullopt).value_or(done);
  changed_.notify_all();
  return error_;
}

absl::Status ParameterServer::UpdateByMean(const std::vector<std::string>& gradients) {
  // In front of the sums is the learning rate, which is that of the first.
  constexpr size_t kBeforeNumbers = 1 + 3 * sizeof(int64_t);
  const size_t n = 1 + BytesOf(placed().sums) / sizeof(float);
  std::vector<float> mean(n), numbers(n);
  std::vector<std::vector<TableRows>> rows;
  for (const std::string& gradient : gradients) {
    const absl::string_view bytes = absl::string_view(gradient).substr(kBeforeNumbers);
    std::memcpy(numbers.data(), bytes.data(), n * sizeof(float));
    if (&gradient == &gradients[0]) mean = numbers;
    for (size_t i = 1; i < n && &gradient != &gradients[0]; ++i) mean[i] += numbers[i];
    ASSIGN_OR_RETURN(rows.emplace_back(), TakeAllRows(placed().row_groups, bytes.substr(n * sizeof(float))));
  }
  const auto count = static_cast<float>(gradients.size());
  for (size_t i = 1; i < n; ++i) mean[i] /= count;
  return Update({reinterpret_cast<const char*>(mean.data()), n * sizeof(float)}, MeanOfRows(std::move(rows)));
}

absl::Status ParameterServer::WaitForStep(int64_t step, std::unique_lock<std::mutex>& lock) {
  if (!sync_ || changed_.wait_for(lock, kLongest, [&] { return sync_->step() >= step; })) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("ps ", server_, " has not the gradients of step ", step, " yet"));
}

void ParameterServer::WaitForToken(int worker, std::unique_lock<std::mutex>& lock, std::string& answer) {
  std::optional<int64_t> token;
  changed_.wait_for(lock, kLongest, [&] {
    token = sync_->TakeToken(worker);
    return token.has_value();
  });
  distribute::AppendNumber(token.value_or(kNone), answer);
  if (!token) distribute::AppendNumber(sync_->FirstMissing().value_or(kNone), answer);
}

void ParameterServer::StopWaitingFor(int worker) {
  has_left_[worker] = true;
  if (!sync_) return;
  sync_->Leave(worker);
  // The step may need no gradients any more but those that are there. An error is told with the next answers.
  MakeStep().IgnoreError();
}

void ParameterServer::Leave(int worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StopWaitingFor(worker);
}

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
                     BuildServerUpdate(model, config, spec, servers.num_servers(), s, /*num_rows=*/1));
    client->placed_.push_back(std::move(built.placed));
  }
  return client;
}

absl::StatusOr<std::vector<std::string>> ServerClient::Ask(Which which, const std::string& request,
                                                           const SpecsOf& specs_of, const RowsOf& rows_of) {
  std::vector<distribute::ParameterServers::Request> requests(placed_.size());
  std::vector<std::string> rows(placed_.size());
  for (size_t s = 0; s < placed_.size(); ++s) {
    if (which == (s == 0 ? Which::kOthers : Which::kFirst)) continue;
    requests[s].emplace_back(request);
    for (const auto* specs : specs_of(placed_[s])) {
      for (const compute::VariableSpec& spec : *specs) {
        const void* const data = replicas_.HostData(spec.name);
        requests[s].emplace_back(static_cast<const char*>(data), spec.type.num_bytes());
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

absl::Status ServerClient::TakeValues(const std::vector<compute::VariableSpec>& specs, absl::string_view& answer) {
  for (const compute::VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const Tensor value, distribute::TakeElements(spec.type, answer));
    RETURN_IF_ERROR(replicas_.Write(spec.name, value));
  }
  return absl::OkStatus();
}

const std::vector<int32_t>& ServerClient::IdsOf(const BuiltModel::RowGroup& group) const {
  static const std::vector<int32_t> kNoRows;
  return rows_.empty() ? kNoRows : rows_[group.index].ids;
}

absl::Status ServerClient::TakeRows(const BuiltModel::RowGroup& group, absl::string_view& answer) {
  for (const compute::VariableSpec& table : group.tables) {
    ASSIGN_OR_RETURN(const size_t num_bytes, WriteRows(table, IdsOf(group), answer, replicas_.HostData(table.name)));
    answer.remove_prefix(num_bytes);
  }
  return absl::OkStatus();
}

absl::Status ServerClient::FinishReading(int64_t global_step) {
  RETURN_IF_ERROR(replicas_.Write(kGlobalStep, Tensor::Scalar(global_step)));
  if (!options_.sync_replicas || !has_token_) local_step_ = global_step;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ServerClient::ReadVariables(ReplicatedProgram* program) {
  rows_.clear();
  if (program != nullptr) {
    ASSIGN_OR_RETURN(rows_, FindRows(*program));
  }
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
    RETURN_IF_ERROR(TakeValues(placed_[s].whole, answer));
    for (const BuiltModel::RowGroup& group : placed_[s].row_groups) RETURN_IF_ERROR(TakeRows(group, answer));
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
    RETURN_IF_ERROR(TakeValues(placed_[s].variables, answer));
    RETURN_IF_ERROR(TakeValues(placed_[s].slots, answer));
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
  std::string request = BeginRequest(Request::kUpdate);
  for (const int64_t number : {local_step_, next.epoch, next.index}) distribute::AppendNumber(number, request);
  distribute::AppendElements(Tensor::Scalar(learning_rate), request);
  const auto send = [&](Which which) {
    return Ask(
        which, request, [](const BuiltModel::Placed& placed) { return VariableLists{&placed.sums}; },
        [&](const BuiltModel::Placed& placed, std::string& bytes) {
          for (const BuiltModel::RowGroup& group : placed.row_groups) AppendRows(rows_[group.index], group, bytes);
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
