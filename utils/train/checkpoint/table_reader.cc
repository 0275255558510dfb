// The format:
//   file   = data block*, metaindex block, index block, footer
//   block  = contents, type (1 byte), masked crc32c of both (4 bytes)
//   contents = entry*, restart offset (4 bytes)*, number of restarts (4 bytes)
//   entry  = varint shared, varint unshared, varint value length, last `unshared` bytes of the key, value
//   footer = handle of the metaindex, handle of the index, padding to 40 bytes, magic (8 bytes)
//   handle = varint offset, varint size
// A key begins with the first `shared` bytes of the key before it in its block. Each entry of the index has a handle of
// a data block as value. The restarts (entries whose key is stored whole) serve searches, which are not needed here.
#include "utils/train/checkpoint/table_reader.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/crc32c.h"

namespace official::train {
namespace {

constexpr size_t kFooterBytes = 48;
constexpr size_t kTrailerBytes = 5;
constexpr uint64_t kMagic = 0xdb4775248b80fb57;
// Prefixes make keys cheap: a small file could ask for terabytes of them. Real names sum up to a few megabytes.
constexpr uint64_t kMaxSumOfKeyBytes = 128 << 20;

template <typename T>
T GetFixed(absl::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// Takes a varint off the front of `bytes`; false if there is no whole one, or one of more than 64 bits.
bool TakeVarint(absl::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const uint8_t byte = bytes->front();
    bytes->remove_prefix(1);
    if (shift == 63 && byte > 1) return false;
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

struct Handle {
  uint64_t offset;
  uint64_t size;
};

bool TakeHandle(absl::string_view* bytes, Handle* handle) {
  return TakeVarint(bytes, &handle->offset) && TakeVarint(bytes, &handle->size);
}

using Visitor = absl::FunctionRef<absl::Status(absl::string_view key, absl::string_view value)>;

class TableReader {
 public:
  TableReader(absl::string_view path, absl::string_view bytes) : path_(path), bytes_(bytes) {}
  absl::Status Read(Visitor visit);

 private:
  // The keys of one sequence of blocks, which ascend.
  struct Keys {
    std::string last;
    uint64_t sum_of_bytes = 0;
    bool none = true;
  };

  absl::Status Damaged(absl::string_view what) const { return absl::DataLossError(absl::StrCat(path_, ": ", what)); }
  absl::StatusOr<absl::string_view> BlockContents(const Handle& handle) const;
  absl::Status ReadBlock(const Handle& handle, Keys& keys, Visitor visit) const;

  absl::string_view path_;
  absl::string_view bytes_;
};

absl::StatusOr<absl::string_view> TableReader::BlockContents(const Handle& handle) const {
  if (handle.offset > bytes_.size() || handle.size > bytes_.size() - handle.offset ||
      bytes_.size() - handle.offset - handle.size < kTrailerBytes) {
    return Damaged(absl::StrFormat("a block of %d bytes at offset %d passes the end of the file (%d bytes)",
                                   handle.size, handle.offset, bytes_.size()));
  }
  const absl::string_view trailer = bytes_.substr(handle.offset + handle.size, kTrailerBytes);
  const uint32_t stored = GetFixed<uint32_t>(trailer.substr(1));
  const uint32_t computed = files::MaskCrc(files::Crc32c(bytes_.substr(handle.offset, handle.size + 1)));
  if (stored != computed) {
    return Damaged(absl::StrFormat("the checksum of the block at offset %d is %08x, stored is %08x", handle.offset,
                                   computed, stored));
  }
  if (trailer[0] != 0) {
    return Damaged(absl::StrFormat("the block at offset %d is compressed (type %d), which checkpoints are not",
                                   handle.offset, static_cast<uint8_t>(trailer[0])));
  }
  return bytes_.substr(handle.offset, handle.size);
}

absl::Status TableReader::ReadBlock(const Handle& handle, Keys& keys, Visitor visit) const {
  ASSIGN_OR_RETURN(absl::string_view entries, BlockContents(handle));
  const auto damaged = [&](absl::string_view what) {
    return Damaged(absl::StrCat(what, " in the block at offset ", handle.offset));
  };
  if (entries.size() < 4) return damaged("no number of restarts");
  const uint64_t num_restarts = GetFixed<uint32_t>(entries.substr(entries.size() - 4));
  if (num_restarts > entries.size() / 4 - 1) return damaged("too many restarts");
  entries.remove_suffix(4 + 4 * num_restarts);

  std::string key;
  while (!entries.empty()) {
    uint64_t shared, unshared, value_size;
    if (!TakeVarint(&entries, &shared) || !TakeVarint(&entries, &unshared) || !TakeVarint(&entries, &value_size)) {
      return damaged("a cut entry");
    }
    if (shared > key.size() || unshared > entries.size() || value_size > entries.size() - unshared) {
      return damaged("an entry of impossible size");
    }
    key.resize(shared);
    key.append(entries.data(), unshared);
    keys.sum_of_bytes += key.size();
    if (keys.sum_of_bytes > kMaxSumOfKeyBytes) return damaged("more than 128 MiB of keys up to one");
    if (!keys.none && key <= keys.last) return damaged("keys that do not ascend");
    keys.none = false;
    keys.last = key;
    RETURN_IF_ERROR(visit(key, entries.substr(unshared, value_size)));
    entries.remove_prefix(unshared + value_size);
  }
  return absl::OkStatus();
}

absl::Status TableReader::Read(Visitor visit) {
  if (bytes_.size() < kFooterBytes) {
    return Damaged(absl::StrCat("holds ", bytes_.size(), " bytes, less than the end of any index has"));
  }
  absl::string_view footer = bytes_.substr(bytes_.size() - kFooterBytes);
  if (GetFixed<uint64_t>(footer.substr(kFooterBytes - 8)) != kMagic) {
    return Damaged("is not the index of a checkpoint (bad magic number), or is cut off");
  }
  Handle metaindex, index;
  if (!TakeHandle(&footer, &metaindex) || !TakeHandle(&footer, &index)) return Damaged("damaged footer");

  Keys index_keys, keys;
  uint64_t end_of_blocks = 0;
  return ReadBlock(index, index_keys, [&](absl::string_view, absl::string_view value) {
    Handle block;
    if (!TakeHandle(&value, &block)) return Damaged("damaged handle of a block");
    // Blocks follow each other: without this rule an index could name a large one without end.
    if (block.offset < end_of_blocks) return Damaged("blocks that overlap");
    RETURN_IF_ERROR(ReadBlock(block, keys, visit));
    end_of_blocks = block.offset + block.size + kTrailerBytes;
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status ReadTable(absl::string_view path, absl::string_view bytes, Visitor visit) {
  return TableReader(path, bytes).Read(visit);
}

}  // namespace official::train
