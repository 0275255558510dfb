#include "official/resnet/imagenet/convert.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "official/resnet/imagenet/shards.h"
#include "utils/compute/core/status.h"
#include "utils/data/permutation.h"
#include "utils/data/png.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"
#include "utils/protos/example.pb.h"

namespace official::resnet {
namespace {

constexpr int64_t kMaxImageBytes = 64 << 20;
constexpr uint64_t kSeed = 1;  // of the order of the images, which is part of the data set

struct Image {
  std::string folder;
  std::string name;
  int64_t label;
};

bool HasImageName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") || absl::EndsWith(lower, ".png");
}

absl::StatusOr<std::vector<Image>> FindImages(const std::string& images_dir, int64_t* num_classes) {
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, files::ListDirectory(images_dir));
  std::vector<Image> images;
  *num_classes = 0;
  for (const std::string& folder : folders) {
    const std::string path = files::JoinPath(images_dir, folder);
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) continue;  // a file beside the folders
    ++*num_classes;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(path));
    for (const std::string& name : names) {
      if (HasImageName(name)) images.push_back({folder, name, *num_classes});
    }
  }
  if (images.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "%s holds no images: expected a folder for each class, with .jpg, .jpeg or .png files in it", images_dir));
  }
  return images;
}

// The features of TensorFlow's build_imagenet_data.py, without those for which a folder of images has no values.
absl::StatusOr<std::string> MakeRecord(const std::string& images_dir, const Image& image,
                                       PreprocessingScratch& scratch) {
  const std::string path = files::JoinPath(files::JoinPath(images_dir, image.folder), image.name);
  ASSIGN_OR_RETURN(std::string bytes, files::ReadFile(path, kMaxImageBytes));
  const absl::StatusOr<data::ImageSize> size = CheckImage(bytes, scratch);
  if (!size.ok()) return absl::Status(size.status().code(), absl::StrCat(path, ": ", size.status().message()));
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  const auto set_bytes = [&](const char* name, std::string value) {
    features[name].mutable_bytes_list()->add_value(std::move(value));
  };
  const auto set_int64 = [&](const char* name, int64_t value) {
    features[name].mutable_int64_list()->add_value(value);
  };
  set_bytes("image/format", data::IsPng(bytes) ? "PNG" : "JPEG");
  set_bytes("image/encoded", std::move(bytes));
  set_bytes("image/filename", image.name);
  set_bytes("image/class/synset", image.folder);
  set_bytes("image/class/text", image.folder);
  set_int64("image/class/label", image.label);
  set_int64("image/height", size->height);
  set_int64("image/width", size->width);
  return example.SerializeAsString();
}

absl::Status CheckNoneThere(const ConvertOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(options.output_dir));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, options.split + "-")) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s already holds %s; move it away, or choose another directory", options.output_dir, name));
  }
  return absl::OkStatus();
}

// Records [num_images * shard / num_shards, num_images * (shard + 1) / num_shards) of the random order.
absl::Status WriteRecords(const ConvertOptions& options, const std::vector<Image>& images, int64_t shard,
                          const std::string& path) {
  ASSIGN_OR_RETURN(const auto writer, data::TFRecordWriter::Open(path));
  const int64_t num_images = static_cast<int64_t>(images.size());
  const data::Permutation order(num_images, kSeed, /*epoch=*/0);
  PreprocessingScratch scratch;
  const int64_t end = num_images * (shard + 1) / options.num_shards;
  for (int64_t i = num_images * shard / options.num_shards; i < end; ++i) {
    ASSIGN_OR_RETURN(const std::string record, MakeRecord(options.images_dir, images[order(i)], scratch));
    RETURN_IF_ERROR(writer->Write(record));
  }
  return writer->Close();
}

absl::Status WriteShard(const ConvertOptions& options, const std::vector<Image>& images, int64_t shard) {
  const std::string name = ShardName(options.split, static_cast<int>(shard), options.num_shards);
  const std::string path = files::JoinPath(options.output_dir, name);
  const std::string temporary = absl::StrCat(path, files::kTemporarySuffix);
  const absl::Status status = WriteRecords(options, images, shard, temporary);
  if (status.ok()) return files::Rename(temporary, path);
  files::RemoveFile(temporary).IgnoreError();
  return status;
}

}  // namespace

absl::StatusOr<ConvertResult> ConvertToTFRecords(const ConvertOptions& options) {
  ConvertResult result;
  ASSIGN_OR_RETURN(const std::vector<Image> images, FindImages(options.images_dir, &result.num_classes));
  result.num_images = static_cast<int64_t>(images.size());
  if (result.num_images < options.num_shards) {
    return absl::InvalidArgumentError(absl::StrFormat("%d images cannot be spread over %d files; try --num_shards=%d",
                                                      result.num_images, options.num_shards, result.num_images));
  }
  RETURN_IF_ERROR(files::MakeDirectories(options.output_dir));
  RETURN_IF_ERROR(CheckNoneThere(options));

  std::vector<absl::Status> statuses(options.num_shards);
  data::WorkerPool(options.num_threads).ForEach(options.num_shards, [&](int64_t shard) {
    statuses[shard] = WriteShard(options, images, shard);
  });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(files::SyncDirectory(options.output_dir));
  return result;
}

}  // namespace official::resnet
