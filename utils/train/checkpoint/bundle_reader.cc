#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/crc32c.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/run_files.h"
#include "utils/protos/bundle.pb.h"
#include "utils/protos/tensor_conversion.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/table_reader.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Shape;
using compute::Tensor;

// Limits far above what any model needs, so that a hostile file costs little memory.
constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxEntryBytes = 1 << 20;
constexpr size_t kMaxEntries = 1 << 20;
constexpr int kMaxRank = 254;  // TensorFlow's
constexpr int kMaxSlices = 1024;
constexpr int64_t kMaxStringTensorBytes = 64 << 20;
constexpr int64_t kMaxStrings = 1 << 20;  // in memory each takes more than the byte that it may have in the file
constexpr int64_t kVerifyBytes = 1 << 20;
constexpr int64_t kMaxVarintBytes = 9;  // of 63 bits, more than any length has
constexpr int64_t kMaxPadding = 4095;   // bytes, where tensors are aligned to pages

// Slices are stored under keys that begin with a zero byte, tensors under their names.
bool IsSliceKey(absl::string_view key) { return absl::StartsWith(key, absl::string_view("\0", 1)); }

// Bytes of an element; nothing for strings and other types whose elements have no fixed size.
std::optional<int64_t> ElementBytes(int data_type) {
  switch (data_type) {
    case tensorflow::DT_COMPLEX128:
      return 16;
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_INT64:
    case tensorflow::DT_UINT64:
    case tensorflow::DT_COMPLEX64:
      return 8;
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_INT32:
    case tensorflow::DT_UINT32:
    case tensorflow::DT_QINT32:
      return 4;
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
    case tensorflow::DT_INT16:
    case tensorflow::DT_UINT16:
    case tensorflow::DT_QINT16:
    case tensorflow::DT_QUINT16:
      return 2;
    case tensorflow::DT_INT8:
    case tensorflow::DT_UINT8:
    case tensorflow::DT_QINT8:
    case tensorflow::DT_QUINT8:
    case tensorflow::DT_BOOL:
    case tensorflow::DT_FLOAT8_E5M2:
    case tensorflow::DT_FLOAT8_E4M3FN:
      return 1;
    default:
      return std::nullopt;
  }
}

// The shape, if its sizes are known and neither it nor any part of it has more than 2^58 elements.
std::optional<Shape> CheckedShape(const tensorflow::TensorShapeProto& proto) {
  if (proto.unknown_rank() || proto.dim_size() > kMaxRank) return std::nullopt;
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (const auto& dim : proto.dim()) {
    if (dim.size() < 0) return std::nullopt;
    dims.push_back(dim.size());
    // A zero among the sizes must not hide that the product of the others overflows.
    if (__builtin_mul_overflow(product, std::max<int64_t>(dim.size(), 1), &product)) return std::nullopt;
  }
  if (product > int64_t{1} << 58) return std::nullopt;
  return Shape(dims);
}

// ---- Keys of slices: TensorFlow's ordered code, in which keys sort as the numbers in them do ----

void AppendOrderedString(absl::string_view value, std::string* key) {
  for (const char c : value) {
    key->push_back(c);
    if (c == '\0') key->push_back('\xff');
    if (c == '\xff') key->push_back('\0');
  }
  key->append("\0\1", 2);
}

// One byte that counts the significant bytes, then these, the highest first.
void AppendOrderedNumber(uint64_t value, std::string* key) {
  int size = 0;
  while (size < 8 && value >> (8 * size) != 0) ++size;
  key->push_back(static_cast<char>(size));
  for (int i = size - 1; i >= 0; --i) key->push_back(static_cast<char>(value >> (8 * i)));
}

// n bytes of two's complement, the highest first, hold -2^(7n-1) <= value < 2^(7n-1); the n highest bits of the whole
// are inverted.
void AppendOrderedSigned(int64_t value, std::string* key) {
  int size = 1;
  while (size < 10 && (value >> std::min(7 * size - 1, 63)) != (value < 0 ? -1 : 0)) ++size;
  for (int i = 0; i < size; ++i) {
    const int shift = 8 * (size - 1 - i);
    uint8_t byte = static_cast<uint8_t>(value >> std::min(shift, 63));
    const int inverted = std::clamp(size - 8 * i, 0, 8);
    byte ^= static_cast<uint8_t>(0xff00 >> inverted);
    key->push_back(static_cast<char>(byte));
  }
}

// ---- String tensors ----

bool TakeVarint(absl::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 63 && !bytes->empty(); shift += 7) {
    const uint8_t byte = bytes->front();
    bytes->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

std::string FixedBytes(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// The checksum `crc` extended by `size` bytes of a file, read in little memory.
absl::StatusOr<uint32_t> ExtendCrc(uint32_t crc, const files::RandomAccessFile& file, int64_t offset, int64_t size) {
  std::string buffer(std::min(size, kVerifyBytes), '\0');
  for (int64_t done = 0; done < size; done += buffer.size()) {
    buffer.resize(std::min<int64_t>(size - done, buffer.size()));
    RETURN_IF_ERROR(file.Read(offset + done, buffer.size(), buffer.data()));
    crc = files::Crc32c(buffer, crc);
  }
  return crc;
}

}  // namespace

std::string BundleReader::SliceKey(absl::string_view name, const Slice& slice) {
  std::string key;
  AppendOrderedNumber(0, &key);
  AppendOrderedString(name, &key);
  AppendOrderedNumber(slice.size(), &key);
  for (const Extent& extent : slice) {
    AppendOrderedSigned(extent.start, &key);
    AppendOrderedSigned(extent.length, &key);
  }
  return key;
}

absl::Status BundleReader::Damaged(absl::string_view key, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(prefix_, ".index: tensor \"", absl::CHexEscape(key), "\" ", what));
}

absl::Status BundleReader::Unsupported(absl::string_view key, absl::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(prefix_, ".index: tensor \"", absl::CHexEscape(key), "\" ", what));
}

absl::Status BundleReader::NotThere(absl::string_view name, absl::string_view what) const {
  return absl::NotFoundError(absl::StrCat(prefix_, ".index: there is no ", what, " \"", absl::CHexEscape(name), "\""));
}

absl::Status BundleReader::DamagedBytes(absl::string_view key, const Entry& entry, absl::string_view what) const {
  return absl::DataLossError(absl::StrFormat("%s: tensor \"%s\", %d bytes at offset %d: %s",
                                             shards_.at(entry.shard).file->path(), absl::CHexEscape(key), entry.size,
                                             entry.offset, what));
}

absl::Status BundleReader::WrongChecksum(absl::string_view key, const Entry& entry, uint32_t computed) const {
  return DamagedBytes(key, entry,
                      absl::StrFormat("Checksum does not match: stored %08x vs. calculated on the restored bytes %08x",
                                      entry.crc, computed));
}

// ---- Opening: everything that the index says is held against the files ----

BundleReader::BundleReader(std::string prefix) : prefix_(std::move(prefix)) {}

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(const std::string& prefix) {
  const std::string path = absl::StrCat(prefix, misc::kIndexSuffix);
  ASSIGN_OR_RETURN(const std::string table, files::ReadFile(path, kMaxIndexBytes));
  std::unique_ptr<BundleReader> reader(new BundleReader(prefix));
  RETURN_IF_ERROR(ReadTable(path, table, [&](absl::string_view key, absl::string_view value) {
    // The header has the empty key, the first of all.
    if (key.empty()) return reader->ReadHeader(value);
    return reader->AddEntry(key, value);
  }));
  if (reader->num_shards_ == 0) return absl::DataLossError(absl::StrCat(path, ": has no header entry"));
  for (const auto& [name, entry] : reader->entries_) {
    if (!entry.slices.empty()) RETURN_IF_ERROR(reader->CheckSlices(name, entry));
  }
  RETURN_IF_ERROR(reader->CheckShardSizes());
  return reader;
}

absl::Status BundleReader::ReadHeader(absl::string_view value) {
  const auto refused = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(prefix_, ".index: ", why));
  };
  tensorflow::BundleHeaderProto header;
  if (!header.ParseFromArray(value.data(), static_cast<int>(value.size())) || header.num_shards() < 1) {
    return refused("damaged header entry");
  }
  if (header.endianness() != tensorflow::BundleHeaderProto::LITTLE) {
    return refused("the checkpoint is of a big-endian machine, and cannot be read here");
  }
  if (header.version().min_consumer() > 1) {
    return refused(absl::StrCat("the format has version ", header.version().min_consumer(), "; 1 can be read"));
  }
  num_shards_ = header.num_shards();
  return absl::OkStatus();
}

absl::Status BundleReader::AddEntry(absl::string_view key, absl::string_view value) {
  tensorflow::BundleEntryProto proto;
  if (value.size() > kMaxEntryBytes || !proto.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return Damaged(key, "has a damaged entry");
  }
  if (entries_.size() == kMaxEntries) {
    return absl::UnimplementedError(
        absl::StrCat(prefix_, ".index: names more than ", kMaxEntries, " tensors, which is the most that can be read"));
  }
  std::optional<Shape> shape = CheckedShape(proto.shape());
  if (!shape.has_value()) return Damaged(key, "has an impossible shape");
  Entry entry = {.data_type = proto.dtype(),
                 .shape = *std::move(shape),
                 .shard = proto.shard_id(),
                 .offset = proto.offset(),
                 .size = proto.size(),
                 .crc = proto.crc32c(),
                 .slices = {}};
  if (proto.slices_size() > kMaxSlices) {
    return Unsupported(
        key, absl::StrFormat("is saved in %d slices; at most %d can be read", proto.slices_size(), kMaxSlices));
  }
  for (const tensorflow::TensorSliceProto& slice_proto : proto.slices()) {
    Slice slice;
    for (const auto& extent : slice_proto.extent()) {
      slice.push_back({extent.start(), extent.has_length_case() ? extent.length() : -1});
    }
    entry.slices.push_back(std::move(slice));
  }
  if (entry.slices.empty()) RETURN_IF_ERROR(CheckExtent(key, entry));
  entries_.emplace_hint(entries_.end(), std::string(key), std::move(entry));
  return absl::OkStatus();
}

// The tensor's bytes must lie within its data file, and be as many as its type says.
absl::Status BundleReader::CheckExtent(absl::string_view key, const Entry& entry) {
  if (const std::optional<int64_t> element_bytes = ElementBytes(entry.data_type)) {
    const int64_t bytes = *element_bytes * entry.shape.num_elements();
    if (entry.size != bytes) {
      return Damaged(key, absl::StrFormat("is %s%s, which needs %d bytes, but %d are stored",
                                          DataTypeName(static_cast<tensorflow::DataType>(entry.data_type)),
                                          entry.shape.ToString(), bytes, entry.size));
    }
  }
  if (entry.shard < 0 || entry.shard >= num_shards_) {
    return Damaged(key, absl::StrFormat("is in data file %d of %d", entry.shard, num_shards_));
  }
  Shard& shard = shards_[entry.shard];
  if (shard.file == nullptr) {
    ASSIGN_OR_RETURN(shard.file, files::RandomAccessFile::Open(
                                     absl::StrFormat("%s.data-%05d-of-%05d", prefix_, entry.shard, num_shards_)));
    shard.bytes_left = shard.file->size();
  }
  const int64_t file_size = shard.file->size();
  if (entry.offset < 0 || entry.size < 0 || entry.offset > file_size || entry.size > file_size - entry.offset) {
    return Damaged(key, absl::StrFormat("has %d bytes at offset %d of %s, which holds %d", entry.size, entry.offset,
                                        shard.file->path(), file_size));
  }
  if (entry.size > shard.bytes_left) return Damaged(key, "shares bytes of its data file with another tensor");
  shard.bytes_left -= entry.size;
  shard.end = std::max(shard.end, entry.offset + entry.size);
  return absl::OkStatus();
}

// TensorFlow may align tensors: it then fills up with zeros behind each, also behind the last.
absl::Status BundleReader::CheckShardSizes() const {
  for (const auto& [number, shard] : shards_) {
    const int64_t num_behind = shard.file->size() - shard.end;
    if (num_behind <= kMaxPadding) {
      std::string behind(num_behind, 'x');
      RETURN_IF_ERROR(shard.file->Read(shard.end, num_behind, behind.data()));
      if (behind.find_first_not_of('\0') == std::string::npos) continue;
    }
    return absl::DataLossError(absl::StrFormat("%s holds %d bytes, but its tensors end at byte %d, as %s.index says",
                                               shard.file->path(), shard.file->size(), shard.end, prefix_));
  }
  return absl::OkStatus();
}

// The slices must be there, have the variable's type, and cover each of its elements once.
absl::Status BundleReader::CheckSlices(const std::string& name, const Entry& entry) const {
  int64_t covered = 0;
  std::vector<Slice> resolved;  // with lengths in place of -1
  for (const Slice& slice : entry.slices) {
    if (slice.size() != entry.shape.rank()) return Damaged(name, "has a slice of another rank");
    const auto part = entries_.find(SliceKey(name, slice));
    if (part == entries_.end()) return Damaged(name, "is missing one of its slices");
    if (part->second.data_type != entry.data_type || !part->second.slices.empty() ||
        part->second.shape.rank() != entry.shape.rank()) {
      return Damaged(name, "has a slice of another type");
    }
    Slice whole = slice;
    for (int i = 0; i < entry.shape.rank(); ++i) {
      Extent& extent = whole[i];
      const int64_t size = entry.shape.dim(i);
      if (extent.length == -1) extent = {0, size};
      if (extent.start < 0 || extent.length < 0 || extent.start > size || extent.length > size - extent.start ||
          extent.length != part->second.shape.dim(i)) {
        return Damaged(name, "has a slice that does not fit into it");
      }
    }
    for (const Slice& other : resolved) {
      bool disjoint = false;
      for (int i = 0; i < whole.size(); ++i) {
        disjoint |=
            whole[i].start >= other[i].start + other[i].length || other[i].start >= whole[i].start + whole[i].length;
      }
      if (!disjoint) return Damaged(name, "has slices that overlap");
    }
    covered += part->second.shape.num_elements();  // cannot overflow: the slices so far are disjoint
    resolved.push_back(std::move(whole));
  }
  if (covered != entry.shape.num_elements()) return Damaged(name, "is not covered by its slices");
  return absl::OkStatus();
}

// ---- Reading ----

std::optional<StoredTensor> BundleReader::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end() || IsSliceKey(name)) return std::nullopt;
  const Entry& entry = found->second;
  const auto data_type = static_cast<tensorflow::DataType>(entry.data_type);
  StoredTensor tensor = {.name = name,
                         .dtype = ToDType(data_type),
                         .dtype_name = DataTypeName(data_type),
                         .shape = entry.shape,
                         .num_bytes = entry.size};
  if (entry.slices.empty()) {
    tensor.file = shards_.at(entry.shard).file->path();
    tensor.offset = entry.offset;
  }
  for (const Slice& slice : entry.slices) tensor.num_bytes += entries_.at(SliceKey(name, slice)).size;
  return tensor;
}

std::vector<StoredTensor> BundleReader::ListTensors() const {
  std::vector<StoredTensor> tensors;
  for (const auto& [key, entry] : entries_) {
    if (std::optional<StoredTensor> tensor = Find(key)) tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<Tensor> BundleReader::Read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotThere(name, "tensor");
  const Entry& entry = found->second;
  const auto data_type = static_cast<tensorflow::DataType>(entry.data_type);
  const std::optional<DType> dtype = ToDType(data_type);
  if (!dtype.has_value()) {
    return Unsupported(name, absl::StrCat("is of type ", DataTypeName(data_type), ", which is not supported"));
  }
  ASSIGN_OR_RETURN(Tensor tensor, AllocateForReading({*dtype, entry.shape}));
  RETURN_IF_ERROR(entry.slices.empty() ? ReadBytes(name, entry, tensor.raw_data()) : ReadSlices(name, entry, tensor));
  if (*dtype == DType::kBool) {
    const auto* const bytes = static_cast<const uint8_t*>(tensor.raw_data());
    if (std::any_of(bytes, bytes + tensor.num_bytes(), [](uint8_t byte) { return byte > 1; })) {
      return Damaged(name, "is of type bool, but holds bytes other than 0 and 1");
    }
  }
  return tensor;
}

absl::Status BundleReader::ReadBytes(absl::string_view key, const Entry& entry, void* destination) const {
  RETURN_IF_ERROR(shards_.at(entry.shard).file->Read(entry.offset, entry.size, destination));
  const uint32_t crc = files::MaskCrc(files::Crc32c({static_cast<const char*>(destination), size_t(entry.size)}));
  return crc == entry.crc ? absl::OkStatus() : WrongChecksum(key, entry, crc);
}

absl::Status BundleReader::ReadSlices(const std::string& name, const Entry& entry, const Tensor& tensor) const {
  const int64_t element_bytes = SizeOf(tensor.dtype());
  const int rank = entry.shape.rank();
  for (const Slice& slice : entry.slices) {
    const std::string key = SliceKey(name, slice);
    const Entry& part = entries_.at(key);
    if (part.size == 0) continue;
    ASSIGN_OR_RETURN(const Tensor bytes, AllocateForReading({tensor.dtype(), part.shape}));
    RETURN_IF_ERROR(ReadBytes(key, part, bytes.raw_data()));

    // Dimensions from `inner` on lie in one piece in the variable: all but the first of these are covered whole.
    int inner = rank;
    while (inner > 0 && (inner == rank || part.shape.dim(inner) == entry.shape.dim(inner))) --inner;
    const int64_t piece_bytes = part.shape.Product(inner, rank) * element_bytes;
    const int64_t num_pieces = part.shape.Product(0, inner);
    for (int64_t piece = 0; piece < num_pieces; ++piece) {
      int64_t element = 0;  // of the variable, at which the piece begins
      int64_t rest = piece;
      for (int i = rank - 1; i >= 0; --i) {
        const int64_t start = slice[i].length == -1 ? 0 : slice[i].start;
        const int64_t index = i < inner ? rest % part.shape.dim(i) : 0;
        if (i < inner) rest /= part.shape.dim(i);
        element += (start + index) * entry.shape.Product(i + 1, rank);
      }
      std::memcpy(static_cast<char*>(tensor.raw_data()) + element * element_bytes,
                  static_cast<const char*>(bytes.raw_data()) + piece * piece_bytes, piece_bytes);
    }
  }
  return absl::OkStatus();
}

// The bytes of a string tensor (lengths, checksum of the lengths, strings), everything in them verified.
absl::StatusOr<std::string> BundleReader::ReadStringBytes(absl::string_view key, const Entry& entry) const {
  if (entry.size > kMaxStringTensorBytes) {
    return Unsupported(
        key, absl::StrFormat("has %d bytes of strings; at most %d can be read", entry.size, kMaxStringTensorBytes));
  }
  const absl::Status damaged = DamagedBytes(key, entry, "damaged strings");
  std::string bytes(entry.size, '\0');
  RETURN_IF_ERROR(shards_.at(entry.shard).file->Read(entry.offset, entry.size, bytes.data()));
  absl::string_view rest = bytes;
  uint32_t crc = 0;
  uint64_t sum_of_lengths = 0;
  for (int64_t i = 0; i < entry.shape.num_elements(); ++i) {
    uint64_t length;
    if (!TakeVarint(&rest, &length) || length > rest.size()) return damaged;
    sum_of_lengths += length;
    crc = files::Crc32c(FixedBytes(length, 4), crc);  // 8 bytes for 4 GiB and more, which are not read
  }
  if (rest.size() < 4 || sum_of_lengths != rest.size() - 4) return damaged;
  if (rest.substr(0, 4) != FixedBytes(files::MaskCrc(crc), 4)) return damaged;
  crc = files::MaskCrc(files::Crc32c(rest, crc));
  if (crc != entry.crc) return WrongChecksum(key, entry, crc);
  return bytes;
}

absl::StatusOr<std::vector<std::string>> BundleReader::ReadStrings(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.data_type != tensorflow::DT_STRING) {
    return NotThere(name, "string tensor");
  }
  if (!found->second.slices.empty()) {
    return Unsupported(name, "is a string tensor saved in slices, which cannot be read");
  }
  ASSIGN_OR_RETURN(const std::string bytes, ReadStringBytes(name, found->second));
  const int64_t num_strings = found->second.shape.num_elements();
  if (num_strings > kMaxStrings) {
    return Unsupported(name, absl::StrFormat("has %d strings; at most %d can be read", num_strings, kMaxStrings));
  }
  uint64_t length;
  absl::string_view strings = bytes;
  for (int64_t i = 0; i < num_strings; ++i) TakeVarint(&strings, &length);
  strings.remove_prefix(4);
  absl::string_view lengths = bytes;
  std::vector<std::string> values;
  values.reserve(num_strings);
  for (int64_t i = 0; i < num_strings; ++i) {
    TakeVarint(&lengths, &length);
    values.emplace_back(strings.substr(0, length));
    strings.remove_prefix(length);
  }
  return values;
}

absl::Status BundleReader::VerifyBytes(absl::string_view key, const Entry& entry) const {
  ASSIGN_OR_RETURN(uint32_t crc, ExtendCrc(0, *shards_.at(entry.shard).file, entry.offset, entry.size));
  crc = files::MaskCrc(crc);
  return crc == entry.crc ? absl::OkStatus() : WrongChecksum(key, entry, crc);
}

// A variant is stored as its length (varint), its bytes and the masked checksum of all that is before it. The checksums
// take a length as 8 bytes.
absl::Status BundleReader::VerifyVariants(absl::string_view key, const Entry& entry) const {
  const files::RandomAccessFile& file = *shards_.at(entry.shard).file;
  const absl::Status damaged = DamagedBytes(key, entry, "damaged variants");
  const int64_t end = entry.offset + entry.size;
  int64_t offset = entry.offset;
  uint32_t crc = 0;
  for (int64_t i = 0; i < entry.shape.num_elements(); ++i) {
    char head[kMaxVarintBytes];
    const int64_t head_bytes = std::min(end - offset, kMaxVarintBytes);
    RETURN_IF_ERROR(file.Read(offset, head_bytes, head));
    absl::string_view rest(head, head_bytes);
    uint64_t length;
    if (!TakeVarint(&rest, &length)) return damaged;
    offset += head_bytes - static_cast<int64_t>(rest.size());
    if (end - offset < 4 || length > static_cast<uint64_t>(end - offset - 4)) return damaged;
    const int64_t bytes = static_cast<int64_t>(length) + 4;
    ASSIGN_OR_RETURN(crc, ExtendCrc(files::Crc32c(FixedBytes(length, 8), crc), file, offset, bytes));
    offset += bytes;
  }
  if (offset != end) return damaged;
  crc = files::MaskCrc(crc);
  return crc == entry.crc ? absl::OkStatus() : WrongChecksum(key, entry, crc);
}

absl::Status BundleReader::VerifyEntry(absl::string_view key, const Entry& entry) const {
  if (entry.data_type == tensorflow::DT_STRING) return ReadStringBytes(key, entry).status();
  return entry.data_type == tensorflow::DT_VARIANT ? VerifyVariants(key, entry) : VerifyBytes(key, entry);
}

absl::Status BundleReader::Verify(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotThere(name, "tensor");
  if (found->second.slices.empty()) return VerifyEntry(name, found->second);
  for (const Slice& slice : found->second.slices) {
    const std::string key = SliceKey(name, slice);
    RETURN_IF_ERROR(VerifyEntry(key, entries_.at(key)));
  }
  return absl::OkStatus();
}

absl::Status BundleReader::VerifyChecksums() const {
  int64_t num_bytes = 0;
  for (const auto& [key, entry] : entries_) num_bytes += entry.slices.empty() ? entry.size : 0;
  logs::TaskProgress progress(
      {.title = absl::StrCat("verifying ", prefix_.substr(prefix_.rfind('/') + 1)), .total = num_bytes, .unit = "B"});
  for (const auto& [key, entry] : entries_) {
    if (!entry.slices.empty()) continue;
    RETURN_IF_ERROR(VerifyEntry(key, entry));
    progress.Add(entry.size);
  }
  return absl::OkStatus();
}

}  // namespace official::train
