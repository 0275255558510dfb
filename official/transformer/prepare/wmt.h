// Upstream's training text for English to German: WMT 2017, 4.6 million pairs of sentences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace official::transformer {

// A .tgz on the web, and the files that are needed from it, by their names without directories.
struct WmtArchive {
  std::string url;
  int64_t num_bytes;
  std::string sha256;
  std::vector<std::string> files;
};

// Returns three archives of training text, and newstest2013 for evaluation: 1.8 GB to download, 0.8 GB of text.
const std::vector<WmtArchive>& Wmt17();

// Returns the paths of the files of these names anywhere in `raw_dir`, at most five directories deep; for a missing
// one, the path where DownloadText puts it.
std::vector<std::string> LocateText(const std::string& raw_dir, const std::vector<std::string>& names);

// Downloads the archives whose files are not in `raw_dir` yet, and unpacks those. Each file appears only when it is
// complete; an archive is removed afterwards. An archive that is already in raw_dir is used, if it is the published
// one. With `from_dir` nothing is downloaded: the archives lie there, and stay. Says on stderr what it does. Errors of
// data::DownloadFiles; DataLoss if an archive is not the published one, or a file is missing in it; NotFound, with its
// URL, if from_dir lacks an archive.
absl::Status DownloadText(const std::string& raw_dir, absl::Span<const WmtArchive> archives,
                          const std::string& from_dir = "");

}  // namespace official::transformer
