// generate_ratings_main <ml-1m|ml-20m> FILE: writes the ratings that ncf_main trains on where that data set is not to
// be had, as a ratings.csv.
#include <cstdio>

#include "official/recommendation/data/generated_ratings.h"
#include "official/recommendation/data/movielens.h"
#include "utils/compute/core/status.h"
#include "utils/misc/exit_code.h"

namespace {

absl::Status Generate(const std::string& dataset, const std::string& path) {
  using namespace official::recommendation;
  ASSIGN_OR_RETURN(const GeneratorOptions size, SizeOfDataset(dataset));
  ASSIGN_OR_RETURN(const std::vector<Rating> ratings, GenerateRatings(size));
  return WriteRatings(path, ratings);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate_ratings_main <ml-1m|ml-20m> FILE\n");
    return official::misc::kExitBadFlags;
  }
  const absl::Status status = Generate(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "generate_ratings_main: %s\n", std::string(status.message()).c_str());
  return official::misc::ExitCode(status);
}
