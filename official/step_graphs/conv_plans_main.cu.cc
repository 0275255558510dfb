// conv_plans_main CONVOLUTIONS CARD.json...: prints what plans cuDNN has for the convolutions of the models on GPUs
// whose properties are in the files, in each precision. No GPU is needed.
//
// A line of CONVOLUTIONS is one that cuda_kernels_test lists: "output 256x224x224x3 * 64x7x7x3, padding 3x3, stride
// 2x2". A CARD.json is what cuDNN itself writes of a card (tools/gpu/machine.py).

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cudnn_plans.h"

namespace official::step_graphs {
namespace {

using compute::ConvResult;
using compute::CudnnConvolution;
using compute::CudnnDescriptor;
using compute::DType;

// A way to compute.
struct Precision {
  const char* name;
  DType dtype;
  bool tensor_cores;
};
constexpr Precision kPrecisions[] = {{"float32", DType::kFloat32, false},
                                     {"TF32", DType::kFloat32, true},
                                     {"bfloat16", DType::kBFloat16, true},
                                     {"float16", DType::kFloat16, true}};
constexpr size_t kMostEngines = 4;  // that a line names

struct Card {
  std::string name;  // of its file, without the ending
  CudnnDescriptor properties;
};

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.good()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

absl::StatusOr<Card> ReadCard(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, ReadText(path));
  ASSIGN_OR_RETURN(CudnnDescriptor properties, CudnnDescriptor::Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
  RETURN_IF_ERROR(properties.SetAll(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                    static_cast<int64_t>(json.size()), json.data()));
  RETURN_IF_ERROR(properties.Finalize());
  const std::string file = path.substr(path.rfind('/') + 1);
  return Card{file.substr(0, file.rfind('.')), std::move(properties)};
}

// The convolution of a line, whose type is to be set.
absl::StatusOr<CudnnConvolution> ParseConvolution(const std::string& line) {
  CudnnConvolution c = {};
  c.dilations = {1, 1};
  std::array<int64_t, 4>&x = c.images, &w = c.filters;
  char result[8];
  const int read =
      std::sscanf(line.c_str(),
                  "%7s %" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64 " * %" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64
                  ", padding %" SCNd64 "x%" SCNd64 ", stride %" SCNd64 "x%" SCNd64 ", dilation %" SCNd64 "x%" SCNd64,
                  result, &x[0], &x[1], &x[2], &x[3], &w[0], &w[1], &w[2], &w[3], &c.padding[0], &c.padding[1],
                  &c.strides[0], &c.strides[1], &c.dilations[0], &c.dilations[1]);
  const std::map<std::string, ConvResult> results = {
      {"output", ConvResult::kOutput}, {"images", ConvResult::kImages}, {"filters", ConvResult::kFilters}};
  const auto found = read == 13 || read == 15 ? results.find(result) : results.end();
  if (found == results.end()) return absl::InvalidArgumentError(absl::StrCat("not a convolution: ", line));
  c.result = found->second;
  const auto outputs = [&](int axis) {
    const int64_t window = c.dilations[axis] * (w[1 + axis] - 1) + 1;
    return (x[1 + axis] + 2 * c.padding[axis] - window) / c.strides[axis] + 1;
  };
  c.output = {x[0], outputs(0), outputs(1), w[0]};
  return c;
}

// Returns "24 plans of engines 45 22 46 27 .., the first with 205520896 bytes", or "none". Engines that are compiled
// when they are needed do not count: which there are depends on the driver and NVRTC.
absl::StatusOr<std::string> PlansOf(const CudnnConvolution& c, const Card& card) {
  ASSIGN_OR_RETURN(const compute::ConvPlans plans, compute::ConvPlans::Make(nullptr, &card.properties, c));
  compute::CudnnRefusals not_compiled;
  const absl::StatusOr<std::vector<compute::ConvEngine>> engines = plans.Engines({.most_compiled = 0}, not_compiled);
  if (absl::IsUnimplemented(engines.status())) return "none";
  if (!engines.ok()) return engines.status();
  std::vector<std::string> numbers;
  for (const compute::ConvEngine& engine : *engines) {
    int number = 0;
    std::sscanf(engine.name.c_str(), "engine %d", &number);
    if (std::find(numbers.begin(), numbers.end(), absl::StrCat(number)) == numbers.end()) {
      numbers.push_back(absl::StrCat(number));
    }
  }
  const bool all = numbers.size() <= kMostEngines;
  if (!all) numbers.resize(kMostEngines);
  return absl::StrCat(engines->size(), " plans of engines ", absl::StrJoin(numbers, " "), all ? "" : " ..",
                      ", the first with ", engines->front().workspace_bytes, " bytes");
}

absl::Status PrintPlans(const std::string& convolutions, const std::vector<std::string>& cards) {
  const size_t version = cudnnGetVersion();  // 91900 is 9.19.0
  std::cout << absl::StrFormat("cuDNN %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  ASSIGN_OR_RETURN(const std::string lines, ReadText(convolutions));
  for (const std::string& path : cards) {
    ASSIGN_OR_RETURN(const Card card, ReadCard(path));
    for (const Precision& precision : kPrecisions) {
      std::istringstream stream(lines);
      for (std::string line; std::getline(stream, line);) {
        ASSIGN_OR_RETURN(CudnnConvolution c, ParseConvolution(line));
        c.dtype = precision.dtype;
        c.tensor_cores = precision.tensor_cores;
        ASSIGN_OR_RETURN(const std::string plans, PlansOf(c, card));
        std::cout << card.name << " " << precision.name << " " << line << ": " << plans << "\n";
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::step_graphs

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: conv_plans_main CONVOLUTIONS CARD.json...\n";
    return 2;
  }
  const absl::Status status = official::step_graphs::PrintPlans(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::cerr << "conv_plans: " << status << "\n";
  return status.ok() ? 0 : 1;
}
