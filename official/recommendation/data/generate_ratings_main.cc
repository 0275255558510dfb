// generate_ratings_main <ml-1m|ml-20m> FILE: writes the ratings that ncf_main trains on where MovieLens cannot be
// downloaded, as a ratings.csv.
#include <iostream>

#include "official/recommendation/data/generated_ratings.h"
#include "official/recommendation/data/movielens.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/flags/num_words.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

constexpr char kWords[] = "<ml-1m|ml-20m> FILE";

flags::Program GenerateProgram() {
  return {
      .name = "generate_ratings_main",
      .description =
          "Writes random ratings to FILE, one user,item,rating,timestamp a line: as many users, items and ratings as "
          "MovieLens 1M (ml-1m) or 20M (ml-20m) has. ncf_main trains on the same ratings where MovieLens cannot be "
          "downloaded.",
      .examples = {{"generate_ratings_main ml-1m ratings.csv", "then train with: ncf_main --ratings_file=ratings.csv"}},
      .flags = {.name = "generate_ratings", .flags = {flags::OutputFlag(), flags::LogFormatFlag()}},
      .words = kWords,
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  RETURN_IF_ERROR(flags::CheckNumWords(command_line, kWords, 2, 2));
  const std::vector<std::string>& words = command_line.words();
  ASSIGN_OR_RETURN(const GeneratorOptions size, SizeOfDataset(words[0]));
  // Before minutes of work; a pipe, which CheckOutput lets pass, cannot be written anew.
  RETURN_IF_ERROR(files::CheckRegularOrMissing(words[1]));
  RETURN_IF_ERROR(files::CheckOutput(words[1]));
  const logs::TaskProgress progress({.title = "generating ratings"});
  ASSIGN_OR_RETURN(const std::vector<Rating> ratings, GenerateRatings(size));
  RETURN_IF_ERROR(WriteRatings(words[1], ratings));
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"}, {"file", words[1]}, {"ratings", static_cast<int64_t>(ratings.size())}},
                     std::cout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::recommendation

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::recommendation::GenerateProgram(),
                                  official::recommendation::Main);
}
