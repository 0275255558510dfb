#include "utils/data/records/example.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"

namespace official::data {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The fields of a protobuf message, one after another. Source: protobuf.dev/programming-guides/encoding.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}

  // Moves to the next field; false at the end of the message, and after something that is no field.
  bool Next() {
    uint64_t tag;
    if (bytes_.empty() || !Check(ReadVarint(&tag))) return false;
    field_ = tag >> 3;
    type_ = static_cast<int>(tag & 7);
    uint64_t size = 0;
    switch (type_) {
      case kVarint:
        return Check(ReadVarint(&varint_)) && Check(field_ != 0);
      case kFixed64:
        size = 8;
        break;
      case kBytes:
        if (!Check(ReadVarint(&size))) return false;
        break;
      case kFixed32:
        size = 4;
        break;
      default:
        return Check(false);
    }
    if (!Check(field_ != 0 && size <= bytes_.size())) return false;
    value_ = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  // Whether all fields were read and well-formed; asked after the last.
  bool ok() const { return ok_; }

  bool Is(uint64_t field, int type) const { return field_ == field && type_ == type; }
  uint64_t varint() const { return varint_; }         // of kVarint
  absl::string_view value() const { return value_; }  // of the other types

  // Takes a varint off the front, for the packed lists that consist of nothing else.
  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const uint8_t byte = bytes_[0];
      bytes_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  bool Check(bool condition) {
    ok_ = ok_ && condition;
    return condition;
  }

  absl::string_view bytes_;  // not yet read
  bool ok_ = true;
  uint64_t field_ = 0;
  int type_ = 0;
  uint64_t varint_ = 0;
  absl::string_view value_;
};

constexpr int kFeatures = 1;         // of Example
constexpr int kEntry = 1;            // of Features, a map
constexpr int kKey = 1, kValue = 2;  // of such an entry
constexpr int kList = 1;             // of BytesList, FloatList and Int64List

absl::Status NoExample(absl::string_view what) {
  return absl::DataLossError(absl::StrFormat("the record is not a tf.Example: %s cannot be parsed", what));
}

absl::Status BadFeature(absl::string_view name, absl::string_view what) {
  return absl::DataLossError(absl::StrFormat("feature %s %s", name, what));
}

constexpr absl::string_view kDamaged = "cannot be parsed";

}  // namespace

absl::StatusOr<ExampleView> ExampleView::Parse(absl::string_view record) {
  ExampleView view;
  WireReader fields(record);
  while (fields.Next()) {
    if (fields.Is(kFeatures, kBytes)) RETURN_IF_ERROR(view.ParseFeatures(fields.value()));
  }
  if (!fields.ok()) return NoExample("its outermost message");
  return view;
}

absl::Status ExampleView::ParseFeatures(absl::string_view features) {
  WireReader entries(features);
  while (entries.Next()) {
    if (!entries.Is(kEntry, kBytes)) continue;
    ASSIGN_OR_RETURN(Feature feature, ParseFeature(entries.value()));
    features_.push_back(std::move(feature));
  }
  return entries.ok() ? absl::OkStatus() : NoExample("its map of features");
}

absl::StatusOr<ExampleView::Feature> ExampleView::ParseFeature(absl::string_view entry) {
  Feature feature = {"", Kind::kNone, ""};
  absl::string_view value;
  WireReader fields(entry);
  while (fields.Next()) {
    if (fields.Is(kKey, kBytes)) feature.name = fields.value();
    if (fields.Is(kValue, kBytes)) value = fields.value();
  }
  if (!fields.ok()) return NoExample("a feature");
  WireReader kinds(value);
  while (kinds.Next()) {
    for (const Kind kind : {Kind::kBytes, Kind::kFloat, Kind::kInt64}) {
      if (!kinds.Is(static_cast<int>(kind), kBytes)) continue;
      feature.kind = kind;
      feature.list = kinds.value();
    }
  }
  if (!kinds.ok()) return BadFeature(feature.name, kDamaged);
  return feature;
}

absl::StatusOr<const ExampleView::Feature*> ExampleView::Find(absl::string_view name, Kind kind) const {
  static constexpr absl::string_view kKindNames[] = {"", "bytes", "float", "int64"};
  for (auto feature = features_.rbegin(); feature != features_.rend(); ++feature) {
    if (feature->name != name) continue;
    if (feature->kind == Kind::kNone) return nullptr;
    if (feature->kind == kind) return &*feature;
    return BadFeature(name, absl::StrFormat("is a list of %s, expected %s", kKindNames[static_cast<int>(feature->kind)],
                                            kKindNames[static_cast<int>(kind)]));
  }
  return nullptr;
}

absl::StatusOr<const ExampleView::Feature*> ExampleView::FindRequired(absl::string_view name, Kind kind) const {
  ASSIGN_OR_RETURN(const Feature* feature, Find(name, kind));
  if (feature == nullptr) return BadFeature(name, "is missing");
  return feature;
}

absl::StatusOr<absl::string_view> ExampleView::Bytes(absl::string_view name) const {
  ASSIGN_OR_RETURN(const Feature* feature, FindRequired(name, Kind::kBytes));
  absl::string_view value;
  int64_t count = 0;
  WireReader values(feature->list);
  while (values.Next()) {
    if (!values.Is(kList, kBytes)) continue;
    value = values.value();
    ++count;
  }
  if (!values.ok()) return BadFeature(name, kDamaged);
  if (count != 1) return BadFeature(name, absl::StrFormat("has %d values, expected 1", count));
  return value;
}

absl::Status ExampleView::Int64s(absl::string_view name, std::vector<int64_t>* values) const {
  values->clear();
  ASSIGN_OR_RETURN(const Feature* feature, FindRequired(name, Kind::kInt64));
  WireReader fields(feature->list);
  while (fields.Next()) {
    if (fields.Is(kList, kVarint)) {
      values->push_back(static_cast<int64_t>(fields.varint()));
    } else if (fields.Is(kList, kBytes)) {
      WireReader packed(fields.value());
      while (!packed.empty()) {
        uint64_t value;
        if (!packed.ReadVarint(&value)) return BadFeature(name, kDamaged);
        values->push_back(static_cast<int64_t>(value));
      }
    }
  }
  return fields.ok() ? absl::OkStatus() : BadFeature(name, kDamaged);
}

absl::StatusOr<int64_t> ExampleView::Int64(absl::string_view name) const {
  std::vector<int64_t> values;
  RETURN_IF_ERROR(Int64s(name, &values));
  if (values.size() != 1) return BadFeature(name, absl::StrFormat("has %d values, expected 1", values.size()));
  return values[0];
}

absl::Status ExampleView::Floats(absl::string_view name, std::vector<float>* values) const {
  values->clear();
  ASSIGN_OR_RETURN(const Feature* feature, Find(name, Kind::kFloat));
  if (feature == nullptr) return absl::OkStatus();
  WireReader fields(feature->list);
  while (fields.Next()) {
    if (!fields.Is(kList, kFixed32) && !fields.Is(kList, kBytes)) continue;
    const absl::string_view packed = fields.value();  // a single float looks like a packed list of one
    if (packed.size() % sizeof(float) != 0) return BadFeature(name, kDamaged);
    const size_t begin = values->size();
    values->resize(begin + packed.size() / sizeof(float));
    if (!packed.empty()) std::memcpy(values->data() + begin, packed.data(), packed.size());
  }
  return fields.ok() ? absl::OkStatus() : BadFeature(name, kDamaged);
}

}  // namespace official::data
