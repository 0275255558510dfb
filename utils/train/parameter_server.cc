#include "utils/train/parameter_server.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/distribute/tensor_bytes.h"
#include "utils/train/server_messages.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

// Servers wait this long before they answer that something is not there yet.
constexpr std::chrono::milliseconds kLongest(500);

// Programs that a server keeps. Batches of many rows need a few: one for each power of two. Of small batches and many
// shards, each may leave other shards without a row, and so need programs of its own.
constexpr size_t kMostPrograms = 64;

// At the beginning of an update: the step, the position and the learning rate.
constexpr size_t kUpdateBytes = 3 * sizeof(int64_t) + sizeof(float);

int64_t BytesOf(const std::vector<compute::VariableSpec>& specs) {
  int64_t bytes = 0;
  for (const compute::VariableSpec& spec : specs) bytes += spec.type.num_bytes();
  return bytes;
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
      arena_(device, config.servers.sync_replicas ? nullptr : &mutex_),
      has_left_(num_workers) {}

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Create(const Model& model,
                                                                         const EstimatorConfig& config,
                                                                         const data::ElementSpec& spec, int num_servers,
                                                                         int server, int num_workers,
                                                                         compute::Device& device) {
  const auto build = [=](const RowCounts& rows) {
    return BuildServerUpdate(model, config, spec, num_servers, server, rows);
  };
  std::unique_ptr<ParameterServer> made(new ParameterServer(build, config, server, num_workers, device));
  const RowCounts fewest = RoundUpRows(std::vector<int64_t>());
  ASSIGN_OR_RETURN(const Programs compiled, made->Compile(fewest));
  made->placed_ = compiled->built.placed;
  made->Keep(compiled);
  return made;
}

absl::StatusOr<ParameterServer::Programs> ParameterServer::PrepareFor(char request, absl::string_view rest) {
  const bool has_rows = request == static_cast<char>(Request::kUpdate);
  if (options_.sync_replicas || (!has_rows && request != static_cast<char>(Request::kReadVariables))) return nullptr;
  const size_t before = has_rows ? kUpdateBytes + BytesOf(placed().sums) : sizeof(int64_t);
  if (rest.size() < before) return nullptr;  // which is told later, as all that is wrong
  const auto counts = CountRows(placed().row_groups, has_rows, rest.substr(before));
  if (!counts.ok()) return nullptr;
  const RowCounts rows = RoundUpRows(*counts);
  if (!has_rows && std::all_of(counts->begin(), counts->end(), [](int64_t n) { return n == 0; })) return nullptr;
  const std::lock_guard<std::mutex> making(making_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = compiled_.find(rows); found != compiled_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(const Programs made, Compile(rows));
  const std::lock_guard<std::mutex> lock(mutex_);
  Keep(made);  // for those who wait to make the same
  return made;
}

void ParameterServer::Keep(const Programs& programs) {
  programs->last_used = ++num_used_;
  compiled_[programs->rows] = programs;
  if (compiled_.size() <= kMostPrograms) return;
  compiled_.erase(std::min_element(compiled_.begin(), compiled_.end(), [](const auto& a, const auto& b) {
    return a.second->last_used < b.second->last_used;
  }));
}

absl::StatusOr<ParameterServer::Programs> ParameterServer::CompiledFor(const RowCounts& rows) {
  const auto found = compiled_.find(rows);
  Programs programs = found == compiled_.end() ? nullptr : found->second;
  if (programs == nullptr) {
    if (!options_.sync_replicas) return absl::InternalError("a ps has no programs for the rows of a request");
    ASSIGN_OR_RETURN(programs, Compile(rows));
  }
  Keep(programs);
  return programs;
}

absl::StatusOr<ParameterServer::Programs> ParameterServer::Compile(const RowCounts& rows) {
  auto programs = std::make_shared<Compiled>();
  Compiled& made = *programs;
  made.rows = rows;
  ASSIGN_OR_RETURN(made.built, build_(rows));
  const BuiltModel& own = made.built;
  if (!has_variables_) {
    RETURN_IF_ERROR(CreateVariables(own));
    has_variables_ = true;
  }
  const auto compile = [&](const compute::GraphRoots& roots) {
    return compute::Program::Compile(*own.graph, roots, device_, variables_, {.arena = &arena_});
  };
  ASSIGN_OR_RETURN(made.update, compile(own.roots));
  if (own.settle != nullptr) {
    ASSIGN_OR_RETURN(made.settle, compile({.feeds = {}, .fetches = {}, .targets = {own.settle}}));
  }
  if (own.catch_up != nullptr) {
    std::vector<compute::Value> ids;
    for (size_t i = 0; i < own.feed_roles.size(); ++i) {
      if (own.feed_roles[i] == Feed::kRowIds) ids.push_back(own.roots.feeds[i]);
    }
    ASSIGN_OR_RETURN(made.catch_up, compile({.feeds = ids, .fetches = {}, .targets = {own.catch_up}}));
  }
  return programs;
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
  ASSIGN_OR_RETURN(const Programs prepared, PrepareFor(request[0], rest));
  std::unique_lock<std::mutex> lock(mutex_);
  if (prepared != nullptr) Keep(prepared);  // others may have made room meanwhile
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
  ASSIGN_OR_RETURN(const Programs compiled, CompiledFor(RoundUpRows(rows)));
  if (compiled->catch_up != nullptr) {
    RETURN_IF_ERROR(compiled->catch_up->Run(RowFeeds(groups, rows, RoundUpRows(rows))));
  }
  for (size_t g = 0; g < groups.size(); ++g) AppendRowsOf(groups[g], rows[g].ids, variables_, answer);
  return absl::OkStatus();
}

absl::Status ParameterServer::Settle() {
  const Compiled& any = *compiled_.begin()->second;
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
  const size_t num_bytes = sizeof(float) + BytesOf(placed().sums);  // the learning rate and the sums
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
  const RowCounts counts = RoundUpRows(rows);
  ASSIGN_OR_RETURN(const Programs compiled, CompiledFor(counts));
  std::vector<Tensor> feeds = {learning_rate.Clone()};
  for (Tensor& feed : RowFeeds(placed().row_groups, rows, counts)) feeds.push_back(std::move(feed));
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
  constexpr size_t kBeforeNumbers = 1 + kUpdateBytes - sizeof(float);
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

}  // namespace official::train
