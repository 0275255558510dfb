// ISA-L inflates about 1.5 times as fast as zlib, and the training images are on the way to the first step.
#include "utils/data/gzip.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::data {
bool IsGzip(absl::string_view bytes) { return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

GzipReader::GzipReader(absl::string_view compressed, std::string name)
    : name_(std::move(name)), state_(std::make_unique<inflate_state>()) {
  isal_inflate_init(state_.get());
  state_->crc_flag = ISAL_GZIP;
  state_->next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(compressed.data()));
  state_->avail_in = static_cast<uint32_t>(compressed.size());
}

GzipReader::~GzipReader() = default;

absl::StatusOr<int64_t> GzipReader::Read(int64_t size, void* out) {
  uint8_t* const begin = static_cast<uint8_t*>(out);
  int64_t done = 0;
  while (done < size) {
    if (state_->block_state == ISAL_BLOCK_FINISH) {
      // A gzip file may hold several compressed members; together they are one stream. Zeros may fill up its last
      // block.
      const absl::string_view rest(reinterpret_cast<const char*>(state_->next_in), state_->avail_in);
      if (rest.find_first_not_of('\0') == rest.npos) state_->avail_in = 0;
      if (state_->avail_in == 0) break;
      uint8_t* const next_in = state_->next_in;
      const uint32_t avail_in = state_->avail_in;
      isal_inflate_reset(state_.get());
      state_->crc_flag = ISAL_GZIP;
      state_->next_in = next_in;
      state_->avail_in = avail_in;
    }
    const uint32_t room = static_cast<uint32_t>(std::min<int64_t>(size - done, std::numeric_limits<uint32_t>::max()));
    state_->next_out = begin + done;
    state_->avail_out = room;
    const int result = isal_inflate(state_.get());
    const int64_t step = room - state_->avail_out;
    done += step;
    position_ += step;
    if (result == ISAL_INCORRECT_CHECKSUM) {
      return absl::DataLossError(absl::StrFormat("%s: the gzip checksum does not match its data", name_));
    }
    if (result < 0) {
      return absl::DataLossError(absl::StrFormat("%s: corrupt gzip data (after %d inflated bytes)", name_, position_));
    }
    if (state_->block_state != ISAL_BLOCK_FINISH && state_->avail_out > 0) {
      return absl::DataLossError(
          absl::StrFormat("%s: the gzip data ends early (after %d inflated bytes)", name_, position_));
    }
  }
  return done;
}

absl::Status Gunzip(const std::string& from, const std::string& to, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::string compressed, files::ReadFile(from, kMaxGzipBytes));
  if (!IsGzip(compressed)) return absl::DataLossError(absl::StrFormat("%s is not a gzip file", from));
  ASSIGN_OR_RETURN(const std::unique_ptr<files::AtomicFile> file, files::AtomicFile::Create(to));
  GzipReader reader(compressed, from);
  std::vector<char> buffer(1 << 20);
  for (;;) {
    ASSIGN_OR_RETURN(const int64_t size, reader.Read(buffer.size(), buffer.data()));
    if (size == 0) break;
    if (reader.position() > max_bytes) {
      return absl::DataLossError(absl::StrFormat("%s: inflates to more than the expected %d bytes", from, max_bytes));
    }
    RETURN_IF_ERROR(file->Append(absl::string_view(buffer.data(), size)));
  }
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

}  // namespace official::data
