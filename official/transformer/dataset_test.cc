#include "official/transformer/dataset.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "official/transformer/record_files.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/example.pb.h"

namespace official::transformer {
namespace {

using Catch::Contains;
using Ids = std::vector<int64_t>;
using Pair = std::pair<Ids, Ids>;

std::string Serialize(const Ids& inputs, const Ids& targets) {
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["inputs"].mutable_int64_list()->mutable_value()->Add(inputs.begin(), inputs.end());
  features["targets"].mutable_int64_list()->mutable_value()->Add(targets.begin(), targets.end());
  return example.SerializeAsString();
}

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    data_dir_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/dataset", ++number);
    REQUIRE(files::MakeDirectories(data_dir_).ok());
  }

 protected:
  void Write(const std::string& name, const std::vector<std::string>& records) const {
    auto writer = data::TFRecordWriter::Open(data_dir_ + "/" + name).value();
    for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
    REQUIRE(writer->Close().ok());
  }
  // `count` pairs in two files. Pair i has inputs [2 + i, ..., 1], so that its first id tells which one it is.
  void WritePairs(int count) const {
    std::vector<std::string> records[2];
    for (int i = 0; i < count; ++i) {
      Ids inputs(1 + i * 7 % 23, 2 + i), targets(1 + i * 5 % 31, 70'000 + i);
      inputs.push_back(1);
      targets.push_back(1);
      records[i >= count / 2].push_back(Serialize(inputs, targets));
    }
    Write("x-train-00001-of-00002", records[0]);
    Write("x-train-00002-of-00002", records[1]);
  }
  TranslationsPtr Open(int64_t max_length = kMaxLength, TranslationPart part = TranslationPart::kTrain) const {
    return Translations::Open(data_dir_, part, max_length, 2).value();
  }
  absl::Status OpenError() const { return Translations::Open(data_dir_, TranslationPart::kTrain, 256, 2).status(); }

  std::string data_dir_;
};

TEST_CASE_METHOD(Fixture, "Bad records that may be left out are, wherever they are") {
  const std::string damaged = Serialize({5, 1}, {9, 1});
  Write("x-train-00001-of-00002", {Serialize({2, 1}, {9, 1}), Serialize({3, 1}, {}), Serialize({4, 1}, {9, 1}), damaged,
                                   Serialize({6, 1}, {9, 1})});
  Write("x-train-00002-of-00002", {Serialize({7, 1}, {9, 1}), Serialize({8, 1}, {9, 1})});
  const std::string path = data_dir_ + "/x-train-00001-of-00002";
  std::string bytes = files::ReadFile(path, 10000).value();
  bytes[bytes.find(damaged) + 5] ^= 1;
  bytes.resize(bytes.size() - 2);  // the last one is cut
  REQUIRE(files::WriteFileAtomically(path, bytes).ok());
  CHECK(absl::IsDataLoss(OpenError()));
  const auto open = [&](data::BadRecords* bad) {
    return Translations::Open(data_dir_, TranslationPart::kTrain, 256, 2, bad);
  };
  data::BadRecords three(3), two(2);
  const TranslationsPtr pairs = open(&three).value();
  CHECK(three.count() == 3);
  std::vector<int32_t> first;
  for (int64_t i = 0; i < pairs->num_examples(); ++i) {
    int32_t inputs[2], targets[2];
    pairs->Read(i, inputs, targets);
    first.push_back(inputs[0]);
  }
  CHECK(first == std::vector<int32_t>{2, 4, 7, 8});
  const absl::Status status = open(&two).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(path + ": record 4 at offset ") && Contains("what follows in the file cannot be read; more than "
                                                                  "--skip_bad_records=2 records are damaged"));
}

std::vector<data::Batch> AllBatches(const TranslationsPtr& translations, const TranslationBatchOptions& options) {
  const auto source = TranslationBatches(translations, options).value();
  std::vector<data::Batch> batches;
  for (;;) {
    const std::optional<data::Batch> batch = source->Next().value();
    if (!batch.has_value()) return batches;
    batches.push_back(*batch);
  }
}

// The number of the pair in each row.
std::vector<int> PairsOf(const data::Batch& batch) {
  const compute::Tensor& inputs = batch.features[0];
  std::vector<int> pairs;
  for (int64_t row = 0; row < batch.num_examples; ++row) {
    pairs.push_back(inputs.data<int32_t>()[row * inputs.shape().dim(1)] - 2);
  }
  return pairs;
}
std::vector<int> PairsOf(const std::vector<data::Batch>& batches) {
  std::vector<int> pairs;
  for (const data::Batch& batch : batches) {
    const std::vector<int> more = PairsOf(batch);
    pairs.insert(pairs.end(), more.begin(), more.end());
  }
  return pairs;
}

// Source: upstream under TensorFlow 1.10.
TEST_CASE("Buckets are upstream's") {
  const std::vector<int64_t> max_lengths = {8,  9,  10, 11,  12,  13,  14,  15,  16,  17,  18,  19,  20,  22,
                                            24, 26, 28, 30,  33,  36,  39,  42,  46,  50,  55,  60,  66,  72,
                                            79, 86, 94, 103, 113, 124, 136, 149, 163, 179, 196, 215, 236, 257};
  const std::vector<int64_t> sizes_4096 = {512, 455, 409, 372, 341, 315, 292, 273, 256, 240, 227, 215, 204, 186,
                                           170, 157, 146, 136, 124, 113, 105, 97,  89,  81,  74,  68,  62,  56,
                                           51,  47,  43,  39,  36,  33,  30,  27,  25,  22,  20,  19,  17,  15};
  const std::vector<Bucket> buckets = MakeBuckets(4096, 256).value();
  REQUIRE(buckets.size() == 42);
  for (size_t i = 0; i < buckets.size(); ++i) CHECK(buckets[i] == Bucket{max_lengths[i], sizes_4096[i]});
  CHECK(MakeBuckets(2048, 256).value()[13].batch_size == 93);
  CHECK(MakeBuckets(1024, 256).value().back().batch_size == 3);
}

TEST_CASE_METHOD(Fixture, "Batches have pairs of about one length, padded to the longest") {
  // Longer sentences: 3, 4, 9, 3 and 2 ids. 22 tokens are 2 pairs of below 8, of 8, and of 9 or 10.
  Write("a-dev-00000-of-00001", {Serialize({5, 6, 1}, {7, 1}), Serialize({8, 1}, {9, 9, 9, 1}),
                                 Serialize({4, 4, 4, 4, 4, 4, 4, 4, 1}, {300, 1}), Serialize({2, 2, 1}, {3, 3, 1}),
                                 Serialize({6, 1}, {2'000'000'000, 1})});
  const TranslationsPtr translations = Open(10, TranslationPart::kEval);
  CHECK(translations->num_examples() == 5);
  CHECK(translations->max_id() == 2'000'000'000);
  const auto batches = AllBatches(translations, {.batch_tokens = 22, .shuffle = false});
  REQUIRE(batches.size() == 3);
  const auto values = [](const compute::Tensor& tensor) {
    const auto flat = tensor.flat<int32_t>();
    return std::vector<int32_t>(flat.begin(), flat.end());
  };
  using Values = std::vector<int32_t>;
  CHECK(batches[0].features[0].shape() == compute::Shape{2, 3});
  CHECK(values(batches[0].features[0]) == Values{5, 6, 1, 8, 1, 0});
  CHECK(values(batches[0].features[1]) == Values{3, 2});
  CHECK(batches[0].labels[0].shape() == compute::Shape{2, 4});
  CHECK(values(batches[0].labels[0]) == Values{7, 1, 0, 0, 9, 9, 9, 1});
  CHECK(values(batches[0].labels[1]) == Values{2, 4});
  // The pair of 9 waits for another one; 3 and 4 fill their batch first. What is left comes out at the end.
  CHECK(values(batches[1].features[0]) == Values{2, 2, 1, 6, 1, 0});
  CHECK(values(batches[1].labels[0]) == Values{3, 3, 1, 2'000'000'000, 1, 0});
  CHECK(values(batches[2].features[0]) == Values{4, 4, 4, 4, 4, 4, 4, 4, 1});
  CHECK(values(batches[2].labels[0]) == Values{300, 1});
}

TEST_CASE_METHOD(Fixture, "Reading the files of a set shows how many are read") {
  WritePairs(20);
  logs::CapturedTasks log;
  Open();
  CHECK_THAT(log.Text(), Contains("reading the sentences to train on   0% [") && Contains("2/2 files"));
}

TEST_CASE_METHOD(Fixture, "Files may hold a few ids only") {
  Write("x-train-00001-of-00002", {Serialize({7, 1}, {8, 1})});
  Write("x-train-00002-of-00002", {Serialize({9, 1}, {300, 1})});
  const auto batches = AllBatches(Open(), {.batch_tokens = 512, .shuffle = false});
  REQUIRE(batches.size() == 1);
  CHECK(Ids(batches[0].features[0].data<int32_t>(), batches[0].features[0].data<int32_t>() + 4) == Ids{7, 1, 9, 1});
  CHECK(Ids(batches[0].labels[0].data<int32_t>(), batches[0].labels[0].data<int32_t>() + 4) == Ids{8, 1, 300, 1});
}

TEST_CASE_METHOD(Fixture, "A batch has no more tokens than the batch size, and each pair comes once an epoch") {
  WritePairs(500);
  const TranslationsPtr translations = Open();
  const auto batches = AllBatches(translations, {.batch_tokens = 300, .seed = 3, .end_epoch = 2});
  std::vector<int> counts(500);
  for (const data::Batch& batch : batches) {
    const int64_t longest = std::max(batch.features[0].shape().dim(1), batch.labels[0].shape().dim(1));
    CHECK(batch.num_examples * longest <= 300);
    for (const int pair : PairsOf(batch)) ++counts[pair];
  }
  CHECK(counts == std::vector<int>(500, 2));
  int64_t index = 0;
  for (const data::Batch& batch : batches) {
    CHECK(batch.first == data::Position{index / 500, index % 500});
    index += batch.num_examples;
    CHECK(batch.next == data::Position{index / 500, index % 500});
  }
}

TEST_CASE_METHOD(Fixture, "A worker reads the pairs of its replicas, and the lengths of all") {
  WritePairs(500);
  const TranslationsPtr translations = Open();
  const auto whole = AllBatches(translations, {.batch_tokens = 300, .seed = 3});
  const data::HeldRows rows{.replicas = {1, 2}, .num_replicas = 3};
  const auto parts = AllBatches(translations, {.batch_tokens = 300, .seed = 3, .rows = rows});
  REQUIRE(parts.size() == whole.size());
  for (size_t b = 0; b < parts.size(); ++b) {
    const data::Batch &got = parts[b], &want = whole[b];
    REQUIRE(got.num_examples == want.num_examples);
    const compute::Share share = compute::ShareOf(got.num_examples, 1, 3);
    for (const auto& [ours, theirs] :
         {std::pair{&got.features, &want.features}, std::pair{&got.labels, &want.labels}}) {
      const int32_t *const ids = (*ours)[0].data<int32_t>(), *const lengths = (*ours)[1].data<int32_t>();
      CHECK(std::equal(lengths, lengths + got.num_examples, (*theirs)[1].data<int32_t>()));
      const int64_t width = (*ours)[0].shape().dim(1);
      for (int64_t row = 0; row < got.num_examples; ++row) {
        const bool is_held = row >= share.begin && row < share.end;
        const int32_t* const row_ids = ids + row * width;
        CHECK(std::any_of(row_ids, row_ids + width, [](int32_t id) { return id != 0; }) == is_held);
        if (is_held) CHECK(std::equal(row_ids, row_ids + width, (*theirs)[0].data<int32_t>() + row * width));
      }
    }
  }
}

TEST_CASE_METHOD(Fixture, "Where batches are dealt out, a worker reads the pairs of its own only") {
  WritePairs(500);
  const TranslationsPtr translations = Open();
  const auto whole = AllBatches(translations, {.batch_tokens = 300, .seed = 3});
  const auto dealt = AllBatches(translations, {.batch_tokens = 300, .seed = 3, .rows = {.of_batches = 3, .batch = 2}});
  REQUIRE(dealt.size() == whole.size());
  for (size_t b = 0; b < dealt.size(); ++b) {
    CHECK(dealt[b].next == whole[b].next);
    const compute::Tensor &ours = dealt[b].features[0], &all = whole[b].features[0];
    const int32_t* const ids = ours.data<int32_t>();
    if (b % 3 == 2) CHECK(std::equal(ids, ids + ours.num_elements(), all.data<int32_t>()));
    if (b % 3 != 2) CHECK(std::count(ids, ids + ours.num_elements(), 0) == all.num_elements());
  }
}

TEST_CASE_METHOD(Fixture, "The order follows from the seed and the epoch") {
  WritePairs(200);
  const TranslationsPtr translations = Open();
  const auto order = [&](uint64_t seed, int64_t epoch, bool shuffle = true) {
    return PairsOf(AllBatches(
        translations,
        {.batch_tokens = 300, .shuffle = shuffle, .seed = seed, .start = {epoch, 0}, .end_epoch = epoch + 1}));
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0, false) == order(2, 1, false));
}

TEST_CASE_METHOD(Fixture, "Reading continues from between any two batches") {
  WritePairs(200);
  const TranslationsPtr translations = Open();
  const bool static_batch = GENERATE(false, true);
  TranslationBatchOptions options = {.batch_tokens = 800, .static_batch = static_batch, .seed = 5, .end_epoch = 3};
  const auto all = AllBatches(translations, options);
  for (size_t i = 0; i < all.size(); ++i) {
    options.start = all[i].next;
    CHECK(PairsOf(AllBatches(translations, options)) ==
          PairsOf(std::vector<data::Batch>(all.begin() + i + 1, all.end())));
  }
  options.start = {0, static_batch ? 198 : 200};  // 66 batches of 800 / 256
  CHECK(PairsOf(TranslationBatches(translations, options).value()->Next().value().value())[0] >= 0);
  // With other data or another batch size: at the next batch.
  options.start = {0, all[0].next.index + 1};
  CHECK(PairsOf(AllBatches(translations, options)) == PairsOf(std::vector<data::Batch>(all.begin() + 2, all.end())));
  for (const data::Position nowhere : {data::Position{0, 201}, {-1, 0}, {0, -1}}) {
    options.start = nowhere;
    const absl::Status status = TranslationBatches(translations, options).status();
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()), Contains("Is the checkpoint of another data set"));
  }
}

TEST_CASE_METHOD(Fixture, "Static batches all have one shape") {
  WritePairs(50);
  const auto batches = AllBatches(Open(40), {.batch_tokens = 300, .static_batch = true});
  CHECK(batches.size() == 7);  // of 300 / 40 pairs; the last pair is dropped
  for (const data::Batch& batch : batches) {
    CHECK(batch.features[0].shape() == compute::Shape{7, 40});
    CHECK(batch.labels[0].shape() == compute::Shape{7, 40});
    CHECK(batch.features[0].data<int32_t>()[39] == 0);
  }
  CHECK(batches.back().next == data::Position{1, 0});
  const absl::Status few = TranslationBatches(Open(40), {.batch_tokens = 4000, .static_batch = true}).status();
  CHECK(few.message() == "50 pairs of sentences do not fill a batch of 100");
  CHECK(AllBatches(Open(40), {.batch_tokens = 40, .static_batch = true}).size() == 50);
  CHECK(TranslationBatches(Open(40), {.batch_tokens = 39, .static_batch = true}).status().message() ==
        "--batch_size=39 tokens are too few for a pair of sentences of up to 40; it needs to be at least 40");
}

TEST_CASE_METHOD(Fixture, "Pairs with a sentence that is too long are left out") {
  Write("a-train-00001-of-00001", {Serialize(Ids(256, 5), {1}), Serialize(Ids(257, 6), {1}),
                                   Serialize({7}, Ids(257, 1)), Serialize({8}, Ids(256, 1))});
  const TranslationsPtr translations = Open();
  CHECK(translations->num_examples() == 2);
  CHECK(translations->num_too_long() == 2);
  CHECK(translations->num_inputs(0) == 256);
  CHECK(translations->num_targets(1) == 256);
}

TEST_CASE_METHOD(Fixture, "A batch size below the longest bucket is refused") {
  WritePairs(5);
  const absl::Status status = TranslationBatches(Open(), {.batch_tokens = 256}).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "--batch_size=256 tokens are too few for a pair of sentences of up to 256; it needs to be at least 257");
}

TEST_CASE_METHOD(Fixture, "Records that are not pairs of sentences are refused") {
  const auto message = [&](const std::string& record) {
    Write("a-train-00001-of-00001", {Serialize({2, 1}, {1}), record});
    const absl::Status status = OpenError();
    CHECK(absl::IsDataLoss(status));
    return std::string(status.message()).substr(data_dir_.size());
  };
  const std::string where = "/a-train-00001-of-00001: record 1: ";
  CHECK(message(Serialize({2, 1}, {})) == where + "feature targets has no ids");
  tensorflow::Example example;
  (*example.mutable_features()->mutable_feature())["inputs"].mutable_int64_list()->add_value(1);
  CHECK(message(example.SerializeAsString()) == where + "feature targets is missing");
  CHECK(message(Serialize({-1}, {1})) ==
        where + "feature inputs has the id -1, expected one of at least 0 and below 2^31");
  CHECK(message(Serialize({1}, {int64_t{1} << 31})) ==
        where + "feature targets has the id 2147483648, expected one of at least 0 and below 2^31");
  CHECK_THAT(message("text"), Contains(where + "the record is not a tf.Example"));
  std::filesystem::resize_file(data_dir_ + "/a-train-00001-of-00001", 40);
  CHECK(absl::IsDataLoss(OpenError()));
  Write("a-train-00001-of-00001", {});
  CHECK_THAT(std::string(OpenError().message()), Contains("have no records of at most 256 ids; 0 are longer"));
}

TEST_CASE_METHOD(Fixture, "The files of a set are found, counted from 0 or 1") {
  const auto find = [&](const std::vector<std::string>& names) -> std::string {
    std::filesystem::remove_all(data_dir_);
    for (const std::string& name : names) {
      REQUIRE(files::MakeDirectories(data_dir_).ok());
      REQUIRE(files::WriteFileAtomically(data_dir_ + "/" + name, "").ok());
    }
    const auto paths = FindRecordFiles(data_dir_, "train");
    if (paths.ok()) return absl::StrCat(paths->size());
    CHECK(paths.status().code() == (names.size() < 2 ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss));
    return std::string(paths.status().message());
  };
  CHECK(find({"a-train-00001-of-00002", "a-train-00002-of-00002", "vocab", "a-dev-00001-of-00001", "train.en",
              "a-train-00001-of-00002.incomplete-01234567"}) == "2");
  CHECK(find({"a-train-00000-of-00002", "a-train-00001-of-00002"}) == "2");
  CHECK_THAT(find({"a-train-00001-of-00003", "a-train-00003-of-00003"}),
             Contains("is missing a-train-00002-of-00003: it has 2 of 3 files"));
  CHECK_THAT(find({"a-train-00000-of-00002", "a-train-00001-of-00002", "a-train-00002-of-00002"}),
             Contains("holds a-train-00002-of-00002 in addition to the 2 files"));
  CHECK_THAT(find({"a-train-00001-of-00001", "b-train-00001-of-00001"}), Contains("holds two data sets"));
  CHECK_THAT(find({}), Contains("has no files *train*-of-*; write them with prepare_data_main, "));
}

}  // namespace
}  // namespace official::transformer
