#include "utils/train/checkpoint/table_reader.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "utils/train/checkpoint/test_table.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using namespace test_table;

using Entries = std::vector<std::pair<std::string, std::string>>;

absl::Status Read(const std::string& bytes, Entries* entries = nullptr) {
  return ReadTable("x.index", bytes, [&](absl::string_view key, absl::string_view value) {
    if (entries != nullptr) entries->emplace_back(key, value);
    return absl::OkStatus();
  });
}

void CheckDamaged(const std::string& bytes, const std::string& why) {
  const absl::Status status = Read(bytes);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains("x.index: ") && Contains(why));
}

TEST_CASE("Entries of several blocks come in order, with shared prefixes restored") {
  const std::string first = Block(Entry(0, "", "header") + Entry(0, "dense/bias", "b") + Entry(6, "kernel", "k"));
  const std::string second = Block(Entry(0, "global_step", ""));
  const std::string index =
      Entry(0, "e", Handle(0, first.size() - 5)) + Entry(0, "h", Handle(first.size(), second.size() - 5));
  Entries entries;
  CHECK(Read(Table(first + second, index), &entries).ok());
  CHECK(entries == Entries{{"", "header"}, {"dense/bias", "b"}, {"dense/kernel", "k"}, {"global_step", ""}});
}

TEST_CASE("Files that are not tables are reported") {
  CheckDamaged("", "holds 0 bytes");
  CheckDamaged(std::string(48, 'x'), "bad magic number");
  CheckDamaged("PK" + std::string(1000, 'x'), "bad magic number");
  std::string endless_varint(40, '\xff');
  CheckDamaged(endless_varint + "\x57\xfb\x80\x8b\x24\x75\x47\xdb", "damaged footer");
}

TEST_CASE("Sizes are never believed") {
  // These crash LevelDB's own reader, though every checksum is right.
  const std::string block = Block(Entry(0, "key", "value"));
  for (const uint64_t size : {~uint64_t{0}, ~uint64_t{0} - 1, ~uint64_t{0} - 3, ~uint64_t{0} - 4, uint64_t{40} << 30,
                              uint64_t{block.size()} + 1000}) {
    CheckDamaged(block + Footer(Handle(0, size)), "passes the end of the file");
    CheckDamaged(block + Footer(Handle(size, 8)), "passes the end of the file");
    CheckDamaged(Table(block, Entry(0, "z", Handle(0, size))), "passes the end of the file");
    CheckDamaged(Table(block, Entry(0, "z", Handle(size, size))), "passes the end of the file");
  }
  const auto one_block = [](const std::string& sealed) {
    return Table(sealed, Entry(0, "z", Handle(0, sealed.size() - 5)));
  };
  CheckDamaged(one_block(Seal("")), "no number of restarts");
  CheckDamaged(one_block(Seal(Fixed32(1))), "too many restarts");
  CheckDamaged(one_block(Seal(Fixed32(0) + Fixed32(0xffffffff))), "too many restarts");
  CheckDamaged(one_block(Block(Varint(0) + Varint(3))), "a cut entry");
  CheckDamaged(one_block(Block(Varint(1) + Varint(1) + Varint(0) + "k")), "an entry of impossible size");
  CheckDamaged(one_block(Block(Varint(0) + Varint(9) + Varint(0) + "k")), "an entry of impossible size");
  CheckDamaged(one_block(Block(Varint(0) + Varint(1) + Varint(~uint64_t{0}) + "k")), "an entry of impossible size");
  CheckDamaged(one_block(Block(Entry(0, "b", "") + Entry(0, "a", ""))), "keys that do not ascend");
  CheckDamaged(one_block(Block(Entry(0, "b", "") + Entry(1, "", ""))), "keys that do not ascend");
  CheckDamaged(one_block(Seal(Fixed32(0) + Fixed32(1), 1)), "is compressed (type 1)");
}

TEST_CASE("A small file cannot ask for endless work") {
  const std::string block = Block(Entry(0, "key", "value"));
  const std::string handle = Handle(0, block.size() - 5);
  CheckDamaged(Table(block, Entry(0, "a", handle) + Entry(0, "b", handle)), "blocks that overlap");

  // Each entry of four bytes asks for a key of a megabyte.
  std::string entries = Entry(0, std::string(1 << 20, 'k'), "");
  for (int i = 1; i < 200; ++i) entries += Entry((1 << 20) - 1, std::string(1, static_cast<char>('k' + i)), "");
  const std::string bomb = Block(entries);
  CheckDamaged(Table(bomb, Entry(0, "z", Handle(0, bomb.size() - 5))), "in the block");
}

TEST_CASE("Every changed byte of a block, and every cut, is an error") {
  const std::string bytes = Table({{"", "header"}, {"a", "1"}, {"b", std::string(100, '2')}});
  for (size_t i = 0; i < bytes.size(); ++i) {
    INFO(i);
    CHECK(absl::IsDataLoss(Read(bytes.substr(0, i))));
    std::string changed = bytes;
    changed[i] ^= 0x20;
    const bool unused = i >= bytes.size() - 48 && i < bytes.size() - 8;  // the footer has no checksum, but padding
    if (!unused) CHECK(absl::IsDataLoss(Read(changed)));
  }
}

TEST_CASE("Random bytes between right checksums are read or refused, whatever they are") {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string contents(random() % 64, '\0');
    for (char& byte : contents) byte = static_cast<char>(random() % (round % 2 ? 256 : 8));
    const std::string block = Seal(contents);
    (void)Read(Table(block, Entry(0, "z", Handle(0, block.size() - 5)))).ok();
    (void)Read(block + Footer(Handle(0, block.size() - 5))).ok();
  }
  SUCCEED();
}

}  // namespace
}  // namespace official::train
