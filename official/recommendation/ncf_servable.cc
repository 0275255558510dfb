#include "official/recommendation/ncf_servable.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "official/recommendation/data/movielens.h"
#include "official/recommendation/ncf_predict.h"
#include "official/recommendation/ncf_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/logs/log.h"
#include "utils/misc/text.h"
#include "utils/run/session.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Tensor;
using serve::Values;

class NcfServable : public serve::Servable {
 public:
  NcfServable(Ratings ratings, std::unique_ptr<train::Estimator> estimator, int top_k)
      : ratings_(std::move(ratings)),
        estimator_(std::move(estimator)),
        version_(estimator_->global_step()),
        top_k_(top_k),
        signature_{.name = "recommend",
                   .inputs = {{"user", DType::kInt32, {}}},
                   .outputs = {{"items", DType::kInt32, {-1}}, {"ratings", DType::kFloat32, {-1}}}} {}

  const serve::Signature& signature() const override { return signature_; }
  int64_t version() const override { return version_; }

  absl::StatusOr<Values> Prepare(Values example) const override {
    const auto* const id = std::get_if<Tensor>(&example[0]);
    if (id == nullptr) return absl::InvalidArgumentError("a user is a number, not bytes");
    const absl::StatusOr<int32_t> user = FindUser(ratings_, id->scalar<int32_t>());
    if (!user.ok()) return absl::InvalidArgumentError(user.status().message());
    return Values{Tensor::Scalar<int32_t>(*user)};
  }

  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) override {
    std::vector<Values> outputs;
    for (const Values& example : examples) {
      const auto user = std::get<Tensor>(example[0]).scalar<int32_t>();
      ASSIGN_OR_RETURN(const BestItems best, FindBestItems(*estimator_, ratings_, user, top_k_));
      const auto n = static_cast<int64_t>(best.items.size());
      const Tensor items(DType::kInt32, {n});
      for (int64_t i = 0; i < n; ++i) items.data<int32_t>()[i] = ratings_.item_ids[best.items[i]];
      outputs.push_back({items, Tensor::Of<float>({n}, absl::MakeConstSpan(best.scores))});
    }
    return outputs;
  }

 private:
  const Ratings ratings_;
  const std::unique_ptr<train::Estimator> estimator_;
  const int64_t version_;
  const int top_k_;
  const serve::Signature signature_;
};

absl::StatusOr<ModelConfig> TrainedModel(const serve::ServedRun& run) {
  const std::string model = run.Trained("model");
  ModelConfig config;
  config.layers.clear();
  bool known = model == "neumf" || model == "gmf" || model == "mlp";
  known &= absl::SimpleAtoi(run.Trained("num_factors"), &config.num_factors) && config.num_factors >= 1;
  for (const absl::string_view layer : absl::StrSplit(run.Trained("layers"), ',')) {
    known &= absl::SimpleAtoi(layer, &config.layers.emplace_back()) && config.layers.back() >= 1;
  }
  if (!known || config.layers[0] % 2 != 0) {
    return absl::DataLossError(absl::StrCat(run.config.train.model_dir,
                                            "/flags.txt is damaged: --model, --num_factors "
                                            "and --layers are not those of a network"));
  }
  if (model == "mlp") config.num_factors = 0;
  if (model == "gmf") config.layers.clear();
  return config;
}

absl::StatusOr<LoadedRatings> LoadTrainedRatings(const serve::ServedRun& run, const RatingsOptions& options) {
  absl::StatusOr<LoadedRatings> loaded = LoadRatings(options);
  if (!loaded.ok() && !options.ratings_file.empty()) return run.FileError("ratings_file", loaded.status());
  if (absl::IsNotFound(loaded.status())) {
    return absl::NotFoundError(absl::StrCat("the training had ", options.dataset, " in ",
                                            misc::Printable(options.data_dir),
                                            ", which is not found from here; put it back, or give its ratings with "
                                            "--ratings_file"));
  }
  if (loaded.ok() && !loaded->note.empty()) {
    LOG(WARNING) << loaded->note;
  }
  return loaded;
}

}  // namespace

absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run) {
  RETURN_IF_ERROR(CheckCanRecommend(run.config.train.model_dir, run.trained));
  ASSIGN_OR_RETURN(const ModelConfig model, TrainedModel(run));
  RatingsOptions options = {.dataset = run.Trained("dataset"),
                            .data_dir = run.Trained("data_dir"),
                            .data_dir_given = run.Trained("data_dir") != files::DefaultDataDir("movielens-data"),
                            .download_if_missing = false,
                            .ratings_file = run.File("ratings_file")};
  if (!absl::SimpleAtoi(run.Trained("skip_bad_records", "0"), &options.skip_bad_records)) {
    return absl::DataLossError(
        absl::StrCat(run.config.train.model_dir, "/flags.txt is damaged: --skip_bad_records is not a number"));
  }
  ASSIGN_OR_RETURN(LoadedRatings loaded, LoadTrainedRatings(run, options));
  const train::RunFact fact = UsersAndItems(options, run.config.train.model_dir, loaded.ratings);
  ASSIGN_OR_RETURN(auto estimator, run::OpenTrained(run.config, ModelFor(model, loaded.ratings), {fact}));
  return std::make_unique<NcfServable>(std::move(loaded.ratings), std::move(estimator), run.top_k);
}

}  // namespace official::recommendation
