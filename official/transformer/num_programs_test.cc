// A program is compiled for each combination of shapes. This counts them, from the lengths of sentences alone.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/transformer/dataset.h"
#include "official/transformer/packing.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/random.h"
#include "utils/data/batch.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/protos/example.pb.h"
#include "utils/train/model.h"

namespace official::transformer {
namespace {

// The number of words in each line; none without the file.
std::vector<int> WordsOfLines(const std::string& path) {
  std::vector<int> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    using Words = std::istream_iterator<std::string>;
    words.push_back(static_cast<int>(std::distance(Words(stream), Words())));
  }
  return words;
}

// As many lengths as Multi30k has training sentences, with about its mean of 12 and its standard deviation of 4.
std::vector<int> DrawnLengths(uint64_t seed) {
  std::vector<int> lengths;
  for (int i = 0; i < 29'000; ++i) {
    double sum = 0;
    for (int k = 0; k < 12; ++k) sum += compute::UniformFloat(compute::Philox(seed, i, k)[0]);
    lengths.push_back(std::max(2, static_cast<int>(12 + 4 * (sum - 6))));
  }
  return lengths;
}

void AddIds(const char* name, int length, tensorflow::Example& example) {
  auto& ids = *(*example.mutable_features()->mutable_feature())[name].mutable_int64_list();
  for (int i = 0; i < length; ++i) ids.add_value(2);
  ids.add_value(1);
}

TranslationsPtr MakeTranslations() {
  const char* const dir = std::getenv("OFFICIAL_MULTI30K_DIR");
  std::vector<int> inputs, targets;
  if (dir != nullptr) {
    inputs = WordsOfLines(absl::StrCat(dir, "/train.en"));
    targets = WordsOfLines(absl::StrCat(dir, "/train.de"));
    REQUIRE(inputs.size() == 29'000);
    REQUIRE(targets.size() == inputs.size());
  } else {
    inputs = DrawnLengths(1);
    targets = DrawnLengths(2);
  }
  const std::string data_dir = absl::StrCat(std::getenv("TEST_TMPDIR"), "/sentences");
  REQUIRE(files::MakeDirectories(data_dir).ok());
  auto writer = data::TFRecordWriter::Open(data_dir + "/x-train-00001-of-00001").value();
  for (size_t i = 0; i < inputs.size(); ++i) {
    tensorflow::Example example;
    AddIds("inputs", inputs[i], example);
    AddIds("targets", targets[i], example);
    REQUIRE(writer->Write(example.SerializeAsString()).ok());
  }
  REQUIRE(writer->Close().ok());
  return Translations::Open(data_dir, TranslationPart::kTrain, kMaxLength, /*num_threads=*/1).value();
}

TEST_CASE("A training run has few programs") {
  static const TranslationsPtr translations = MakeTranslations();
  constexpr int64_t kEpochs = 4;
  const auto [batch_tokens, num_replicas] = GENERATE(std::tuple{2048, 1}, std::tuple{4096, 1}, std::tuple{32768, 1},
                                                     std::tuple{2048, 8}, std::tuple{4096, 8}, std::tuple{32768, 8});
  auto batches =
      TranslationBatches(translations, {.batch_tokens = batch_tokens, .seed = 1, .end_epoch = kEpochs}).value();
  std::vector<std::set<std::vector<int64_t>>> programs(num_replicas);
  int steps = 0;
  for (;; ++steps) {
    const auto batch = batches->Next().value();
    if (!batch) break;
    for (int r = 0; r < num_replicas; ++r) {
      const train::BatchShare share =
          PackedShare(train::Mode::kTrain, *batch, compute::ShareOf(batch->num_examples, r, num_replicas));
      // The offsets' length is that of the padded sentences, the same for inputs and targets.
      programs[r].insert({share.features[0].num_elements(), share.features[1].num_elements(),
                          share.labels[0].num_elements(), share.labels[1].num_elements()});
    }
  }
  size_t most = 0;
  for (const auto& of_replica : programs) most = std::max(most, of_replica.size());
  CAPTURE(batch_tokens, num_replicas, steps);
  CHECK(steps >= 100);
  CHECK(most <= 64);  // a replica keeps 256
}

}  // namespace
}  // namespace official::transformer
