// The input is a checkpoint: the size of the index (2 bytes, little-endian), the index, the data file. It is read as it
// is, and once more as entries (size of the name, size of the value, name, value) in an index whose checksums are
// right, up to one with a name of 255 bytes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/files/crc32c.h"
#include "utils/fuzzing/memory_file.h"
#include "utils/protos/bundle.pb.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/test_table.h"

namespace {

using official::fuzzing::MemoryFile;
using official::train::BundleReader;

// Where the two files of a bundle get their names. One for all inputs.
const std::string& Directory() {
  static const std::string* const directory = [] {
    const char* parent = std::getenv("TEST_TMPDIR");
    std::string name = absl::StrCat(parent ? parent : "/tmp", "/bundle_fuzz-XXXXXX");
    OFFICIAL_CHECK(mkdtemp(name.data()) != nullptr) << name;
    std::atexit([] { rmdir(Directory().c_str()); });
    return new std::string(name);
  }();
  return *directory;
}

class NamedFile {
 public:
  NamedFile(std::string name, absl::string_view bytes) : file_(bytes), name_(std::move(name)) {
    unlink(name_.c_str());
    OFFICIAL_CHECK(symlink(file_.path().c_str(), name_.c_str()) == 0) << name_;
  }
  ~NamedFile() { unlink(name_.c_str()); }

 private:
  MemoryFile file_;
  std::string name_;
};

bool IsExpected(const absl::Status& status) {
  // NotFound: a shard that is not there. Unimplemented: a limit of the reader, or a type that it does not read.
  return status.ok() || absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsUnimplemented(status);
}

void Read(absl::string_view index, absl::string_view data) {
  const std::string prefix = Directory() + "/input";
  const NamedFile index_file(prefix + ".index", index), data_file(prefix + ".data-00000-of-00001", data);
  const auto reader = BundleReader::Open(prefix);
  OFFICIAL_CHECK(IsExpected(reader.status())) << reader.status();
  if (!reader.ok()) return;
  const absl::Status checksums = (*reader)->VerifyChecksums();
  OFFICIAL_CHECK(IsExpected(checksums)) << checksums;
  for (const auto& tensor : (*reader)->ListTensors()) {
    const auto value = (*reader)->Read(tensor.name);
    OFFICIAL_CHECK(IsExpected(value.status())) << value.status();
    OFFICIAL_CHECK(!value.ok() || value->shape() == tensor.shape);
    const auto strings = (*reader)->ReadStrings(tensor.name);
    OFFICIAL_CHECK(IsExpected(strings.status())) << strings.status();
  }
}

// The value with the checksum that its bytes in the data file have, where it is an entry with such bytes.
std::string WithChecksum(const std::string& value, absl::string_view data) {
  tensorflow::BundleEntryProto entry;
  if (!entry.ParseFromString(value) || entry.offset() < 0 || entry.size() < 0 || entry.offset() > data.size() ||
      entry.size() > data.size() - entry.offset()) {
    return value;
  }
  entry.set_crc32c(official::files::MaskCrc(official::files::Crc32c(data.substr(entry.offset(), entry.size()))));
  return entry.SerializeAsString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view rest = official::fuzzing::AsBytes(data, size);
  if (size >= 2) {
    const size_t index_size = std::min<size_t>(data[0] | data[1] << 8, size - 2);
    Read(rest.substr(2, index_size), rest.substr(2 + index_size));
  }
  std::map<std::string, std::string> entries;
  while (rest.size() >= 2 && rest[0] != '\xff') {
    const size_t name_size = static_cast<uint8_t>(rest[0]), value_size = static_cast<uint8_t>(rest[1]);
    rest.remove_prefix(2);
    const absl::string_view name = rest.substr(0, name_size);
    rest.remove_prefix(name.size());
    const absl::string_view value = rest.substr(0, value_size);
    rest.remove_prefix(value.size());
    entries[std::string(name)] = std::string(value);
  }
  size_t end = 0;  // of the last tensor, behind which no byte may be
  for (auto& [name, value] : entries) {
    if (name.empty()) continue;
    value = WithChecksum(value, rest);
    tensorflow::BundleEntryProto entry;
    if (!entry.ParseFromString(value) || !entry.slices().empty() || entry.offset() < 0 || entry.size() < 0) continue;
    end = std::max(end, static_cast<size_t>(entry.offset()) + static_cast<size_t>(entry.size()));
  }
  Read(official::train::test_table::Table(entries), rest.substr(0, end));
  return 0;
}
