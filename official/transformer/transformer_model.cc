#include "official/transformer/transformer_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/transformer/packing.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/embedding/embedding.h"
#include "utils/compute/ops/layer_norm/layer_norm.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Initializer;
using compute::Shape;
using compute::Tensor;
using compute::Value;

constexpr char kScope[] = "model/Transformer/";

// Packed sentences: rows of tokens, and where each sentence begins.
struct Sentences {
  Value rows;     // [T, hidden_size]
  Value offsets;  // int32 [B + 1]
};

class Builder {
 public:
  Builder(const train::ModelInputs& in, const ModelParams& params)
      : graph_(in.graph),
        dtype_(in.dtype),
        params_(params),
        training_(in.mode == train::Mode::kTrain),
        random_state_(in.random_state) {
    const double stddev = 1 / std::sqrt(static_cast<double>(params.hidden_size));
    embedding_ = Weight("embedding_shared_weights/embedding_and_softmax/weights",
                        {params.vocab_size, params.hidden_size}, Initializer::Normal(stddev));
    positions_ = graph_.Constant(compute::PositionSignal(params.max_length, params.hidden_size));
  }

  // ids int32 [T] -> what the decoder attends to.
  Sentences Encode(Value ids, Value offsets) {
    Stack stack(*this, "encoder_stack", Embed(ids, offsets, /*shift_right=*/false, "encoder_stack"));
    for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
      const std::string layer = absl::StrCat("encoder_stack/layer_", n);
      const Value x = stack.Normalize(absl::StrCat(layer, "/self_attention"));
      stack.Add(Attend(absl::StrCat(layer, "/self_attention/self_attention"), {x, offsets}, {x, offsets},
                       /*causal=*/false));
      stack.Add(FeedForward(absl::StrCat(layer, "/ffn"), stack.Normalize(absl::StrCat(layer, "/ffn")), offsets));
    }
    return {stack.Normalize("encoder_stack"), offsets};
  }

  // targets int32 [U] -> logits [U, vocab_size], each from the targets before its own.
  Value Decode(Value targets, Value offsets, const Sentences& encoded) {
    Stack stack(*this, "decoder_stack", Embed(targets, offsets, /*shift_right=*/true, "decoder_stack"));
    for (int64_t n = 0; n < params_.num_hidden_layers; ++n) {
      const std::string layer = absl::StrCat("decoder_stack/layer_", n);
      const Value x = stack.Normalize(absl::StrCat(layer, "/self_attention"));
      stack.Add(Attend(absl::StrCat(layer, "/self_attention/self_attention"), {x, offsets}, {x, offsets},
                       /*causal=*/true));
      const Value y = stack.Normalize(absl::StrCat(layer, "/encdec_attention"));
      stack.Add(Attend(absl::StrCat(layer, "/encdec_attention/attention"), {y, offsets}, encoded, /*causal=*/false));
      stack.Add(FeedForward(absl::StrCat(layer, "/ffn"), stack.Normalize(absl::StrCat(layer, "/ffn")), offsets));
    }
    return compute::MatMul(stack.Normalize("decoder_stack"), embedding_, {.transpose_b = true});
  }

 private:
  // The residual stream of a stack of sublayers, each of which adds to it what it makes of its normalized value. The
  // end of one sublayer and the start of the next are one op.
  class Stack {
   public:
    Stack(Builder& builder, absl::string_view name, Sentences start) : b_(builder), name_(name), stream_(start) {}

    // The normalized stream; variables <scope>/layer_normalization/layer_norm_scale and _bias.
    Value Normalize(absl::string_view scope) {
      const std::string layer = absl::StrCat(scope, "/layer_normalization/");
      const Value gamma =
          b_.Variable(absl::StrCat(layer, "layer_norm_scale"), {b_.params_.hidden_size}, Initializer::Ones());
      const Value beta =
          b_.Variable(absl::StrCat(layer, "layer_norm_bias"), {b_.params_.hidden_size}, Initializer::Zeros());
      if (!added_) return compute::LayerNorm(stream_.rows, gamma, beta);
      const std::string name = absl::StrCat(name_, "/", ++sublayers_);
      const compute::ResidualLayerNormOutputs out =
          compute::ResidualLayerNorm({stream_.rows, added_, gamma, beta, stream_.offsets, b_.random_state_},
                                     {.dropout_rate = b_.Rate(b_.params_.layer_postprocess_dropout), .name = name});
      stream_.rows = out.sum;
      added_ = Value();
      return out.normalized;
    }
    void Add(Value sublayer) { added_ = sublayer; }

   private:
    Builder& b_;
    const std::string name_;
    Sentences stream_;
    Value added_;
    int sublayers_ = 0;
  };

  double Rate(double dropout) const { return training_ ? dropout : 0; }
  Value Variable(absl::string_view name, Shape shape, const Initializer& initializer) {
    return graph_.Variable({absl::StrCat(kScope, name), {DType::kFloat32, std::move(shape)}, initializer});
  }
  // In the type of the computation.
  Value Weight(absl::string_view name, Shape shape, const Initializer& initializer) {
    const Value variable = Variable(name, std::move(shape), initializer);
    return dtype_ == DType::kFloat32 ? variable : compute::Cast(variable, dtype_);
  }
  // x [T, C] -> [T, units], without bias.
  Value Project(absl::string_view name, Value x, int64_t units) {
    const Shape shape = {x.shape().dim(1), units};
    Initializer initializer = Initializer::GlorotUniform(shape);
    initializer.value *= std::sqrt(params_.initializer_gain);
    return compute::MatMul(x, Weight(absl::StrCat(name, "/kernel"), shape, initializer));
  }
  Value Dense(absl::string_view name, Value x, int64_t units) {
    const Value y = Project(name, x, units);
    return compute::BiasAdd(y, Weight(absl::StrCat(name, "/bias"), {units}, Initializer::Zeros()));
  }

  Sentences Embed(Value ids, Value offsets, bool shift_right, absl::string_view name) {
    const Value rows = compute::Embedding({embedding_, ids, positions_, offsets, random_state_},
                                          {.scale = std::sqrt(static_cast<double>(params_.hidden_size)),
                                           .shift_right = shift_right,
                                           .dropout_rate = Rate(params_.layer_postprocess_dropout),
                                           .name = name});
    return {rows, offsets};
  }

  Value Attend(absl::string_view name, const Sentences& queries, const Sentences& keys, bool causal) {
    const int64_t size = params_.hidden_size;
    const Value q = Project(absl::StrCat(name, "/q"), queries.rows, size);
    const Value k = Project(absl::StrCat(name, "/k"), keys.rows, size);
    const Value v = Project(absl::StrCat(name, "/v"), keys.rows, size);
    const Value attended =
        compute::Attention({q, k, v, queries.offsets, keys.offsets, random_state_},
                           {.num_heads = static_cast<int>(params_.num_heads),
                            .causal = causal,
                            .scale = 1 / std::sqrt(static_cast<double>(size) / static_cast<double>(params_.num_heads)),
                            .dropout_rate = Rate(params_.attention_dropout),
                            .name = name});
    return Project(absl::StrCat(name, "/output_transform"), attended, size);
  }

  Value FeedForward(absl::string_view scope, Value x, Value offsets) {
    const std::string name = absl::StrCat(scope, "/feed_foward_network");  // as upstream spells it
    Value y = compute::Relu(Dense(absl::StrCat(name, "/filter_layer"), x, params_.filter_size));
    const double rate = Rate(params_.relu_dropout);
    if (rate > 0) y = compute::PackedDropout(y, offsets, rate, random_state_, name);
    return Dense(absl::StrCat(name, "/output_layer"), y, params_.hidden_size);
  }

  compute::Graph& graph_;
  const DType dtype_;
  const ModelParams params_;
  const bool training_;
  const Value random_state_;
  Value embedding_, positions_;
};

Value Float(Value x) { return compute::Cast(x, DType::kFloat32); }

// Means over the targets that are not padding.
std::vector<train::MeanMetric> Metrics(Value logits, Value targets, Value counted, Value count) {
  const int k = static_cast<int>(std::min<int64_t>(5, logits.shape().dim(1)));
  const Value best = compute::TopK(logits, k).second;
  const Value same = Float(compute::Equal(best, compute::BroadcastTo(compute::ExpandDims(targets, 1), best.shape())));
  const auto hits = [&](int among) {
    const Value among_best = compute::Slice(same, {0, 0}, {same.shape().dim(0), among});
    return compute::Sum(compute::Mul(compute::Sum(among_best, {1}), counted));
  };
  const Value log_likelihood = compute::Neg(compute::Sum(compute::PaddedCrossEntropy(logits, targets, 0)));
  return {{"metrics/accuracy", hits(1), count},
          {"metrics/accuracy_top5", hits(k), count},
          {"metrics/neg_log_perplexity", log_likelihood, count}};
}

absl::StatusOr<train::ModelSpec> Build(const train::ModelInputs& in, const ModelParams& params) {
  if (in.mode == train::Mode::kPredict) return absl::UnimplementedError("a translation is not one pass over a batch");
  const Value targets = in.labels[0], logits = Logits(in, params);
  const Value losses = compute::PaddedCrossEntropy(logits, targets, static_cast<float>(params.label_smoothing));
  const Value zero = in.graph.Constant(Tensor::Scalar<int32_t>(0));
  const Value counted = Float(compute::NotEqual(targets, compute::BroadcastTo(zero, targets.shape())));
  const Value count = compute::Sum(counted);
  train::ModelSpec spec{.loss = compute::Div(compute::Sum(losses), count)};
  if (in.mode == train::Mode::kTrain) {
    spec.logged = {{"cross_entropy_loss", spec.loss}};
  } else {
    spec.metrics = Metrics(logits, targets, counted, count);
  }
  return spec;
}

}  // namespace

Value Logits(const train::ModelInputs& in, const ModelParams& params) {
  Builder builder(in, params);
  return builder.Decode(in.labels[0], in.labels[1], builder.Encode(in.features[0], in.features[1]));
}

train::LearningRateFn LearningRate(const ModelParams& params) {
  return [rate = params.learning_rate / std::sqrt(static_cast<double>(params.hidden_size)),
          warmup = static_cast<double>(params.learning_rate_warmup_steps)](int64_t step) {
    const auto now = static_cast<double>(step);
    return rate * std::min(1.0, now / warmup) / std::sqrt(std::max(now, warmup));
  };
}

train::Model TransformerModel(const ModelParams& params) {
  train::Model model;
  model.name = "transformer";
  model.model_fn = [params](const train::ModelInputs& in) { return Build(in, params); };
  model.optimizer = [params](const compute::UpdateInputs& inputs,
                             absl::Span<const compute::VariableGradient> variables) {
    // Upstream's LazyAdam gets a gradient for every row of the embedding from the logits: it is dense.
    return compute::Adam(inputs, variables,
                         {.beta1 = params.optimizer_adam_beta1,
                          .beta2 = params.optimizer_adam_beta2,
                          .epsilon = params.optimizer_adam_epsilon,
                          .scope = "model/get_train_op/"});
  };
  model.learning_rate = LearningRate(params);
  model.learning_rate_tag = "learning_rate";
  model.share = PackedShare;
  return model;
}

}  // namespace official::transformer
