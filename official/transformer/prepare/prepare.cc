#include "official/transformer/prepare/prepare.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "official/transformer/text/lines.h"
#include "official/transformer/text/subtokenizer.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/compute/core/status.h"
#include "utils/data/numbered_files.h"
#include "utils/data/permutation.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/crc32c.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/protos/example.pb.h"

namespace official::transformer {
namespace {

constexpr char kOriginName[] = "prepared.txt";

// The tags of the training and the evaluation files in their names.
constexpr absl::string_view kTrainTag = "train";
constexpr absl::string_view kEvalTag = "dev";

struct TextFile {
  std::string path;
  int64_t num_lines = 0, num_bytes = 0;
  uint32_t crc = 0;  // CRC-32C of the lines, each with '\n' and without '\r', which makes no difference to the records
};

struct CheckedText {
  // Returns the number of lines of each source.
  std::vector<int64_t> NumLines() const {
    std::vector<int64_t> num_lines;
    for (const TextFile& file : sources) num_lines.push_back(file.num_lines);
    return num_lines;
  }

  std::vector<TextFile> sources, targets;
};

// Reads one file; each line is checked to be text.
absl::StatusOr<TextFile> CheckFile(const std::string& path, logs::TaskProgress& progress) {
  if (!files::Exists(path)) {
    return absl::NotFoundError(
        absl::StrFormat("there is no file %s%s; name the text files with --raw_dir, --train_source and so on, or get "
                        "WMT with --download",
                        path, files::Exists(path + ".gz") ? ", but its .gz: gunzip that" : ""));
  }
  ASSIGN_OR_RETURN(const auto reader, LineReader::Open(path));
  TextFile file = {.path = path, .num_bytes = reader->size()};
  for (;;) {
    absl::string_view line;
    ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    if (!more) break;
    progress.Add(1);
    file.crc = files::Crc32c("\n", files::Crc32c(line, file.crc));
  }
  file.num_lines = reader->line_number();
  return file;
}

int64_t Sum(const std::vector<int64_t>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

// Before hours of work: reads all files once.
absl::StatusOr<CheckedText> CheckText(const ParallelText& text) {
  if (text.sources.size() != text.targets.size() || text.sources.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("found %d files of sentences and %d of their translations, expected "
                        "equally many, and at least one",
                        text.sources.size(), text.targets.size()));
  }
  logs::TaskProgress progress({.title = "checking the text", .unit = "lines"});
  CheckedText checked;
  for (size_t i = 0; i < text.sources.size(); ++i) {
    ASSIGN_OR_RETURN(TextFile source, CheckFile(text.sources[i], progress));
    ASSIGN_OR_RETURN(TextFile target, CheckFile(text.targets[i], progress));
    if (source.num_lines != target.num_lines) {
      return absl::DataLossError(
          absl::StrFormat("%s has %d lines, its translation %s has %d, but line by line they must belong together",
                          source.path, source.num_lines, target.path, target.num_lines));
    }
    if (source.num_lines == 0) return absl::DataLossError(absl::StrCat(source.path, " has no lines"));
    checked.sources.push_back(std::move(source));
    checked.targets.push_back(std::move(target));
  }
  return checked;
}

// Upstream strips the lines.
absl::Status ReadIds(LineReader& reader, const Subtokenizer& subtokenizer, const std::string& path,
                     std::vector<int32_t>* ids) {
  absl::string_view line;
  ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
  if (!more) return absl::DataLossError(absl::StrCat(path, " became shorter while it was read"));
  ids->clear();
  const absl::Status status = subtokenizer.Encode(Strip(line), ids);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ":", reader.line_number(), ": ", status.message()));
  }
  ids->push_back(kEosId);
  return absl::OkStatus();
}

std::string SerializeExample(const std::vector<int32_t>& inputs, const std::vector<int32_t>& targets) {
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["inputs"].mutable_int64_list()->mutable_value()->Add(inputs.begin(), inputs.end());
  features["targets"].mutable_int64_list()->mutable_value()->Add(targets.begin(), targets.end());
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream output(&stream);
  output.SetSerializationDeterministic(true);  // the order of a map is another one in every process
  example.SerializeToCodedStream(&output);
  output.Trim();
  return bytes;
}

// The files of one part of the data, <set>-00001-of-<num_shards> and so on.
class Shards {
 public:
  Shards(const std::string& data_dir, absl::string_view set, int num_shards) {
    for (int shard = 1; shard <= num_shards; ++shard) {
      paths_.push_back(files::JoinPath(data_dir, data::NumberedName(set, shard, num_shards)));
    }
  }

  bool AllExist() const {
    return std::all_of(paths_.begin(), paths_.end(), [](const std::string& path) { return files::Exists(path); });
  }

  // Writes those that do not exist, in the order of the text or, with a seed, in a random one.
  // `num_lines` is that of each source.
  absl::Status Write(const ParallelText& text, const std::vector<int64_t>& num_lines, const Subtokenizer& subtokenizer,
                     std::optional<uint64_t> seed) {
    RETURN_IF_ERROR(WriteInOrder(text, num_lines, subtokenizer));
    logs::TaskProgress progress(
        {.title = "putting files in order", .total = static_cast<int64_t>(paths_.size()), .unit = "files"});
    for (size_t shard = 0; shard < paths_.size(); ++shard) {
      progress.Set(static_cast<int64_t>(shard));
      if (files_[shard] == nullptr) continue;
      if (seed.has_value()) {
        RETURN_IF_ERROR(WriteShuffled(shard, *seed));
      } else {
        RETURN_IF_ERROR(files_[shard]->Finish());
        RETURN_IF_ERROR(files_[shard]->Publish());
      }
      files_[shard].reset();
    }
    return files::SyncDirectory(files::DirectoryOf(paths_[0]));
  }

 private:
  // Leaves the records in the temporary files of files_.
  absl::Status WriteInOrder(const ParallelText& text, const std::vector<int64_t>& num_lines,
                            const Subtokenizer& subtokenizer) {
    logs::TaskProgress progress({.title = "writing sentences", .total = Sum(num_lines), .unit = "sentences"});
    std::vector<std::optional<data::TFRecordWriter>> writers(paths_.size());
    files_.resize(paths_.size());
    for (size_t shard = 0; shard < paths_.size(); ++shard) {
      if (files::Exists(paths_[shard])) continue;
      ASSIGN_OR_RETURN(files_[shard], files::AtomicFile::Create(paths_[shard]));
      writers[shard].emplace(files_[shard]->writer());
    }
    int64_t number = 0;  // of the sentence
    for (size_t file = 0; file < text.sources.size(); ++file) {
      ASSIGN_OR_RETURN(const auto source, LineReader::Open(text.sources[file]));
      ASSIGN_OR_RETURN(const auto target, LineReader::Open(text.targets[file]));
      std::vector<int32_t> inputs, targets;
      for (int64_t line = 0; line < num_lines[file]; ++line, ++number) {
        progress.Add(1);
        RETURN_IF_ERROR(ReadIds(*source, subtokenizer, text.sources[file], &inputs));
        RETURN_IF_ERROR(ReadIds(*target, subtokenizer, text.targets[file], &targets));
        auto& writer = writers[number % writers.size()];
        if (writer.has_value()) RETURN_IF_ERROR(writer->Write(SerializeExample(inputs, targets)));
      }
    }
    for (auto& writer : writers) {
      if (writer.has_value()) RETURN_IF_ERROR(writer->Close());
    }
    return absl::OkStatus();
  }

  // Writes the records of the temporary file in a random order, into the file that stays.
  absl::Status WriteShuffled(size_t shard, uint64_t seed) const {
    std::vector<std::string> records;
    {
      ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(files_[shard]->temporary_path()));
      for (;;) {
        std::string record;
        ASSIGN_OR_RETURN(const bool more, reader->Next(&record));
        if (!more) break;
        records.push_back(std::move(record));
      }
    }
    ASSIGN_OR_RETURN(const auto file, files::AtomicFile::Create(paths_[shard]));
    data::TFRecordWriter writer(file->writer());
    const int64_t num_records = static_cast<int64_t>(records.size());
    const data::Permutation order(std::max<int64_t>(1, num_records), seed, /*epoch=*/static_cast<int64_t>(shard));
    for (int64_t i = 0; i < num_records; ++i) RETURN_IF_ERROR(writer.Write(records[order(i)]));
    RETURN_IF_ERROR(writer.Close());
    RETURN_IF_ERROR(file->Finish());
    return file->Publish();
  }

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<files::AtomicFile>> files_;  // null for a file that exists
};

// What the files in data_dir are made of.
std::string DescribeOrigin(const PrepareOptions& options, const CheckedText& train, const CheckedText& eval,
                           bool with_checksums) {
  std::string text = absl::StrFormat("vocabulary: %s, %s\nfiles: %d\nseed: %d\n", options.vocabulary_name,
                                     options.vocabulary.min_count.has_value()
                                         ? absl::StrCat("min_count ", *options.vocabulary.min_count)
                                         : absl::StrCat("about ", options.vocabulary.target_size, " entries"),
                                     options.num_train_shards, options.seed);
  const auto add = [&](absl::string_view name, const std::vector<TextFile>& text_files) {
    for (const TextFile& file : text_files) {
      absl::StrAppend(&text, name, ": ", file.path.substr(file.path.rfind('/') + 1), ", ", file.num_bytes, " bytes",
                      with_checksums ? absl::StrFormat(", CRC-32C %08x", file.crc) : "", "\n");
    }
  };
  add("train source", train.sources);
  add("train target", train.targets);
  add("eval source", eval.sources);
  add("eval target", eval.targets);
  return text;
}

// True if data_dir has the vocabulary of `origin`, or a record file of any text.
absl::StatusOr<bool> HoldsMadeFiles(const std::string& data_dir, absl::string_view origin) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(data_dir));
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const bool is_tagged = absl::StrContains(name, absl::StrCat("-", kTrainTag, "-")) ||
                           absl::StrContains(name, absl::StrCat("-", kEvalTag, "-"));
    return (is_tagged && absl::StrContains(name, "-of-")) ||
           absl::StartsWith(origin, absl::StrCat("vocabulary: ", name, ", "));
  });
}

// Refuses to mix files of different origins.
absl::Status CheckOrigin(const PrepareOptions& options, const CheckedText& train, const CheckedText& eval) {
  const std::string origin = DescribeOrigin(options, train, eval, /*with_checksums=*/true);
  const std::string path = files::JoinPath(options.data_dir, kOriginName);
  if (!files::Exists(path)) return files::WriteFileAtomically(path, origin);
  ASSIGN_OR_RETURN(const std::string found, files::ReadFile(path, 1 << 20));
  if (found == origin) return absl::OkStatus();
  // Data of programs that wrote no checksums stays usable.
  if (found == DescribeOrigin(options, train, eval, /*with_checksums=*/false)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool holds_made_files, HoldsMadeFiles(options.data_dir, found));
  if (!holds_made_files) return files::WriteFileAtomically(path, origin);
  return absl::FailedPreconditionError(
      absl::StrFormat("%s holds files that were made from other text or with other flags, as %s says; choose another "
                      "--data_dir, or remove what is in it",
                      options.data_dir, path));
}

// The extension that all files share, if it can be the code of a language; else "".
std::string LanguageOf(const std::vector<std::string>& paths) {
  std::string language;
  for (const std::string& path : paths) {
    const size_t dot = path.find_last_of("./");
    if (dot == std::string::npos || path[dot] == '/') return "";
    const std::string extension = path.substr(dot + 1);
    const bool is_code = (extension.size() == 2 || extension.size() == 3) && extension != "txt" &&
                         std::all_of(extension.begin(), extension.end(), absl::ascii_islower);
    if (!is_code || (!language.empty() && extension != language)) return "";
    language = extension;
  }
  return language;
}

}  // namespace

DataNames NamesFor(const ParallelText& train, int64_t vocab_size) {
  const std::string source = LanguageOf(train.sources), target = LanguageOf(train.targets);
  if (source.empty() || target.empty()) return {absl::StrCat("vocab.", vocab_size), "text"};
  const bool is_upstreams = source == "en" && target == "de";
  return {absl::StrCat("vocab.", source, target, ".", vocab_size),
          is_upstreams ? "wmt32k" : absl::StrCat(source, "-", target)};
}

absl::StatusOr<PrepareResult> PrepareData(const PrepareOptions& options) {
  ASSIGN_OR_RETURN(const CheckedText train, CheckText(options.train));
  ASSIGN_OR_RETURN(const CheckedText eval, CheckText(options.eval));
  const std::vector<int64_t> train_lines = train.NumLines(), eval_lines = eval.NumLines();
  RETURN_IF_ERROR(files::MakeDirectories(options.data_dir));
  RETURN_IF_ERROR(CheckOrigin(options, train, eval));

  const std::string vocabulary = files::JoinPath(options.data_dir, options.vocabulary_name);
  if (!files::Exists(vocabulary)) {
    LOG(INFO) << "making the vocabulary " << vocabulary;
    std::vector<std::string> paths = options.train.sources;
    paths.insert(paths.end(), options.train.targets.begin(), options.train.targets.end());
    ASSIGN_OR_RETURN(const std::vector<std::string> subtokens, BuildVocabulary(paths, options.vocabulary));
    RETURN_IF_ERROR(WriteVocabulary(vocabulary, subtokens));
  }
  ASSIGN_OR_RETURN(const Subtokenizer subtokenizer, Subtokenizer::Load(vocabulary));
  LOG(INFO) << "the vocabulary has " << subtokenizer.vocab_size() << " entries";
  const int64_t target_size = options.vocabulary.target_size;
  const bool searched = !options.vocabulary.min_count.has_value();
  if (searched && std::abs(subtokenizer.vocab_size() - target_size) > options.vocabulary.threshold) {
    LOG(WARNING) << "--vocab_size=" << target_size << " is not reached: with " << subtokenizer.vocab_size()
                 << " entries the vocabulary is the nearest that the search for a minimum count of subtokens found";
  }

  const auto write = [&](absl::string_view tag, int num_shards, const ParallelText& text,
                         const std::vector<int64_t>& num_lines, std::optional<uint64_t> seed) -> absl::Status {
    const std::string set = absl::StrCat(options.records, "-", tag);
    Shards shards(options.data_dir, set, num_shards);
    const std::string first = data::NumberedName(set, 1, num_shards);
    if (shards.AllExist()) {
      LOG(INFO) << first << " and the files after it exist already";
      return absl::OkStatus();
    }
    LOG(INFO) << "writing " << first << " and the files after it";
    return shards.Write(text, num_lines, subtokenizer, seed);
  };
  RETURN_IF_ERROR(write(kTrainTag, options.num_train_shards, options.train, train_lines, options.seed));
  RETURN_IF_ERROR(write(kEvalTag, 1, options.eval, eval_lines, std::nullopt));
  return PrepareResult{.vocabulary = vocabulary,
                       .vocab_size = subtokenizer.vocab_size(),
                       .train_sentences = Sum(train_lines),
                       .eval_sentences = Sum(eval_lines)};
}

}  // namespace official::transformer
