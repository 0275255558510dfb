// download_movielens_main [DIRECTORY]: puts the files of a MovieLens data set where ncf_main reads them.
#include <iostream>

#include "absl/flags/flag.h"
#include "official/recommendation/data/movielens.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/console.h"
#include "utils/flags/data_dir.h"
#include "utils/flags/main.h"
#include "utils/flags/num_words.h"
#include "utils/logs/log.h"

ABSL_FLAG(std::string, dataset, "ml-1m", "MovieLens data set: 100,000, 1 million or 20 million ratings.");

namespace official::recommendation {
namespace {

constexpr char kWords[] = "[DIRECTORY]";

flags::Program DownloadProgram() {
  return {
      .name = "download_movielens_main",
      .description =
          "Downloads MovieLens (5 to 199 MB) to DIRECTORY or --data_dir, by default to where ncf_main looks for it, "
          "and "
          "unpacks there, in a folder of the data set's name, the ratings that it trains on and the names of the "
          "films, "
          "for its --item_names. Files that are there already are kept, and an interrupted download resumes where it "
          "stopped.",
      .examples = {{"download_movielens_main data --dataset=ml-20m",
                    "then train with: ncf_main --data_dir=data --dataset=ml-20m"},
                   {"download_movielens_main data --from_dir=usb", "take a copy of ml-1m.zip, without a network"}},
      .defaults = {{"data_dir", files::DefaultDataDir("movielens-data")}},
      .flags = {.name = "download_movielens",
                .flags = {{.name = "dataset", .key = true, .choices = {"ml-100k", "ml-1m", "ml-20m"}, .any_case = true},
                          flags::DataDirFlag("ncf_main"),
                          flags::FromDirFlag("the data set's archive, such as ml-1m.zip"),
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = kWords,
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::CheckNumWords(command_line, kWords, 0, 1));
  RatingsOptions options;
  options.dataset = absl::GetFlag(FLAGS_dataset);
  ASSIGN_OR_RETURN(options.data_dir, flags::DataDir(command_line));
  RETURN_IF_ERROR(flags::StartLog());
  ASSIGN_OR_RETURN(const MovieLensFiles found, DownloadMovieLens(options, flags::FromDir()));
  LOG(INFO) << "MovieLens is in " << found.ratings << ", the names of its films in " << found.item_names;
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"},
                      {"dataset", options.dataset},
                      {"ratings_file", found.ratings},
                      {"item_names", found.item_names}},
                     std::cout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::recommendation

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::recommendation::DownloadProgram(),
                                  official::recommendation::Main);
}
