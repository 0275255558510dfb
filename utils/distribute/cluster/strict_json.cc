#include "utils/distribute/cluster/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/misc/text.h"

namespace official::distribute {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 16;
constexpr size_t kShownBefore = 30;  // bytes before an error, in its message

// Quotes are what JSON is made of, and are not escaped.
std::string Excerpt(absl::string_view text) {
  return absl::StrReplaceAll(misc::Printable(text), {{"\\\"", "\""}, {"\\'", "'"}});
}

// Follows a text without keeping its values, and stops at the first thing that is wrong.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(absl::string_view text) : text_(text) {}

  const std::string& error() const { return error_; }

  bool null() override { return EndValue(); }
  bool boolean(bool) override { return EndValue(); }
  bool number_integer(number_integer_t) override { return EndValue(); }
  bool number_unsigned(number_unsigned_t) override { return EndValue(); }
  bool number_float(number_float_t, const string_t&) override { return EndValue(); }
  bool string(string_t&) override { return EndValue(); }
  bool binary(binary_t&) override { return EndValue(); }

  bool start_object(size_t) override { return Begin({}); }
  bool start_array(size_t) override { return Begin({.is_list = true}); }
  bool end_object() override { return End(); }
  bool end_array() override { return End(); }

  bool key(string_t& key) override {
    Level& object = levels_.back();
    object.key = key;
    if (object.keys.insert(key).second) return true;
    error_ = absl::StrCat("the key ", Path(), " is there twice; write it once");
    return false;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    const size_t end = std::min(position, text_.size());
    const size_t begin = end > kShownBefore ? end - kShownBefore : 0;
    error_ = absl::StrCat("it is not JSON: there is an error at byte ", position, ", behind '",
                          Excerpt(text_.substr(begin, end - begin)),
                          "'; names and texts need double quotes, lists [], objects {}");
    return false;
  }

 private:
  struct Level {
    bool is_list = false;
    size_t index = 0;   // of a list: the value that comes
    std::string key{};  // of an object: the last one
    std::set<std::string> keys{};
  };

  bool Begin(Level level) {
    levels_.push_back(std::move(level));
    if (levels_.size() <= kMaxDepth) return true;
    error_ = absl::StrCat("it has more than ", kMaxDepth, " levels of objects and lists");
    return false;
  }

  bool End() {
    levels_.pop_back();
    return EndValue();
  }

  bool EndValue() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }

  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      path = level.is_list ? absl::StrCat(path, "[", level.index, "]") : JsonPath(path, level.key);
    }
    return path;
  }

  const absl::string_view text_;
  std::vector<Level> levels_;  // the objects and lists that are open
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseStrictJson(absl::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", text.size(), " bytes; at most ", kMaxBytes, " are read"));
  }
  Checker checker(text);
  if (!json::sax_parse(text.begin(), text.end(), &checker)) return absl::InvalidArgumentError(checker.error());
  return json::parse(text.begin(), text.end());
}

std::string JsonPath(absl::string_view object, absl::string_view key) {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(),
                                                 [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
  if (!plain) return absl::StrCat(object, "[\"", misc::Printable(key), "\"]");
  return absl::StrCat(object, object.empty() ? "" : ".", misc::Printable(key));
}

}  // namespace official::distribute
