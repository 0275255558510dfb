// Pairs of sentences, from TFRecord files of tf.Example, in batches of about equally many tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/data/batch.h"
#include "utils/data/records/bad_records.h"

namespace official::transformer {

enum class TranslationPart { kTrain, kEval };

inline constexpr int64_t kMaxLength = 256;  // upstream's: longer sentences are left out

// All sentences of a part, in memory: a byte or two for each id (0.6 GB for the 4.5 million pairs of WMT).
class Translations {
 public:
  // Reads the files *train*-of-* or *dev*-of-* in `data_dir`, `num_threads` at a time. Pairs with more than
  // `max_length` inputs or targets (EOS included) are left out. NotFound, with what to do, if no file matches;
  // DataLoss, naming the file and what is wrong, if files are missing, a record is damaged, its `inputs` or `targets`
  // are missing or hold no ids, or no pair is left. Damaged records that `bad` tolerates are left out.
  static absl::StatusOr<std::shared_ptr<const Translations>> Open(const std::string& data_dir, TranslationPart part,
                                                                  int64_t max_length, int num_threads,
                                                                  data::BadRecords* bad = nullptr);

  int64_t num_examples() const { return static_cast<int64_t>(examples_.size()); }
  // The fingerprint of the data (utils/data/fingerprint.h).
  const std::string& fingerprint() const { return fingerprint_; }
  // The number of pairs that were left out as too long.
  int64_t num_too_long() const { return num_too_long_; }
  int64_t max_length() const { return max_length_; }
  // The largest id; the model's vocabulary must have it.
  int32_t max_id() const { return max_id_; }

  int32_t num_inputs(int64_t i) const { return examples_[i].num_inputs; }
  int32_t num_targets(int64_t i) const { return examples_[i].num_targets; }
  // Writes num_inputs(i) and num_targets(i) ids.
  void Read(int64_t i, int32_t* inputs, int32_t* targets) const;

 private:
  struct Example {
    const char* ids;  // first the inputs, then the targets
    int32_t num_inputs, num_targets;
  };
  struct File {
    std::vector<char> ids;
    std::vector<Example> examples;  // their ids lie in `ids`, even after a move
    int64_t num_too_long = 0;
    int32_t max_id = 0;
  };
  static absl::StatusOr<File> ReadFile(const std::string& path, int64_t max_length, data::BadRecords& bad);

  explicit Translations(int64_t max_length) : max_length_(max_length) {}

  int64_t max_length_;
  std::vector<File> files_;
  std::vector<Example> examples_;
  int64_t num_too_long_ = 0;
  int32_t max_id_ = 0;
  std::string fingerprint_;
};
using TranslationsPtr = std::shared_ptr<const Translations>;

// Pairs whose longer sentence has fewer than `max_length` ids, and at least the max_length of the bucket before, go
// into batches of `batch_size`.
struct Bucket {
  int64_t max_length;
  int64_t batch_size;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};
// Returns upstream's buckets: up to 8, 9, ... ids, then each a tenth longer than the one before; a batch has
// batch_tokens / max_length pairs. With static_batch there is one, of batch_tokens / `max_length` pairs of up to
// `max_length` ids. InvalidArgument if no pair of the longest fits into a batch.
absl::StatusOr<std::vector<Bucket>> MakeBuckets(int64_t batch_tokens, int64_t max_length, bool static_batch = false);
// Returns the least batch_tokens into which a pair of the longest fits.
int64_t LeastBatchTokens(int64_t max_length, bool static_batch);

struct TranslationBatchOptions {
  int64_t batch_tokens = 2048;  // --batch_size
  // True: every batch has batch_tokens / max_length pairs, padded to max_length; pairs that do not fill a batch at the
  // end of an epoch are dropped.
  bool static_batch = false;
  bool shuffle = true;  // all pairs of an epoch, as a function of (seed, epoch)
  uint64_t seed = 0;
  data::Position start = {};  // the Batch::next of a batch with the same options
  int64_t end_epoch = 1;      // as in data::BatchOptions
  data::HeldRows rows = {};   // the pairs to read; of the others a batch has the lengths, and zeros
};

// Returns batches in upstream's order: pairs are read one by one, put with others of their length (a bucket), and come
// out as a batch once there are enough; those left at the end of an epoch come out in smaller batches, the shortest
// first.
//   features  inputs [B, S] int32, padded with 0;  input_lengths [B] int32
//   labels    targets [B, T] int32, padded with 0; target_lengths [B] int32
// S and T are the longest lengths in the batch. spec() has max_length in their place. Position::index counts pairs of
// the epoch. To begin within an epoch, the lengths of all earlier pairs are read: up to a second for WMT. Where no
// batch begins at `start`, since the data or the batch size were different then, the next one is the first, and a
// warning says so. InvalidArgument if batch_tokens is too small; DataLoss if `start` lies outside the data set, or, for
// static_batch, there are too few pairs.
absl::StatusOr<data::BatchSourcePtr> TranslationBatches(TranslationsPtr translations,
                                                        const TranslationBatchOptions& options);

}  // namespace official::transformer
