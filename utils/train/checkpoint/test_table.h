// Hand-made tables, also damaged ones, for tests of their readers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "utils/files/crc32c.h"

namespace official::train::test_table {

inline std::string Fixed32(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

inline std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Returns an entry that takes `shared` bytes of its key from the one before.
inline std::string Entry(uint64_t shared, const std::string& suffix, const std::string& value) {
  return Varint(shared) + Varint(suffix.size()) + Varint(value.size()) + suffix + value;
}

// Returns the contents of a block with its type and the correct checksum.
inline std::string Seal(std::string contents, char type = 0) {
  contents.push_back(type);
  return contents + Fixed32(files::MaskCrc(files::Crc32c(contents)));
}

inline std::string Block(const std::string& entries, uint32_t num_restarts = 1) {
  std::string restarts;
  for (uint32_t i = 0; i < num_restarts; ++i) restarts += Fixed32(0);
  return Seal(entries + restarts + Fixed32(num_restarts));
}

inline std::string Handle(uint64_t offset, uint64_t size) { return Varint(offset) + Varint(size); }

inline std::string Footer(const std::string& index_handle) {
  std::string footer = Handle(0, 0) + index_handle;
  footer.resize(40, '\0');
  return footer + "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
}

// Returns a table: `blocks`, an index block of the entries `index`, and the footer.
inline std::string Table(const std::string& blocks, const std::string& index) {
  const std::string index_block = Block(index);
  return blocks + index_block + Footer(Handle(blocks.size(), index_block.size() - 5));
}

// Returns a table of one block.
inline std::string Table(const std::map<std::string, std::string>& entries) {
  std::string bytes;
  for (const auto& [key, value] : entries) bytes += Entry(0, key, value);
  const std::string block = Block(bytes);
  return Table(block, Entry(0, "\xff", Handle(0, block.size() - 5)));
}

}  // namespace official::train::test_table
