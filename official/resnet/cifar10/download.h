// Gets CIFAR-10 from the web, or from its archive where that is at hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace official::resnet {

inline constexpr char kCifar10Archive[] = "cifar-10-binary.tar.gz";

struct Cifar10Source {
  // If not empty, a copy of cifar-10-binary.tar.gz to unpack instead of downloading it.
  std::string archive = "";
  std::vector<std::string> urls = {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"};
  // The size and checksum of the archive, wherever it is from.
  int64_t num_bytes = 170052171;
  std::string sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
};

// Puts the files that LoadCifar10 reads into cifar-10-batches-bin in `data_dir`; nothing is done if they are all there
// and whole. A file that is cut is replaced. Each appears under its name only once it is complete. Says on stderr what
// it does. Errors of data::DownloadFiles; DataLoss if the archive is not the published one, NotFound if it is missing.
absl::Status DownloadCifar10(const std::string& data_dir, const Cifar10Source& source = {});

}  // namespace official::resnet
