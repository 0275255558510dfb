// decode_benchmark_main: how many tokens a second the beam search of the Transformer finds, with a network that was not
// trained and whose translations never end by themselves, so that every search does the same work.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/transformer/decoder.h"
#include "official/transformer/model_params.h"
#include "official/transformer/text/reserved_ids.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/initializer.h"
#include "utils/compute/kernel/device.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/main.h"
#include "utils/flags/shared_groups.h"
#include "utils/misc/distribution_utils.h"
#include "utils/run/usable_gpus.h"
#include "utils/train/options.h"

ABSL_FLAG(std::string, param_set, "base", "Size of the network.");
ABSL_FLAG(std::vector<std::string>, lengths, {}, "Ids of each sentence, separated by commas.");
ABSL_FLAG(int, steps, 32, "Tokens of each translation; more than the longest sentence has.");
ABSL_FLAG(int, threads, 1, "Threads that compute.");
ABSL_FLAG(int, seconds, 10, "How long to measure.");
ABSL_DECLARE_FLAG(std::optional<int>, num_gpus);

namespace official::transformer {
namespace {

using Clock = std::chrono::steady_clock;
using compute::Tensor;

constexpr uint64_t kSeed = 1;
constexpr float kLogitOfEos = -100;

flags::Program BenchmarkProgram() {
  return {
      .name = "decode_benchmark_main",
      .description = "Translates ids with an untrained network, and prints how many tokens a second.",
      .examples = {{"decode_benchmark_main --lengths=9,14,11,30 --dtype=bf16", "measure four sentences"}},
      .flags = {.name = "decode_benchmark",
                .flags = {{.name = "param_set", .short_name = "mp", .key = true, .choices = {"tiny", "base", "big"}},
                          {.name = "lengths", .key = true, .required = true},
                          {.name = "steps", .key = true, .range = flags::AtLeast(1)},
                          flags::SharedFlag("dtype"),
                          {.name = "num_gpus",
                           .short_name = "ng",
                           .key = true,
                           .range = flags::Range{.min = 0, .max = 1},
                           .unset_means = "1 if there is a GPU, else 0",
                           .help = "1 translates on a GPU, 0 on the CPU."},
                          {.name = "threads", .key = true, .range = flags::AtLeast(1)},
                          {.name = "seconds", .key = true, .range = flags::AtLeast(1)}}},
      .shared_flags = false,
  };
}

// The initial value, but for what gives EOS its logit: what is normalized has the sum 0 before the bias is added.
Tensor UntrainedValue(const compute::VariableSpec& spec, const compute::Initializer& initializer) {
  Tensor value = compute::InitialValue(initializer, {compute::DType::kFloat32, spec.type.shape}, spec.name, kSeed);
  float* const data = value.data<float>();
  if (absl::EndsWith(spec.name, "decoder_stack/layer_normalization/layer_norm_bias")) {
    std::fill_n(data, value.num_elements(), 1.0f);
  } else if (absl::StrContains(spec.name, "embedding_shared_weights")) {
    const int64_t size = spec.type.shape.dim(1);
    std::fill_n(data + kEosId * size, size, kLogitOfEos / static_cast<float>(size));
  }
  return value;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> Sentences(const ModelParams& params) {
  std::vector<std::vector<int32_t>> sentences;
  int32_t id = kEosId;
  for (const std::string& text : absl::GetFlag(FLAGS_lengths)) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(text, &length) || length < 1 || length > absl::GetFlag(FLAGS_steps)) {
      return flags::FlagError("lengths", absl::StrCat("'", text, "' is not a length from 1 to --steps"));
    }
    std::vector<int32_t>& sentence = sentences.emplace_back(length, kEosId);
    for (int64_t i = 0; i + 1 < length; ++i) {
      id = static_cast<int32_t>((int64_t{id} * 7919 + 1) % (params.vocab_size - 2));
      sentence[i] = id + 2;
    }
  }
  return sentences;
}

absl::Status Main(const flags::CommandLine&) {
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf(absl::GetFlag(FLAGS_param_set), /*multi_gpu=*/false));
  ASSIGN_OR_RETURN(const auto sentences, Sentences(params));
  size_t longest = 0;
  for (const std::vector<int32_t>& sentence : sentences) longest = std::max(longest, sentence.size());
  params.extra_decode_length = absl::GetFlag(FLAGS_steps) - static_cast<int64_t>(longest);

  ASSIGN_OR_RETURN(const int num_gpus, misc::GetNumGpus(absl::GetFlag(FLAGS_num_gpus), run::UsableGpus));
  ASSIGN_OR_RETURN(const auto device,
                   compute::MakeDevice(run::DeviceKindFor(num_gpus), {.num_threads = absl::GetFlag(FLAGS_threads)}));
  device->set_recordings(compute::Recordings::kAuto);
  device->set_warn([](const std::string& text) { std::cerr << text << std::endl; });
  const auto untrained = [&](const compute::VariableSpec& spec) -> absl::StatusOr<Tensor> {
    // Weights that are given have no initializer of their own.
    const bool is_scale = absl::EndsWith(spec.name, "layer_norm_scale"), is_matrix = spec.type.shape.rank() == 2;
    return UntrainedValue(spec, is_scale    ? compute::Initializer::Ones()
                                : is_matrix ? compute::Initializer::GlorotUniform(spec.type.shape)
                                            : compute::Initializer::Zeros());
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   Decoder::Create(params, flags::FromFlags<train::TrainOptions>().dtype, *device, untrained));
  RETURN_IF_ERROR(decoder->Translate(sentences).status());  // compiles
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  int64_t tokens = 0;
  while (elapsed() < absl::GetFlag(FLAGS_seconds)) {
    ASSIGN_OR_RETURN(const Decoded decoded, decoder->Translate(sentences));
    for (const Hypothesis& translation : decoded.best) tokens += static_cast<int64_t>(translation.ids.size());
  }
  std::cout << absl::StrFormat("%.1f tokens/s", static_cast<double>(tokens) / elapsed()) << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::transformer::BenchmarkProgram(), official::transformer::Main);
}
