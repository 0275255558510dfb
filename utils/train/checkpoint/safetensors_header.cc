#include "utils/train/checkpoint/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/safetensors_types.h"

namespace official::train {
namespace {

using nlohmann::json;

constexpr size_t kMaxRank = 254;  // as in TensorFlow's checkpoints

// Follows the text and takes its values, and stops at the first that has no place in a header: no tree of values is
// built, whose size a hostile text could choose.
class HeaderBuilder : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader& header() { return header_; }
  const std::string& error() const { return error_; }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kRoot;
        return true;
      case Place::kRootValue:
        place_ = name_ == kSafetensorsMetadata ? Place::kMetadata : Place::kTensor;
        tensor_ = {};
        given_.clear();
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::kRoot:
        name_ = key;
        if ((key == kSafetensorsMetadata ? has_metadata_ : header_.tensors.count(key) > 0)) return Twice(key);
        place_ = Place::kRootValue;
        return true;
      case Place::kMetadata:
        if (header_.metadata.count(key) > 0) return Twice(key);
        field_ = key;
        place_ = Place::kText;
        return true;
      default:
        if (!given_.insert(key).second) return Twice(key);
        if (key == "dtype") {
          place_ = Place::kDtype;
        } else if (key == "shape") {
          place_ = Place::kShape;
        } else if (key == "data_offsets") {
          place_ = Place::kOffsets;
        } else {
          return Fail(absl::StrCat(Tensor(), " has the unknown key \"", misc::Printable(key), "\""));
        }
        return true;
    }
  }

  bool string(string_t& text) override {
    if (place_ == Place::kText) {
      header_.metadata[field_] = std::move(text);
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kDtype) return Unexpected("a text");
    tensor_.dtype = std::move(text);
    place_ = Place::kTensor;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return Unexpected("a list");
    place_ = place_ == Place::kShape ? Place::kShapeItem : Place::kOffsetsItem;
    offsets_.clear();
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > std::numeric_limits<int64_t>::max()) return Unexpected("a number above 2^63 - 1");
    const int64_t value = static_cast<int64_t>(number);
    if (place_ == Place::kShapeItem) {
      if (tensor_.shape.size() == kMaxRank) return Unexpected("more than 254 dimensions");
      tensor_.shape.push_back(value);
      return true;
    }
    if (place_ != Place::kOffsetsItem || offsets_.size() == 2) return Unexpected("a number");
    offsets_.push_back(value);
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsetsItem) {
      if (offsets_.size() != 2) return Fail(absl::StrCat(Tensor(), " needs two numbers in data_offsets"));
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
    }
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() override {
    switch (place_) {
      case Place::kMetadata:
        has_metadata_ = true;
        break;
      case Place::kTensor:
        if (given_.size() != 3) return Fail(absl::StrCat(Tensor(), " needs dtype, shape and data_offsets"));
        header_.tensors[name_] = std::move(tensor_);
        break;
      default:
        place_ = Place::kEnd;
        return true;
    }
    place_ = Place::kRoot;
    return true;
  }

  bool null() override {
    if (place_ != Place::kRootValue || name_ != kSafetensorsMetadata) return Unexpected("null");
    has_metadata_ = true;
    place_ = Place::kRoot;
    return true;
  }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("a number that is not whole"); }
  bool binary(binary_t&) override { return Unexpected("bytes"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("it is not JSON: there is an error at byte ", position));
  }

 private:
  // The value or key that comes next.
  enum class Place {
    kStart,
    kRoot,
    kRootValue,
    kMetadata,
    kText,
    kTensor,
    kDtype,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetsItem,
    kEnd,
  };

  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  bool Unexpected(absl::string_view what) {
    const bool in_root = place_ == Place::kStart || place_ == Place::kEnd;
    return Fail(absl::StrCat(in_root ? "the header" : Tensor(), " has ", what, ", which has no place there"));
  }
  bool Twice(const std::string& key) {
    return Fail(absl::StrCat("the key \"", misc::Printable(key), "\" is there twice"));
  }
  std::string Tensor() const { return absl::StrCat("tensor \"", misc::Printable(name_), "\""); }

  SafetensorsHeader header_;
  std::string error_;
  Place place_ = Place::kStart;
  bool has_metadata_ = false;
  // Of the tensor or the metadata that is being read.
  std::string name_, field_;
  SafetensorsHeader::Tensor tensor_;
  std::set<std::string> given_;
  std::vector<int64_t> offsets_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json_text) {
  HeaderBuilder builder;
  if (!json::sax_parse(json_text.begin(), json_text.end(), &builder)) return absl::DataLossError(builder.error());
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = json_text.find('\0'); zero != json_text.npos) {
    return absl::DataLossError(absl::StrCat("it is not JSON: there is an error at byte ", zero + 1));
  }
  return std::move(builder.header());
}

}  // namespace official::train
