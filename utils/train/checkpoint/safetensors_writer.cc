#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/safetensors.h"
#include "utils/train/checkpoint/safetensors_types.h"

namespace official::train {
namespace {

using Item = std::pair<const std::string, SafetensorsTensor>;

constexpr size_t kAlignment = 8;

// The place of a type in kSafetensorsTypes.
size_t TypeIndex(compute::DType dtype) {
  size_t index = 0;
  while (kSafetensorsTypes[index].dtype != dtype) ++index;
  return index;
}

absl::StatusOr<std::string> Quoted(absl::string_view text) {
  if (!misc::IsUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", misc::Printable(text), "\" is not UTF-8, which safetensors needs; rename it"));
  }
  return nlohmann::json(std::string(text)).dump();
}

// The member of the header; nothing if there is no metadata.
absl::StatusOr<std::vector<std::string>> MetadataJson(const std::map<std::string, std::string>& strings,
                                                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, std::string> all = metadata;
  for (const auto& [name, text] : strings) all[absl::StrCat(kSafetensorsString, name)] = text;
  std::vector<std::string> members;
  for (const auto& [key, text] : all) {
    ASSIGN_OR_RETURN(const std::string quoted_key, Quoted(key));
    ASSIGN_OR_RETURN(const std::string quoted_text, Quoted(text));
    members.push_back(absl::StrCat(quoted_key, ":", quoted_text));
  }
  if (members.empty()) return members;
  return std::vector{absl::StrCat("\"", kSafetensorsMetadata, "\":{", absl::StrJoin(members, ","), "}")};
}

// In the order of the bytes.
std::vector<const Item*> InOrder(const std::map<std::string, SafetensorsTensor>& tensors) {
  std::vector<const Item*> items;
  for (const Item& item : tensors) items.push_back(&item);
  std::stable_sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    return TypeIndex(a->second.type.dtype) < TypeIndex(b->second.type.dtype);
  });
  return items;
}

absl::StatusOr<std::string> HeaderJson(absl::Span<const Item* const> items, std::vector<std::string> members) {
  int64_t end = 0;
  for (const Item* const item : items) {
    const auto& [name, tensor] = *item;
    if (name == kSafetensorsMetadata) {
      return absl::InvalidArgumentError(absl::StrCat("safetensors has no tensor \"", name, "\"; rename it"));
    }
    ASSIGN_OR_RETURN(const std::string quoted, Quoted(name));
    const int64_t begin = end;
    end += tensor.type.num_bytes();
    members.push_back(absl::StrCat(quoted, ":{\"dtype\":\"", kSafetensorsTypes[TypeIndex(tensor.type.dtype)].name,
                                   "\",\"shape\":[", absl::StrJoin(tensor.type.shape.dims(), ","),
                                   "],\"data_offsets\":[", begin, ",", end, "]}"));
  }
  std::string json = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return json;
}

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& strings,
                              const std::map<std::string, std::string>& metadata) {
  const std::vector<const Item*> items = InOrder(tensors);
  ASSIGN_OR_RETURN(std::vector<std::string> members, MetadataJson(strings, metadata));
  ASSIGN_OR_RETURN(const std::string header, HeaderJson(items, std::move(members)));
  RETURN_IF_ERROR(files::CheckRegularOrMissing(path));
  ASSIGN_OR_RETURN(const auto file, files::AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(absl::StrCat(LittleEndian(header.size()), header)));
  for (const Item* const item : items) {
    ASSIGN_OR_RETURN(const compute::Tensor tensor, item->second.read());
    OFFICIAL_CHECK(tensor.type() == item->second.type) << item->first << " is " << tensor.type().ToString();
    RETURN_IF_ERROR(file->Append({static_cast<const char*>(tensor.raw_data()), size_t(tensor.num_bytes())}));
  }
  RETURN_IF_ERROR(file->Finish());
  RETURN_IF_ERROR(file->Publish());
  return files::SyncDirectory(files::DirectoryOf(path));
}

}  // namespace official::train
