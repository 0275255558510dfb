// prepare_data_main: makes the files that transformer_main trains on.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "official/transformer/prepare/prepare.h"
#include "official/transformer/prepare/wmt.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/console.h"
#include "utils/flags/data_dir.h"
#include "utils/flags/default_dirs.h"
#include "utils/flags/main.h"
#include "utils/logs/log.h"

ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_FLAG(std::string, raw_dir, "", "Directory of the text files.");
ABSL_FLAG(std::vector<std::string>, train_source, {"train.en"},
          "Text files in --raw_dir for training, one sentence per line, in the language to translate from.");
ABSL_FLAG(std::vector<std::string>, train_target, {"train.de"}, "Their translations, line by line.");
ABSL_FLAG(std::vector<std::string>, eval_source, {"val.en"},
          "Text files in --raw_dir for evaluation, in the language to translate from.");
ABSL_FLAG(std::vector<std::string>, eval_target, {"val.de"}, "Their translations, line by line.");
ABSL_FLAG(bool, download, false,
          "Use the text of WMT 2017, English and German, and download to --raw_dir what is missing there (1.8 GB). The "
          "four flags above are not used then.");
ABSL_FLAG(int64_t, vocab_size, 32768,
          "Entries of the vocabulary. The result has the nearest size that the search for a minimum count of subtokens "
          "finds; a warning tells if it differs by more than 1 %.");
ABSL_FLAG(bool, search, false,
          "Search for the minimum count of subtokens at which the vocabulary has about --vocab_size entries. Giving "
          "--vocab_size implies it; otherwise the minimum count is 6, which fits WMT.");

namespace official::transformer {
namespace {

constexpr int64_t kMinCount = 6;  // upstream's

absl::Status FromDirNeedsDownload(const flags::CommandLine&) {
  if (flags::FromDir().empty() || absl::GetFlag(FLAGS_download)) return absl::OkStatus();
  return flags::FlagError("from_dir",
                          "needs --download: it has the archives of WMT 2017; your own text is in --raw_dir");
}

flags::Program PrepareProgram() {
  return {
      .name = "prepare_data_main",
      .description =
          "Converts text and its translation to the files that transformer_main trains on: a vocabulary of subtokens "
          "and TFRecord files. Files that are complete are kept: after an interruption, the same command resumes.",
      .examples = {{"prepare_data_main --raw_dir=multi30k --data_dir=data --vocab_size=8192",
                    "convert train.en, train.de, val.en and val.de, with a vocabulary of about 8192 entries"},
                   {"prepare_data_main --download", "download and convert WMT 2017: 4.6 million pairs of sentences"},
                   {"prepare_data_main --download --from_dir=usb", "convert copies of its archives, without a network"},
                   {"prepare_data_main --raw_dir=wmt --train_source=a.en,b.en --train_target=a.de,b.de "
                    "--eval_source=newstest2013.en --eval_target=newstest2013.de",
                    "convert text files of other names"}},
      .defaults = {{"data_dir", files::DefaultDataDir("translate_ende")},
                   {"raw_dir", files::DefaultDataDir("translate_ende_raw")}},
      .flags = {.name = "prepare_data",
                .flags = {flags::DataDirFlag("transformer_main"),
                          {.name = "raw_dir", .short_name = "rd", .key = true, .required = true},
                          {.name = "train_source", .key = true},
                          {.name = "train_target", .key = true},
                          {.name = "eval_source", .key = true},
                          {.name = "eval_target", .key = true},
                          {.name = "download", .key = true},
                          flags::FromDirFlag("the four archives of --download"),
                          {.name = "vocab_size", .key = true, .range = flags::AtLeast(1)},
                          {.name = "search", .key = true},
                          {.name = "seed", .help = "Seed of the order of the training records."},
                          flags::OutputFlag(),
                          flags::LogFormatFlag()},
                .validators = {FromDirNeedsDownload}},
      .shared_flags = false,
  };
}

std::vector<std::string> InRawDir(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(files::JoinPath(absl::GetFlag(FLAGS_raw_dir), name));
  return paths;
}

// The text of WMT 2017: the last archive is for evaluation.
absl::Status UseWmt17(PrepareOptions& options) {
  const std::string raw_dir = absl::GetFlag(FLAGS_raw_dir);
  RETURN_IF_ERROR(DownloadText(raw_dir, Wmt17(), flags::FromDir()));
  for (const WmtArchive& archive : Wmt17()) {
    const std::vector<std::string> paths = LocateText(raw_dir, archive.files);
    ParallelText& text = &archive == &Wmt17().back() ? options.eval : options.train;
    text.sources.push_back(paths[0]);
    text.targets.push_back(paths[1]);
  }
  return absl::OkStatus();
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  for (const std::string& note : flags::NotesOnFormerDefaults(command_line)) {
    LOG(INFO) << note;
  }
  const int64_t vocab_size = absl::GetFlag(FLAGS_vocab_size);
  PrepareOptions options;
  ASSIGN_OR_RETURN(options.data_dir, flags::DataDir(command_line));
  if (absl::GetFlag(FLAGS_download)) {
    RETURN_IF_ERROR(UseWmt17(options));
  } else {
    options.train = {InRawDir(absl::GetFlag(FLAGS_train_source)), InRawDir(absl::GetFlag(FLAGS_train_target))};
    options.eval = {InRawDir(absl::GetFlag(FLAGS_eval_source)), InRawDir(absl::GetFlag(FLAGS_eval_target))};
  }
  const DataNames names = NamesFor(options.train, vocab_size);
  options.vocabulary_name = names.vocabulary;
  options.records = names.records;
  options.vocabulary.target_size = vocab_size;
  options.vocabulary.threshold = vocab_size / 100;
  if (!absl::GetFlag(FLAGS_search) && !command_line.given("vocab_size")) options.vocabulary.min_count = kMinCount;
  options.seed = absl::GetFlag(FLAGS_seed);
  ASSIGN_OR_RETURN(const PrepareResult result, PrepareData(options));
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"},
                      {"vocab_file", result.vocabulary},
                      {"vocab_size", result.vocab_size},
                      {"train_sentences", result.train_sentences},
                      {"eval_sentences", result.eval_sentences}},
                     std::cout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::transformer::PrepareProgram(), official::transformer::Main);
}
