#include "utils/distribute/grpc/wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

// So much memory is taken before the bytes are there.
constexpr uint64_t kMostReservedBytes = 64 << 20;

absl::Status NoMessage() { return absl::InvalidArgumentError("this is no message of a worker"); }

template <typename T>
std::string BytesOf(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

template <typename T>
std::optional<T> TakeNumber(absl::string_view& bytes) {
  T number;
  if (bytes.size() < sizeof(number)) return std::nullopt;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

}  // namespace

std::string PackStrings(const std::vector<std::string>& strings) {
  std::string message;
  for (const std::string& text : strings) absl::StrAppend(&message, BytesOf(static_cast<uint32_t>(text.size())), text);
  return message;
}

absl::StatusOr<std::vector<std::string>> UnpackStrings(absl::string_view message) {
  std::vector<std::string> strings;
  while (!message.empty()) {
    const std::optional<uint32_t> size = TakeNumber<uint32_t>(message);
    if (!size || *size > message.size()) return NoMessage();
    strings.emplace_back(message.substr(0, *size));
    message.remove_prefix(*size);
  }
  return strings;
}

std::string RandomBytes() {
  unsigned char bytes[32];
  OFFICIAL_CHECK(RAND_bytes(bytes, sizeof bytes) == 1) << "the system has no random numbers";
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

std::string Proof(absl::string_view key, const std::vector<std::string>& parts) {
  const std::string text = PackStrings(parts);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

bool SameProof(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string PackHello(const FramesHello& hello, absl::string_view key) {
  std::vector<std::string> fields = {"frames",
                                     absl::StrCat(hello.from.worker),
                                     absl::StrCat(hello.from.incarnation),
                                     absl::StrCat(hello.to.worker),
                                     absl::StrCat(hello.to.incarnation),
                                     absl::StrCat(static_cast<int>(hello.channel)),
                                     hello.address};
  fields.push_back(Proof(key, fields));
  return PackStrings(fields);
}

absl::StatusOr<FramesHello> UnpackHello(absl::string_view message, absl::string_view key) {
  ASSIGN_OR_RETURN(std::vector<std::string> fields, UnpackStrings(message));
  if (fields.size() != 8) return NoMessage();
  const std::string proof = std::move(fields.back());
  fields.pop_back();
  FramesHello hello;
  int channel = 0;
  if (!SameProof(proof, Proof(key, fields)) || fields[0] != "frames" ||
      !absl::SimpleAtoi(fields[1], &hello.from.worker) || !absl::SimpleAtoi(fields[2], &hello.from.incarnation) ||
      !absl::SimpleAtoi(fields[3], &hello.to.worker) || !absl::SimpleAtoi(fields[4], &hello.to.incarnation) ||
      !absl::SimpleAtoi(fields[5], &channel) || channel < 0 || channel > static_cast<int>(Exchange::Channel::kValues)) {
    return NoMessage();
  }
  hello.address = fields[6];
  hello.channel = static_cast<Exchange::Channel>(channel);
  return hello;
}

std::string PackFailure(const Failure& failure) {
  if (!failure.lost) return absl::StrCat(std::string(1, kFailKind), failure.reason);
  return absl::StrCat(std::string(1, kLostKind), BytesOf(static_cast<int32_t>(*failure.lost)), failure.reason);
}

std::string FrameHead(uint64_t bytes) { return absl::StrCat(std::string(1, kFrameKind), BytesOf(bytes)); }

absl::StatusOr<FrameReader::Result> FrameReader::Take(absl::Span<const absl::string_view> parts) {
  Result result;
  if (parts.empty() || parts[0].empty()) return NoMessage();
  const char kind = parts[0][0];
  if (kind == kPieceKind) {
    RETURN_IF_ERROR(TakePiece(parts));
  } else {
    const std::string message = absl::StrJoin(parts, "");
    if (kind == kFrameKind) {
      RETURN_IF_ERROR(TakeHead(message));
    } else if (kind == kEndKind) {
      result.ends = true;
    } else if (kind == kFailKind) {
      result.failure = Failure{message.substr(1)};
    } else if (kind == kLostKind) {
      absl::string_view rest = absl::string_view(message).substr(1);
      const std::optional<int32_t> lost = TakeNumber<int32_t>(rest);
      if (!lost) return NoMessage();
      result.failure = Failure{std::string(rest), *lost};
    } else {
      return NoMessage();
    }
  }
  if (bytes_ && frame_.size() == *bytes_) {
    result.frame = std::exchange(frame_, {});
    bytes_.reset();
  }
  return result;
}

absl::Status FrameReader::TakeHead(absl::string_view message) {
  message.remove_prefix(1);
  if (bytes_) return NoMessage();
  bytes_ = TakeNumber<uint64_t>(message);
  if (!bytes_ || *bytes_ > kMostFrameBytes || !message.empty()) return NoMessage();
  frame_.reserve(std::min(*bytes_, kMostReservedBytes));
  return absl::OkStatus();
}

absl::Status FrameReader::TakePiece(absl::Span<const absl::string_view> parts) {
  uint64_t size = 0;
  for (const absl::string_view part : parts) size += part.size();
  if (!bytes_ || size < 2 || size - 1 > *bytes_ - frame_.size()) return NoMessage();
  frame_.append(parts[0].data() + 1, parts[0].size() - 1);
  for (const absl::string_view part : parts.subspan(1)) frame_.append(part.data(), part.size());
  return absl::OkStatus();
}

}  // namespace official::distribute
