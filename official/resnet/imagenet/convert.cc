#include "official/resnet/imagenet/convert.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/data/numbered_files.h"
#include "utils/data/permutation.h"
#include "utils/data/png.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"
#include "utils/protos/example.pb.h"

namespace official::resnet {
namespace {

constexpr int64_t kMaxImageBytes = 64 << 20;
constexpr char kBackground[] = "background";  // class 0, which no folder has
constexpr uint64_t kSeed = 1;                 // of the order of the images, which is part of the data set
constexpr size_t kMaxShown = 3;               // names in one message

struct Image {
  std::string folder;
  std::string name;
  int64_t label;
};

bool HasImageName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") || absl::EndsWith(lower, ".png");
}

// True for what file managers and other programs leave beside a user's own files: .ipynb_checkpoints, ._cat.jpg.
bool IsHidden(const std::string& name) { return absl::StartsWith(name, ".") || name == "__MACOSX"; }

// "a, b, c and 4 more".
std::string FirstOf(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxShown);
  const std::string text = absl::StrJoin(absl::MakeSpan(names).first(shown), ", ");
  const std::string others = shown == names.size() ? "" : absl::StrCat(" and ", names.size() - shown, " more");
  return misc::Printable(text) + others;
}

// `passed_over`: the files and folders that are not converted.
void WarnOfLosses(const ClassNames& classes, const std::vector<Image>& images,
                  const std::vector<std::string>& passed_over) {
  std::vector<bool> has_image(classes.size());
  for (const Image& image : images) has_image[image.label] = true;
  std::vector<std::string> without;
  for (size_t label = 1; label < classes.size(); ++label) {
    if (!has_image[label]) without.push_back(classes[label]);
  }
  if (!without.empty()) {
    LOG(WARNING) << "classes without an image: " << without.size() << " (" << FirstOf(without) << ")";
  }
  if (!passed_over.empty()) {
    LOG(WARNING) << "not converted: " << passed_over.size() << " files or folders (" << FirstOf(passed_over)
                 << "); images are .jpg, .jpeg or .png files in the folder of their class, and not deeper";
  }
}

// The images in the order of their classes; a class may have none.
absl::StatusOr<std::vector<Image>> FindImages(const std::string& images_dir, ClassNames* classes) {
  ASSIGN_OR_RETURN(const std::vector<std::string> folders, files::ListDirectory(images_dir));
  logs::TaskProgress progress({.title = "looking for images", .unit = "images"});
  std::vector<Image> images;
  std::vector<std::string> passed_over;
  *classes = {kBackground};
  for (const std::string& folder : folders) {
    progress.Set(static_cast<int64_t>(images.size()));
    if (IsHidden(folder)) continue;
    const std::string path = files::JoinPath(images_dir, folder);
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      if (HasImageName(folder)) passed_over.push_back(folder);  // other files beside the folders are no loss
      continue;
    }
    if (absl::StrContains(folder, '\n')) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the name of the folder \"%s\" has more than one line; give it another, which will be that of its class",
          absl::CEscape(folder)));
    }
    if (absl::StripAsciiWhitespace(folder) != folder) {  // which ReadClassNames leaves out
      return absl::InvalidArgumentError(absl::StrFormat(
          "the name of the folder \"%s\" begins or ends with a blank; give it another, which will be that of its class",
          absl::CEscape(folder)));
    }
    const auto label = static_cast<int64_t>(classes->size());
    classes->push_back(folder);
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(path));
    for (const std::string& name : names) {
      if (IsHidden(name)) continue;
      if (HasImageName(name)) {
        images.push_back({folder, name, label});
      } else {
        passed_over.push_back(files::JoinPath(folder, name));
      }
    }
  }
  if (images.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "%s holds no images: expected a folder for each class, with .jpg, .jpeg or .png files in it", images_dir));
  }
  WarnOfLosses(*classes, images, passed_over);
  return images;
}

// With the features in the order of their names, so that the same images make the same files.
std::string Serialized(const tensorflow::Example& example) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  OFFICIAL_CHECK(example.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

std::string PathOf(const Image& image) { return files::JoinPath(image.folder, image.name); }

// The features of TensorFlow's build_imagenet_data.py, without those for which a folder of images has no values.
absl::StatusOr<std::string> MakeRecord(const std::string& images_dir, const Image& image,
                                       PreprocessingScratch& scratch) {
  const std::string path = files::JoinPath(images_dir, PathOf(image));
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
  return Serialized(example);
}

// The images that cannot be decoded. From the first on nothing is written: the others are only checked, so that one run
// finds all. Any thread may add one.
class BadImages {
 public:
  bool any() const { return any_; }

  void Add(const Image& image, absl::Status error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_.emplace(PathOf(image), std::move(error));
    any_ = true;
  }

  // The error of a conversion with these images. Those that it has no room for are in the log.
  absl::Status ToStatus(const std::string& images_dir) const {
    if (errors_.empty()) return absl::OkStatus();
    const absl::Status& first = errors_.begin()->second;
    if (errors_.size() == 1) return first;
    std::vector<std::string> names;
    for (const auto& [name, error] : errors_) {
      names.push_back(name);
      if (errors_.size() > kMaxShown) {
        LOG(WARNING) << error.message();
      }
    }
    return absl::Status(first.code(), absl::StrFormat("%d of the images in %s cannot be converted (%s): %s",
                                                      names.size(), images_dir, FirstOf(names), first.message()));
  }

 private:
  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::map<std::string, absl::Status> errors_;  // by name, so that the error is the same whatever the threads do
};

// The files of one split.
struct Split {
  std::string name;
  std::vector<Image> images;
  int num_shards = 1;
};

// Of a class's images so many as the fraction says go to validation: those whose names have the smallest hashes. So
// each image stays where it is when others are added, but for a few.
std::vector<bool> ChooseValidation(absl::Span<const Image> of_class, double fraction) {
  const auto num_images = static_cast<int64_t>(of_class.size());
  std::vector<std::pair<uint64_t, int64_t>> hashes;
  for (int64_t i = 0; i < num_images; ++i) {
    const std::string& name = of_class[i].name;
    hashes.emplace_back(compute::StreamOf(name.data(), name.size()), i);
  }
  std::sort(hashes.begin(), hashes.end());
  const auto wanted = std::llround(fraction * static_cast<double>(num_images));
  const int64_t chosen = num_images < 2 ? 0 : std::clamp<int64_t>(wanted, 1, num_images - 1);
  std::vector<bool> for_validation(num_images);
  for (int64_t i = 0; i < chosen; ++i) for_validation[hashes[i].second] = true;
  return for_validation;
}

// `images` are ordered by class.
std::vector<Split> MakeSplits(const ConvertOptions& options, std::vector<Image> images) {
  std::vector<Split> splits;
  if (options.validation_fraction == 0) {
    splits.push_back({options.split, std::move(images), options.num_shards});
    return splits;
  }
  splits.push_back({"train", {}, options.num_shards});
  splits.push_back({"validation", {}, (options.num_shards + 7) / 8});
  Split &train = splits[0], &validation = splits[1];
  for (size_t begin = 0, end; begin < images.size(); begin = end) {
    end = begin;
    while (end < images.size() && images[end].label == images[begin].label) ++end;
    const std::vector<bool> for_validation =
        ChooseValidation(absl::MakeSpan(images).subspan(begin, end - begin), options.validation_fraction);
    for (size_t i = begin; i < end; ++i) {
      (for_validation[i - begin] ? validation : train).images.push_back(std::move(images[i]));
    }
  }
  validation.num_shards = std::min(validation.num_shards, std::max(1, static_cast<int>(validation.images.size())));
  return splits;
}

absl::Status CheckImages(const Split& split) {
  const auto num_images = static_cast<int64_t>(split.images.size());
  if (num_images == 0) {
    return absl::InvalidArgumentError("no class has two images; --validation_fraction needs at least two in a class");
  }
  if (num_images >= split.num_shards) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%d images cannot be spread over %d files; try --num_shards=%d",
                                                    num_images, split.num_shards, num_images));
}

// True for the names of the records of any split, temporary ones too.
bool IsOfRecords(const std::string& name) {
  return absl::StartsWith(name, "train-") || absl::StartsWith(name, "validation-");
}

// A conversion that was killed has left no records under these names, and the same command can be given again.
absl::Status RemoveAbandonedRecords(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  for (const std::string& name : names) {
    const std::optional<std::string> final_name = files::FinalNameOf(name);
    if (final_name && IsOfRecords(name)) files::RemoveAbandoned(files::JoinPath(directory, *final_name));
  }
  return absl::OkStatus();
}

// Whether `directory` holds records of the other split; FailedPrecondition if it holds some of these, or if another
// process is writing them.
absl::StatusOr<bool> CheckNoneThere(const std::string& directory, const std::vector<Split>& splits) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  bool others = false;
  for (const std::string& name : names) {
    for (const Split& split : splits) {
      if (!absl::StartsWith(name, split.name + "-")) continue;
      if (files::FinalNameOf(name)) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "another process is writing %s in %s; wait for it, or choose another directory", name, directory));
      }
      return absl::FailedPreconditionError(
          absl::StrFormat("%s already holds %s; move it away, or choose another directory", directory, name));
    }
    others = others || IsOfRecords(name);
  }
  return others;
}

// If the other split is there, it must have the same classes.
absl::Status CheckClasses(const ConvertOptions& options, const ClassNames& classes) {
  ASSIGN_OR_RETURN(const ClassNames there, FindClassNames(options.output_dir));
  if (there.empty()) return absl::OkStatus();
  const absl::Status status = CheckSameClasses(there, files::JoinPath(options.output_dir, misc::kClassNamesFile),
                                               classes, absl::StrCat("--images_dir=", options.images_dir));
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("both splits need the same folders, but ", status.message()));
}

// Records [num_images * shard / num_shards, num_images * (shard + 1) / num_shards) of the random order.
absl::Status WriteRecords(const std::string& images_dir, const Split& split, int64_t shard, files::FileWriter& file,
                          BadImages& bad, logs::TaskProgress& progress) {
  data::TFRecordWriter writer(file);
  const int64_t num_images = static_cast<int64_t>(split.images.size());
  const data::Permutation order(num_images, kSeed, /*epoch=*/0);
  PreprocessingScratch scratch;
  const int64_t end = num_images * (shard + 1) / split.num_shards;
  for (int64_t i = num_images * shard / split.num_shards; i < end; ++i) {
    const Image& image = split.images[order(i)];
    const absl::StatusOr<std::string> record = MakeRecord(images_dir, image, scratch);
    // The disk may fail for all that follow, too.
    if (!record.ok() && !absl::IsDataLoss(record.status())) return record.status();
    if (!record.ok()) bad.Add(image, record.status());
    if (!bad.any()) RETURN_IF_ERROR(writer.Write(*record));
    progress.Add(1);
  }
  return writer.Close();
}

std::string ShardPath(const ConvertOptions& options, const Split& split, int64_t shard) {
  return files::JoinPath(options.output_dir, data::NumberedName(split.name, static_cast<int>(shard), split.num_shards));
}

absl::Status WriteShard(const ConvertOptions& options, const Split& split, int64_t shard, BadImages& bad,
                        logs::TaskProgress& progress) {
  ASSIGN_OR_RETURN(const auto file, files::AtomicFile::Create(ShardPath(options, split, shard)));
  RETURN_IF_ERROR(WriteRecords(options.images_dir, split, shard, file->writer(), bad, progress));
  if (bad.any()) return absl::OkStatus();  // without the file, which has not all records
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

absl::Status WriteSplit(const ConvertOptions& options, const Split& split, BadImages& bad,
                        logs::TaskProgress& progress) {
  std::vector<absl::Status> statuses(split.num_shards);
  data::WorkerPool(options.num_threads).ForEach(split.num_shards, [&](int64_t shard) {
    statuses[shard] = WriteShard(options, split, shard, bad, progress);
  });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Writes labels.txt, then the records of all splits: a training finds no records without their names, also if this
// process is killed. If one file cannot be made, no records stay, nor, without those of another split, labels.txt: the
// same command can be given again.
absl::Status WriteAll(const ConvertOptions& options, const std::vector<Split>& splits, int64_t num_images,
                      const ClassNames& classes, bool other_split_is_there) {
  RETURN_IF_ERROR(WriteClassNames(options.output_dir, classes));
  logs::TaskProgress progress({.title = "converting", .total = num_images, .unit = "images"});
  BadImages bad;
  absl::Status status;
  for (const Split& split : splits) {
    if (status.ok()) status = WriteSplit(options, split, bad, progress);
  }
  if (status.ok()) status = bad.ToStatus(options.images_dir);
  if (status.ok()) return status;
  for (const Split& split : splits) {
    for (int64_t shard = 0; shard < split.num_shards; ++shard) {
      files::RemoveFile(ShardPath(options, split, shard)).IgnoreError();
    }
  }
  if (!other_split_is_there) {
    files::RemoveFile(files::JoinPath(options.output_dir, misc::kClassNamesFile)).IgnoreError();
  }
  return status;
}

}  // namespace

absl::StatusOr<ConvertResult> ConvertToTFRecords(const ConvertOptions& options) {
  ClassNames classes;
  ASSIGN_OR_RETURN(std::vector<Image> images, FindImages(options.images_dir, &classes));
  const std::vector<Split> splits = MakeSplits(options, std::move(images));
  ConvertResult result = {.num_classes = static_cast<int64_t>(classes.size()) - 1};
  for (const Split& split : splits) {
    RETURN_IF_ERROR(CheckImages(split));
    result.num_images += static_cast<int64_t>(split.images.size());
  }
  if (splits.size() > 1) {
    result.num_validation_images = static_cast<int64_t>(splits[1].images.size());
    result.num_validation_shards = splits[1].num_shards;
  }
  RETURN_IF_ERROR(files::MakeDirectories(options.output_dir));
  RETURN_IF_ERROR(RemoveAbandonedRecords(options.output_dir));
  ASSIGN_OR_RETURN(const bool other_split_is_there, CheckNoneThere(options.output_dir, splits));
  if (other_split_is_there) RETURN_IF_ERROR(CheckClasses(options, classes));
  RETURN_IF_ERROR(WriteAll(options, splits, result.num_images, classes, other_split_is_there));
  RETURN_IF_ERROR(files::SyncDirectory(options.output_dir));
  return result;
}

}  // namespace official::resnet
