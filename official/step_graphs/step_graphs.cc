#include "official/step_graphs/step_graphs.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/mnist/mnist_model.h"
#include "official/recommendation/neumf_model.h"
#include "official/resnet/resnet_model.h"
#include "official/transformer/decoder_graphs.h"
#include "official/transformer/model_params.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/status.h"

namespace official::step_graphs {
namespace {

using compute::DType;
using compute::TensorType;
using train::Mode;

// Of these networks a sentence has so many tokens on average.
constexpr int64_t kTokensOfSentence = 32;

TrainedModel Mnist(int64_t batch) {
  return {.name = "mnist",
          .model = mnist::MnistModel({}),
          .batch = batch,
          .unit = "images",
          .types = [](Mode, int64_t n) -> data::ElementSpec {
            constexpr int64_t kPixels = mnist::kImageSize * mnist::kImageSize;
            return {{{"", {DType::kFloat32, {n, kPixels}}}}, {{"", {DType::kInt32, {n}}}}};
          }};
}

TrainedModel Resnet(resnet::DatasetName dataset, int size, int version, int64_t batch, bool sync_batch_norm = false) {
  const resnet::DatasetInfo& info = resnet::InfoOf(dataset);
  return {.name = absl::StrCat("resnet-", size, " v", version, sync_batch_norm ? ", sync_batch_norm" : ""),
          .model = resnet::ResnetModel({.dataset = dataset,
                                        .size = size,
                                        .version = version,
                                        .weight_decay = info.weight_decay,
                                        .sync_batch_norm = sync_batch_norm,
                                        .schedule = {.boundary_epochs = info.boundary_epochs,
                                                     .factors = info.factors,
                                                     .num_train_examples = info.num_train_examples}}),
          .batch = batch,
          .unit = "images",
          .types = [pixels = int64_t{info.image_size}](Mode, int64_t n) -> data::ElementSpec {
            return {{{"", {DType::kFloat32, {n, pixels, pixels, 3}}}}, {{"", {DType::kInt32, {n}}}}};
          }};
}

// `batch` is the number of target tokens.
TrainedModel Transformer(const std::string& param_set, int64_t batch, std::optional<int64_t> num_layers = {}) {
  transformer::ModelParams params = transformer::ParamsOf(param_set, /*multi_gpu=*/false).value();
  params.num_hidden_layers = num_layers.value_or(params.num_hidden_layers);
  return {.name = absl::StrCat("transformer ", param_set),
          .model = transformer::TransformerModel(params),
          .batch = batch,
          .unit = "target tokens",
          .predicts = false,
          .types = [](Mode, int64_t n) -> data::ElementSpec {
            const TensorType ids{DType::kInt32, {n}}, offsets{DType::kInt32, {n / kTokensOfSentence + 1}};
            return {{{"inputs", ids}, {"input_offsets", offsets}}, {{"targets", ids}, {"target_offsets", offsets}}};
          }};
}

TrainedModel Ncf(const std::string& name, const recommendation::ModelConfig& config, int64_t batch,
                 bool repeated_candidates) {
  return {
      .name = absl::StrCat("ncf ", name),
      .model = recommendation::NeuMfModel(config),
      .batch = batch,
      .types = [=](Mode mode, int64_t n) -> data::ElementSpec {
        constexpr int64_t kCandidates = 1000;
        const int64_t users = n / kCandidates;
        data::ElementSpec types;
        if (mode != Mode::kEval) {
          const TensorType ids{DType::kInt32, {n}};
          return {{{"user_id", ids}, {"item_id", ids}}, {{"", {DType::kFloat32, {n}}}}};
        }
        types.features = {{"user_id", {DType::kInt32, {users}}}, {"item_id", {DType::kInt32, {users, kCandidates}}}};
        if (repeated_candidates) types.features.push_back({"repeated", {DType::kBool, {users, kCandidates}}});
        return types;
      }};
}

constexpr int64_t kMovieLens1mUsers = 6040, kMovieLens1mItems = 3706;
constexpr int64_t kMovieLens20mUsers = 138493, kMovieLens20mItems = 26744;

// The models whose graphs have nodes that others do not have.
std::vector<TrainedModel> AllModels() {
  using resnet::DatasetName;
  std::vector<TrainedModel> models = CountedModels();
  for (const int version : {1, 2}) {
    models.push_back(Resnet(DatasetName::kCifar10, 20, version, 128));
    models.push_back(Resnet(DatasetName::kCifar10, 20, version, 128, /*sync_batch_norm=*/true));
  }
  models.push_back(Resnet(DatasetName::kCifar10, 32, 2, 128));
  models.push_back(Resnet(DatasetName::kImagenet, 50, 2, 256));
  models.push_back(Transformer("tiny", 2048));
  models.push_back(Ncf("gmf", {.num_users = kMovieLens1mUsers, .num_items = kMovieLens1mItems, .layers = {}}, 98304,
                       /*repeated_candidates=*/false));
  models.push_back(Ncf("mlp",
                       {.num_users = kMovieLens1mUsers,
                        .num_items = kMovieLens1mItems,
                        .num_factors = 0,
                        .loss = recommendation::Loss::kSigmoid,
                        .mlp_regularization = {0.1, 0.1, 0.1, 0.1}},
                       98304, /*repeated_candidates=*/true));
  return models;
}

std::string Described(const TrainedModel& model, absl::string_view what, DType dtype, int num_replicas) {
  return absl::StrCat(model.name, ", ", what, ", ", DTypeName(dtype),
                      num_replicas == 1 ? "" : absl::StrCat(", ", num_replicas, " replicas"));
}

absl::Status Named(const absl::Status& status, absl::string_view name) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

// Visits what one call of train::BuildModel gives.
absl::Status VisitBuilt(const TrainedModel& model, Mode mode, absl::string_view what, DType dtype,
                        const train::BuildOptions& options, absl::FunctionRef<absl::Status(const StepGraph&)> visit) {
  const std::string name = Described(model, what, dtype, options.num_replicas);
  const int64_t batch = options.has_examples ? model.batch / options.num_replicas : kTokensOfSentence;
  const absl::StatusOr<train::BuiltModel> built =
      train::BuildModel(model.model, mode, dtype, model.types(mode, batch), options);
  if (!built.ok()) return Named(built.status(), name);
  const auto visit_roots = [&](const compute::GraphRoots& roots) {
    return Named(visit({name, options.num_replicas, *built->graph, roots}), name);
  };
  RETURN_IF_ERROR(visit_roots(built->roots));
  return built->settle == nullptr ? absl::OkStatus() : visit_roots({{}, {}, {built->settle}});
}

absl::Status VisitTraining(const TrainedModel& model, DType dtype, int num_replicas,
                           absl::FunctionRef<absl::Status(const StepGraph&)> visit) {
  const auto visit_built = [&](absl::string_view what, const train::BuildOptions& options) {
    return VisitBuilt(model, Mode::kTrain, what, dtype, options, visit);
  };
  const train::BuildOptions options{.loss_scale = DefaultLossScale(dtype), .num_replicas = num_replicas};
  RETURN_IF_ERROR(visit_built("training", options));
  if (num_replicas > 1) {
    train::BuildOptions empty = options;
    empty.has_examples = false;
    RETURN_IF_ERROR(visit_built("training without examples", empty));
  }
  if (dtype == DType::kFloat16) {
    train::BuildOptions dynamic = options;
    dynamic.loss_scale = compute::DynamicLossScale();
    RETURN_IF_ERROR(visit_built("training with a dynamic loss scale", dynamic));
  }
  for (const auto& [part, what] : {std::pair{train::StepPart::kMicroBatch, "micro-batch"},
                                   std::pair{train::StepPart::kUpdate, "update after micro-batches"}}) {
    train::BuildOptions piece = options;
    piece.part = part;
    RETURN_IF_ERROR(visit_built(what, piece));
  }
  return absl::OkStatus();
}

absl::Status VisitTranslation(absl::FunctionRef<absl::Status(const StepGraph&)> visit) {
  constexpr int64_t kSentences = 32;
  for (const std::string& param_set : transformer::ParamSets()) {
    const transformer::ModelParams params = transformer::ParamsOf(param_set, /*multi_gpu=*/false).value();
    for (const DType dtype : compute::StorageTypes()) {
      const transformer::DecoderCapacity capacity = {
          .tokens = kSentences * kTokensOfSentence, .rows = kSentences * params.beam_size, .positions = 128};
      for (const auto& [what, built] :
           {std::pair<std::string, transformer::DecoderGraph>{
                "encoder of translation",
                transformer::EncodeGraph(params, dtype, capacity, capacity.tokens, kSentences)},
            {"step of translation", transformer::StepGraph(params, dtype, capacity, kSentences, capacity.rows)}}) {
        const std::string name = absl::StrCat("transformer ", param_set, ", ", what, ", ", DTypeName(dtype));
        RETURN_IF_ERROR(Named(visit({name, 1, *built.graph, built.roots}), name));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TrainedModel> CountedModels() {
  using resnet::DatasetName;
  std::vector<TrainedModel> models;
  models.push_back(Mnist(100));
  models.push_back(Resnet(DatasetName::kCifar10, 32, 1, 128));
  models.push_back(Resnet(DatasetName::kImagenet, 50, 1, 256));
  models.push_back(Transformer("base", 4096));
  models.push_back(Transformer("big", 4096));
  models.push_back(Ncf("ml-1m", {.num_users = kMovieLens1mUsers, .num_items = kMovieLens1mItems}, 98304,
                       /*repeated_candidates=*/false));
  models.push_back(Ncf("ml-20m",
                       {.num_users = kMovieLens20mUsers,
                        .num_items = kMovieLens20mItems,
                        .num_factors = 64,
                        .layers = {256, 256, 128, 64}},
                       int64_t{1} << 20, /*repeated_candidates=*/true));
  return models;
}

std::vector<TrainedModel> SmallModels() {
  std::vector<TrainedModel> models;
  models.push_back(Mnist(8));
  models.push_back(Resnet(resnet::DatasetName::kCifar10, 8, 1, 8));
  models.push_back(Transformer("tiny", 64, /*num_layers=*/1));
  models.push_back(Ncf("ml-1m", {.num_users = kMovieLens1mUsers, .num_items = kMovieLens1mItems}, 256,
                       /*repeated_candidates=*/false));
  return models;
}

std::string NameOf(Mode mode) {
  return mode == Mode::kTrain ? "training" : mode == Mode::kEval ? "evaluation" : "prediction";
}

compute::LossScale DefaultLossScale(DType dtype) { return {.value = dtype == DType::kFloat16 ? 128.0f : 1.0f}; }

absl::Status VisitGraphs(absl::FunctionRef<absl::Status(const StepGraph&)> visit) {
  for (const TrainedModel& model : AllModels()) {
    for (const DType dtype : compute::StorageTypes()) {
      for (const int num_replicas : {1, 2}) {
        RETURN_IF_ERROR(VisitTraining(model, dtype, num_replicas, visit));
        for (const Mode mode : {Mode::kEval, Mode::kPredict}) {
          if (mode == Mode::kPredict && (num_replicas > 1 || !model.predicts)) continue;  // one replica predicts
          RETURN_IF_ERROR(VisitBuilt(model, mode, NameOf(mode), dtype, {.num_replicas = num_replicas}, visit));
        }
      }
    }
  }
  return VisitTranslation(visit);
}

}  // namespace official::step_graphs
