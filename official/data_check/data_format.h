// The formats of the data files that the programs read.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace official::data_check {

enum class DataFormat {
  kUnknown,
  kTFRecord,            // resnet_main, transformer_main
  kCompressedTFRecord,  // gzip or zlib
  kIdx,                 // mnist_main; plain or gzip
  kCifar10,             // resnet_main --dataset_name=cifar10
  kRatings,             // ncf_main; plain or in a zip archive
  kVocabulary,          // transformer_main, translate_main
  kText,                // prepare_data_main
};

// Recognizes a file by its contents; if these are damaged, by its name. Errors as in utils/files.
absl::StatusOr<DataFormat> FormatOfFile(const std::string& path);

}  // namespace official::data_check
