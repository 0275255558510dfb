// preprocess_images COMMAND...: shows the tests what ours does with an image. Numbers lie in files, row by row.
//   image FILE DIRECTORY COUNT   the image decoded (decoded: uint8), as evaluation takes it (eval: float32), and COUNT
//                                times as training does: crop_0 (uint8), train_0 (float32) and so on. Prints a line for
//                                each: its name, then "ok" and what was chosen, or "failed" and why.
//   boxes HEIGHT WIDTH COUNT     prints COUNT windows that training chooses in an image without objects
#include <fstream>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/compute/core/check.h"
#include "utils/data/jpeg.h"
#include "utils/files/files.h"

namespace official::resnet {
namespace {

constexpr uint64_t kSeed = 7;

void Write(const std::string& path, const void* bytes, size_t size) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  OFFICIAL_CHECK(file.good()) << path;
}

void WriteImage(const std::string& path, const data::RgbImage& image) {
  std::string bytes;
  for (int64_t y = 0; y < image.size.height; ++y) {
    bytes.append(reinterpret_cast<const char*>(image.pixels + y * image.stride), 3 * image.size.width);
  }
  Write(path, bytes.data(), bytes.size());
}

bool Ok(const std::string& name, const absl::Status& status) {
  if (!status.ok()) std::cout << name << " failed " << status.message() << "\n";
  return status.ok();
}

std::string Text(const data::ImageWindow& window) {
  return absl::StrCat(window.top, " ", window.left, " ", window.height, " ", window.width);
}

// The whole image with no window, else that one.
void Decode(const std::string& name, const std::string& bytes, const data::ImageWindow* window,
            const std::string& directory) {
  data::JpegReader reader(bytes);
  if (!Ok(name, reader.ReadSize().status())) return;
  std::vector<uint8_t> buffer;
  const auto image = window != nullptr ? reader.DecodeWindow(*window, &buffer) : reader.Decode(&buffer);
  if (!Ok(name, image.status())) return;
  WriteImage(absl::StrCat(directory, "/", name), *image);
  std::cout << name << " ok " << image->size.height << " " << image->size.width << "\n";
}

void ShowImage(const std::string& path, const std::string& directory, int count) {
  const std::string bytes = files::ReadFile(path, 64 << 20).value();
  Decode("decoded", bytes, nullptr, directory);
  PreprocessingScratch scratch;
  std::vector<float> pixels(kImagenetImageSize * kImagenetImageSize * 3);
  const size_t num_bytes = pixels.size() * sizeof(float);
  if (Ok("eval", PreprocessForEvaluation(bytes, scratch, pixels.data()))) {
    Write(directory + "/eval", pixels.data(), num_bytes);
    std::cout << "eval ok\n";
  }
  data::JpegReader header(bytes);
  const auto size = header.ReadSize();
  if (!size.ok()) return;
  for (int i = 0; i < count; ++i) {
    // What PreprocessForTraining draws.
    data::Random random(kSeed, /*epoch=*/0, i), same_random(kSeed, /*epoch=*/0, i);
    const data::ImageWindow window = SampleDistortedBox(*size, {}, same_random);
    const bool mirror = same_random.Bits() % 2 == 1;
    Decode(absl::StrCat("crop_", i), bytes, &window, directory);
    const std::string name = absl::StrCat("train_", i);
    if (!Ok(name, PreprocessForTraining(bytes, {}, /*fast_jpeg=*/false, random, scratch, pixels.data()))) continue;
    Write(directory + "/" + name, pixels.data(), num_bytes);
    std::cout << name << " ok " << Text(window) << " " << mirror << "\n";
  }
}

void ShowBoxes(const data::ImageSize& size, int count) {
  for (int i = 0; i < count; ++i) {
    data::Random random(kSeed, /*epoch=*/0, i);
    std::cout << Text(SampleDistortedBox(size, {}, random)) << "\n";
  }
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  OFFICIAL_CHECK(argc == 5) << argc;
  const std::string command = argv[1];
  if (command == "image") official::resnet::ShowImage(argv[2], argv[3], std::stoi(argv[4]));
  if (command == "boxes") official::resnet::ShowBoxes({std::stoi(argv[2]), std::stoi(argv[3])}, std::stoi(argv[4]));
}
