#include "official/resnet/imagenet/convert.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/dataset.h"
#include "utils/data/huge_image.h"
#include "utils/data/jpeg_encoder.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::resnet {
namespace {

using Catch::Contains;

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/tools", ++number);
    for (int i = 0; i < 6; ++i) AddImage(i < 2 ? "cat" : "dog", absl::StrCat(i, i % 2 ? ".jpg" : ".JPEG"), 20 + i);
    Write("images/README", "not a folder");
    Write("images/cat/note.txt", "not an image");
  }

 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  void AddImage(const std::string& folder, const std::string& name, int size) const {
    Write("images/" + folder + "/" + name, data::SmoothJpeg({.height = size, .width = size}));
  }
  absl::StatusOr<ConvertResult> Convert(int num_shards = 2) const {
    return ConvertToTFRecords({.images_dir = Path("images"),
                               .output_dir = Path("records"),
                               .split = "train",
                               .num_shards = num_shards,
                               .num_threads = 2});
  }

  std::string directory_;
};

TEST_CASE_METHOD(Fixture, "Folders become classes, and training reads what was written") {
  logs::CapturedTasks log;
  const ConvertResult result = Convert().value();
  CHECK_THAT(log.Text(), Contains("looking for images") && Contains("converting   0% [") && Contains("6/6 images"));
  CHECK(result.num_images == 6);
  CHECK(result.num_classes == 2);
  const data::DatasetPtr dataset =
      ImagenetDataset(OpenImagenet(Path("records"), ImagenetPart::kTrain).value(), {.augment = true});
  REQUIRE(dataset->num_examples() == 6);
  std::vector<int> labels;
  for (int i = 0; i < 6; ++i) {
    const data::Example example = data::MakeExample(dataset->spec());
    REQUIRE(dataset->Read(0, i, example).ok());
    labels.push_back(example.labels[0].scalar<int32_t>());
  }
  CHECK(std::count(labels.begin(), labels.end(), 1) == 2);
  CHECK(std::count(labels.begin(), labels.end(), 2) == 4);
}

TEST_CASE_METHOD(Fixture, "Hidden folders are no classes, and what is not converted is told") {
  AddImage(".ipynb_checkpoints", "0-checkpoint.jpg", 20);
  AddImage("__MACOSX", "0.jpg", 20);
  Write("images/cat/._0.JPEG", "not an image");
  Write("images/emu/1.heic", "an image of another kind");
  AddImage("horse/more", "2.jpg", 20);
  AddImage(".", "beside.jpg", 20);
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const ConvertResult result = Convert().value();
  CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "cat", "dog", "emu", "horse"});
  CHECK(result.num_images == 6);
  CHECK_THAT(log.Text(),
             Contains("classes without an image: 2 (emu, horse)\n") &&
                 Contains("not converted: 4 files or folders (beside.jpg, cat/note.txt, emu/1.heic and 1 more); "));
}

TEST_CASE_METHOD(Fixture, "The names of the classes are kept, and both splits must have the same") {
  REQUIRE(Convert().ok());
  CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "cat", "dog"});
  const auto validation = [&] {
    return ConvertToTFRecords({.images_dir = Path("images"), .output_dir = Path("records"), .split = "validation"});
  };
  AddImage("bird", "1.jpg", 30);
  const absl::Status other = validation().status();
  CHECK(absl::IsInvalidArgument(other));
  CHECK(other.message() == "both splits need the same folders, but class 1 differs: " + Path("records/labels.txt") +
                               " names it \"cat\", --images_dir=" + Path("images") + " names it \"bird\"");
  std::filesystem::remove_all(Path("images/bird"));
  CHECK(validation().ok());
  // Records of an earlier kind lie there no more.
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"}) {
    REQUIRE(std::filesystem::remove(Path(absl::StrCat("records/", name))));
  }
  AddImage("bird", "1.jpg", 30);
  CHECK(validation().ok());
  CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "bird", "cat", "dog"});
  AddImage("two\nlines", "1.jpg", 30);
  CHECK_THAT(std::string(Convert().status().message()), Contains("\"two\\nlines\" has more than one line"));
}

TEST_CASE_METHOD(Fixture, "A folder whose name would be read back as another one is refused") {
  const std::string folder = GENERATE(as<std::string>(), " first", "last ", "tab\t", " ");
  AddImage(folder, "1.jpg", 30);
  const absl::Status refused = Convert().status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Contains("begins or ends with a blank; give it another"));
}

TEST_CASE_METHOD(Fixture, "Of one folder a part of each class is for validation, chosen by the images' names") {
  for (int i = 0; i < 20; ++i) AddImage("bird", absl::StrCat("bird", i, ".jpg"), 20);
  AddImage("emu", "only.jpg", 20);
  const auto convert = [&](const std::string& output, double fraction) {
    return ConvertToTFRecords({.images_dir = Path("images"),
                               .output_dir = Path(output),
                               .validation_fraction = fraction,
                               .num_shards = 9,
                               .num_threads = 2})
        .value();
  };
  const auto labels = [&](const std::string& output, ImagenetPart part) {
    const data::DatasetPtr dataset = ImagenetDataset(OpenImagenet(Path(output), part).value(), {});
    std::vector<int> counts(5);
    for (int64_t i = 0; i < dataset->num_examples(); ++i) {
      const data::Example example = data::MakeExample(dataset->spec());
      REQUIRE(dataset->Read(0, i, example).ok());
      ++counts[example.labels[0].scalar<int32_t>()];
    }
    return counts;
  };
  const ConvertResult result = convert("split", 0.25);
  CHECK(result.num_images == 27);
  CHECK(result.num_classes == 4);
  CHECK(result.num_validation_images == 5 + 1 + 1);
  CHECK(result.num_validation_shards == 2);
  // Of background, bird, cat, dog and emu.
  CHECK(labels("split", ImagenetPart::kTrain) == std::vector<int>{0, 15, 1, 3, 1});
  CHECK(labels("split", ImagenetPart::kValidation) == std::vector<int>{0, 5, 1, 1, 0});
  // The same every time, to the byte.
  convert("again", 0.25);
  for (const auto& entry : std::filesystem::directory_iterator(Path("split"))) {
    const std::string name = entry.path().filename();
    const bool same =
        files::ReadFile(entry.path(), 1 << 20).value() == files::ReadFile(Path("again/" + name), 1 << 20).value();
    CHECK(same);
  }
  CHECK(absl::IsFailedPrecondition(
      ConvertToTFRecords({.images_dir = Path("images"), .output_dir = Path("split"), .validation_fraction = 0.1})
          .status()));
}

TEST_CASE_METHOD(Fixture, "An image that cannot be decoded is named, and no file is left") {
  Write("images/dog/bad.jpg", "\xff\xd8\xff, but no more");
  const absl::Status status = Convert().status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(Path("images/dog/bad.jpg") + ": the JPEG image cannot be decoded"));
  CHECK(std::filesystem::is_empty(Path("records")));
  std::filesystem::remove(Path("images/dog/bad.jpg"));
  CHECK(Convert().ok());
}

TEST_CASE_METHOD(Fixture, "All images that cannot be decoded are found at once, in all shards of both splits") {
  for (int i = 0; i < 40; ++i) AddImage("emu", absl::StrCat(i, ".jpg"), 20);
  const auto damage = [this](const std::string& name) { Write("images/" + name, "\xff\xd8\xff, but no more"); };
  const auto convert = [this] {
    return ConvertToTFRecords({.images_dir = Path("images"),
                               .output_dir = Path("records"),
                               .validation_fraction = 0.5,
                               .num_shards = 8,
                               .num_threads = 2})
        .status();
  };
  const std::string reason = Path("images/cat/bad.jpg") + ": the JPEG image cannot be decoded";
  logs::CapturedLog log(logs::LogFormat::kSimple);
  for (const char* name : {"emu/7.jpg", "emu/30.jpg", "cat/bad.jpg"}) damage(name);
  const absl::Status three = convert();
  CHECK(absl::IsDataLoss(three));
  CHECK_THAT(std::string(three.message()),
             Contains(absl::StrCat("3 of the images in ", Path("images"),
                                   " cannot be converted (cat/bad.jpg, emu/30.jpg, emu/7.jpg): ", reason)));
  CHECK_THAT(log.Text(), !Contains("bad.jpg"));
  CHECK(std::filesystem::is_empty(Path("records")));
  for (int i = 10; i < 20; ++i) damage(absl::StrCat("emu/", i, ".jpg"));
  CHECK_THAT(std::string(convert().message()),
             Contains("13 of the images") && Contains("(cat/bad.jpg, emu/10.jpg, emu/11.jpg and 10 more): " + reason));
  for (const char* name : {"cat/bad.jpg", "emu/7.jpg", "emu/10.jpg", "emu/19.jpg", "emu/30.jpg"}) {
    CHECK_THAT(log.Text(), Contains(Path(absl::StrCat("images/", name)) + ": the JPEG image cannot be decoded"));
  }
}

TEST_CASE_METHOD(Fixture, "An image that cannot be read ends the conversion, whatever others hold") {
  for (int i = 0; i < 9; ++i) Write(absl::StrCat("images/emu/", i, ".jpg"), "\xff\xd8\xff, but no more");
  const std::string gone = Path("images/emu/gone.jpg");
  std::filesystem::create_symlink("nowhere", gone);
  const absl::Status status = Convert(GENERATE(1, 2)).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), Contains(gone) && !Contains("of the images"));
  CHECK(std::filesystem::is_empty(Path("records")));
}

TEST_CASE_METHOD(Fixture, "If one split fails, the names of the classes stay with the other") {
  REQUIRE(Convert().ok());
  Write("images/dog/bad.jpg", "\xff\xd8\xff, but no more");
  const auto failed =
      ConvertToTFRecords({.images_dir = Path("images"), .output_dir = Path("records"), .split = "validation"});
  CHECK(absl::IsDataLoss(failed.status()));
  CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "cat", "dog"});
}

TEST_CASE_METHOD(Fixture, "A process that is killed leaves no records without the names of their classes") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {100, 100};  // bytes of a file: labels.txt has fewer, records more, which SIGXFSZ ends
    setrlimit(RLIMIT_FSIZE, &limit);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);  // it may be a file, too
    _exit(Convert().ok() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ));
  CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "cat", "dog"});
  const auto temporary_files = [&] {
    const std::vector<std::string> names = files::ListDirectory(Path("records")).value();
    return std::count_if(names.begin(), names.end(), [](const auto& name) { return files::FinalNameOf(name); });
  };
  REQUIRE(temporary_files() > 0);
  SECTION("nor anything that refuses the same conversion") { CHECK(Convert().ok()); }
  SECTION("nor anything that decides the classes of the other split") {
    AddImage("bird", "1.jpg", 30);
    const ConvertOptions validation = {
        .images_dir = Path("images"), .output_dir = Path("records"), .split = "validation"};
    CHECK(ConvertToTFRecords(validation).ok());
    CHECK(FindClassNames(Path("records")).value() == ClassNames{"background", "bird", "cat", "dog"});
  }
  CHECK(temporary_files() == 0);
}

TEST_CASE_METHOD(Fixture, "Records that another process is writing are not written over") {
  REQUIRE(files::MakeDirectories(Path("records")).ok());
  const auto other = files::AtomicFile::Create(Path("records/train-00001-of-00002")).value();
  const absl::Status status = Convert().status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Contains("another process is writing train-00001-of-00002"));
  REQUIRE(other->Finish().ok());
  CHECK(other->Publish().ok());  // it still has its temporary file
}

TEST_CASE_METHOD(Fixture, "An image that claims too many pixels is damaged data") {
  const bool png = GENERATE(true, false);
  const std::string name = png ? "images/dog/huge.png" : "images/dog/huge.jpg";
  Write(name, png ? data::HugePng() : data::HugeJpeg());
  const absl::Status status = Convert().status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(Path(name)) && Contains("65500 x 65500 pixels") && Contains("limit of"));
}

TEST_CASE_METHOD(Fixture, "Nothing is written over, and nothing made from nothing") {
  REQUIRE(Convert(1).ok());
  CHECK(absl::IsFailedPrecondition(Convert(2).status()));
  CHECK(absl::IsInvalidArgument(Convert(7).status()));
  const auto from = [&](const std::string& images_dir) {
    return ConvertToTFRecords({.images_dir = images_dir, .output_dir = Path("other")}).status();
  };
  CHECK_THAT(std::string(from(Path("images/cat")).message()), Contains("holds no images: expected a folder for each"));
  CHECK(absl::IsNotFound(from(Path("none"))));
}

}  // namespace
}  // namespace official::resnet
