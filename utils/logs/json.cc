#include "utils/logs/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/misc/text.h"

namespace official::logs {
namespace {

// The shortest digits that read back as `value`, laid out as Python and NumPy do. Not std::chars_format::fixed: beyond
// 2^24 it prints every digit of a float, 123456792 where NumPy has 123456790.0.
template <typename Float>
std::string FormatShortest(Float value, bool scientific) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const char* end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  absl::string_view text(buffer, end - buffer);
  if (scientific) return std::string(text);

  const std::string sign = absl::ConsumePrefix(&text, "-") ? "-" : "";
  const size_t e = text.find('e');
  int exponent = 0;
  OFFICIAL_CHECK(absl::SimpleAtoi(text.substr(e + 1), &exponent)) << text;
  const std::string digits = absl::StrCat(text.substr(0, 1), e > 1 ? text.substr(2, e - 2) : "");
  if (exponent < 0) return absl::StrCat(sign, "0.", std::string(-exponent - 1, '0'), digits);
  const size_t integer_digits = exponent + 1;
  if (digits.size() <= integer_digits) {
    return absl::StrCat(sign, digits, std::string(integer_digits - digits.size(), '0'), ".0");
  }
  return absl::StrCat(sign, digits.substr(0, integer_digits), ".", digits.substr(integer_digits));
}

uint32_t DecodeUtf8(absl::string_view character) {
  if (character.size() == 1) return character[0];
  uint32_t code = character[0] & (0x7F >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (c & 0x3F);
  return code;
}

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = misc::Utf8CharacterLength(text);
    const uint32_t code =
        length > 0 ? DecodeUtf8(text.substr(0, length)) : 0xDC00 + static_cast<unsigned char>(text[0]);
    text.remove_prefix(std::max<size_t>(length, 1));
    if (code == '"' || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (code >= ' ' && code <= '~') {
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == '\b') {
      out += "\\b";
    } else if (code == '\f') {
      out += "\\f";
    } else if (code < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", code);
    } else {
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
    }
  }
  return out + '"';
}

std::string ReprString(absl::string_view text) {
  // Python takes double quotes only where that saves escaping the single ones.
  const bool double_quotes = absl::StrContains(text, '\'') && !absl::StrContains(text, '"');
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", c);
    } else {
      out += c;
    }
  }
  return out + quote;
}

// Writes one value after the other into a string, in Python's or in JSON's notation.
class Writer {
 public:
  Writer(bool python, std::optional<int> indent) : python_(python), indent_(indent) {}

  void operator()(std::nullptr_t) { out_ += python_ ? "None" : "null"; }
  void operator()(bool value) { out_ += python_ ? (value ? "True" : "False") : (value ? "true" : "false"); }
  void operator()(int64_t value) { absl::StrAppend(&out_, value); }
  void operator()(double value) { out_ += python_ || std::isfinite(value) ? FormatDouble(value) : "null"; }
  void operator()(const std::string& value) { out_ += python_ ? ReprString(value) : JsonString(value); }
  void operator()(const Json::Array& array) {
    WriteItems('[', array, ']', [&](const Json& item) { std::visit(*this, item.value()); });
  }
  void operator()(const Json::Object& object) {
    WriteItems('{', object, '}', [&](const auto& field) {
      (*this)(field.first);
      out_ += ": ";
      std::visit(*this, field.second.value());
    });
  }

  std::string Take() { return std::move(out_); }

 private:
  template <typename Items, typename WriteItem>
  void WriteItems(char open, const Items& items, char close, const WriteItem& write_item) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += indent_ ? "," : ", ";
      first = false;
      NewLine();
      write_item(item);
    }
    --depth_;
    if (!items.empty()) NewLine();
    out_ += close;
  }

  void NewLine() {
    if (indent_) out_.append(1, '\n').append(depth_ * *indent_, ' ');
  }

  const bool python_;
  const std::optional<int> indent_;
  int depth_ = 0;
  std::string out_;
};

std::string Write(const Json& value, Writer writer) {
  std::visit([&](const auto& v) { writer(v); }, value.value());
  return writer.Take();
}

}  // namespace

Json::Json() : value_(nullptr) {}
Json::Json(std::nullptr_t) : value_(nullptr) {}
Json::Json(bool value) : value_(value) {}
Json::Json(int value) : value_(int64_t{value}) {}
Json::Json(int64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}

std::string DumpJson(const Json& value) { return Write(value, Writer(/*python=*/false, std::nullopt)); }

std::string DumpJson(const Json& value, int indent) { return Write(value, Writer(/*python=*/false, indent)); }

std::string PythonRepr(const Json& value) { return Write(value, Writer(/*python=*/true, std::nullopt)); }

std::string FormatDouble(double value) {
  // Python decides by the exponent of the shortest digits; 1e-4 and 1e16 themselves have few digits, so that is the
  // value.
  const double magnitude = std::fabs(value);
  return FormatShortest(value, magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16));
}

std::string FormatFloat(float value) {
  const double magnitude = std::fabs(value);  // NumPy compares in double
  return FormatShortest(value, magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16));
}

}  // namespace official::logs
