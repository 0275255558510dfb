#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/safetensors.h"
#include "utils/train/checkpoint/safetensors_header.h"
#include "utils/train/checkpoint/safetensors_types.h"

namespace official::train {
namespace {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the library's
constexpr int64_t kSizeBytes = 8;
constexpr int64_t kVerifyBytes = 1 << 20;

const SafetensorsType* FindType(absl::string_view name) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

// The bytes of a tensor; nothing if they, or the elements without a dimension of size zero, are 2^63 or more.
std::optional<int64_t> BytesOf(absl::Span<const int64_t> shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  bool empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

uint64_t HeaderBytes(absl::string_view head) {
  uint64_t size = 0;
  for (int i = 0; i < kSizeBytes; ++i) size |= uint64_t{static_cast<uint8_t>(head[i])} << (8 * i);
  return size;
}

std::string TensorName(absl::string_view name) { return absl::StrCat("tensor \"", misc::Printable(name), "\""); }

}  // namespace

bool LooksLikeSafetensors(absl::string_view head, int64_t file_size) {
  return head.size() > kSizeBytes && head[kSizeBytes] == '{' &&
         HeaderBytes(head) <= static_cast<uint64_t>(file_size - kSizeBytes);
}

absl::Status SafetensorsReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path(), ": ", what));
}

absl::Status SafetensorsReader::NotThere(absl::string_view name) const {
  return absl::NotFoundError(absl::StrCat(path(), ": there is no ", TensorName(name)));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, files::RandomAccessFile::Open(path));
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader(std::move(file)));
  RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::Status SafetensorsReader::ReadHeader() {
  const int64_t file_size = file_->size();
  std::string head(std::min(file_size, kSizeBytes + 1), '\0');
  RETURN_IF_ERROR(file_->Read(0, head.size(), head.data()));
  if (!LooksLikeSafetensors(head, file_size)) {
    return Damaged(
        absl::StrCat("is no safetensors file, or is cut off: it does not begin with the size of a header that "
                     "is in it",
                     data::KindNoteOfFile(path())));
  }
  const int64_t header_size = static_cast<int64_t>(HeaderBytes(head));
  if (header_size > kMaxHeaderBytes) {
    return Damaged(absl::StrFormat("has a header of %d bytes; at most %d are read", header_size, kMaxHeaderBytes));
  }
  std::string json(header_size, '\0');
  RETURN_IF_ERROR(file_->Read(kSizeBytes, header_size, json.data()));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json);
  if (!header.ok()) return Damaged(absl::StrCat("damaged header: ", header.status().message()));

  const int64_t begin = kSizeBytes + header_size;
  for (auto& [name, tensor] : header->tensors) {
    const SafetensorsType* const type = FindType(tensor.dtype);
    if (type == nullptr) {
      return Damaged(absl::StrCat(TensorName(name), " is of the unknown type \"", misc::Printable(tensor.dtype), "\""));
    }
    const std::optional<int64_t> bytes = BytesOf(tensor.shape, type->element_bytes);
    if (!bytes) return Damaged(absl::StrCat(TensorName(name), " has an impossible shape"));
    const compute::Shape shape(tensor.shape);
    if (tensor.end > file_size - begin || tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      return Damaged(absl::StrFormat(
          "%s is %s%s, which needs %d bytes, but has the data_offsets [%d, %d], and the file "
          "has %d bytes of data",
          TensorName(name), type->name, shape.ToString(), *bytes, tensor.begin, tensor.end, file_size - begin));
    }
    tensors_[name] = {.name = name,
                      .dtype = type->dtype,
                      .dtype_name = std::string(type->tensorflow_name),
                      .shape = shape,
                      .num_bytes = *bytes,
                      .file = path(),
                      .offset = begin + tensor.begin};
  }
  RETURN_IF_ERROR(CheckOffsets(begin));
  for (auto& [key, text] : header->metadata) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, kSafetensorsString)) {
      metadata_[key] = std::move(text);
      continue;
    }
    StoredTensor tensor = {.name = std::string(name), .dtype_name = "string", .num_bytes = int64_t(text.size())};
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return Damaged(absl::StrCat(TensorName(name), " is there twice, as tensor and as string"));
    }
    strings_.emplace(name, std::move(text));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::CheckOffsets(int64_t begin) const {
  std::vector<const StoredTensor*> in_order;
  for (const auto& [name, tensor] : tensors_) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->offset, a->num_bytes) < std::pair(b->offset, b->num_bytes);
  });
  int64_t end = begin;
  for (const StoredTensor* tensor : in_order) {
    if (tensor->offset != end) {
      return Damaged(absl::StrFormat("%s begins at byte %d, but the bytes before it end at %d: there is %s",
                                     TensorName(tensor->name), tensor->offset, end,
                                     tensor->offset < end ? "an overlap" : "a gap"));
    }
    end += tensor->num_bytes;
  }
  if (end != file_->size()) {
    return Damaged(absl::StrFormat("holds %d bytes, but its tensors end at byte %d", file_->size(), end));
  }
  return absl::OkStatus();
}

std::vector<StoredTensor> SafetensorsReader::ListTensors() const {
  std::vector<StoredTensor> tensors;
  for (const auto& [name, tensor] : tensors_) tensors.push_back(tensor);
  return tensors;
}

std::optional<StoredTensor> SafetensorsReader::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? std::nullopt : std::optional(found->second);
}

absl::StatusOr<compute::Tensor> SafetensorsReader::Read(const std::string& name) const {
  const std::optional<StoredTensor> found = Find(name);
  if (!found) return NotThere(name);
  if (!found->dtype) {
    return absl::UnimplementedError(
        absl::StrCat(path(), ": ", TensorName(name), " is of type ", found->dtype_name, ", which is not supported"));
  }
  ASSIGN_OR_RETURN(compute::Tensor tensor, AllocateForReading({*found->dtype, found->shape}));
  RETURN_IF_ERROR(file_->Read(found->offset, found->num_bytes, tensor.raw_data()));
  if (*found->dtype == compute::DType::kBool) {
    const auto* const bytes = static_cast<const uint8_t*>(tensor.raw_data());
    if (std::any_of(bytes, bytes + tensor.num_bytes(), [](uint8_t byte) { return byte > 1; })) {
      return Damaged(absl::StrCat(TensorName(name), " is of type bool, but holds bytes other than 0 and 1"));
    }
  }
  return tensor;
}

absl::StatusOr<std::vector<std::string>> SafetensorsReader::ReadStrings(const std::string& name) const {
  const auto found = strings_.find(name);
  if (found == strings_.end()) return NotThere(name);
  return std::vector<std::string>{found->second};
}

absl::Status SafetensorsReader::Verify(const std::string& name) const {
  const std::optional<StoredTensor> found = Find(name);
  if (!found) return NotThere(name);
  if (found->file.empty()) return absl::OkStatus();
  std::string buffer(std::min(found->num_bytes, kVerifyBytes), '\0');
  for (int64_t done = 0; done < found->num_bytes; done += buffer.size()) {
    buffer.resize(std::min<int64_t>(found->num_bytes - done, buffer.size()));
    RETURN_IF_ERROR(file_->Read(found->offset + done, buffer.size(), buffer.data()));
  }
  return absl::OkStatus();
}

}  // namespace official::train
