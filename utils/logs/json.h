// Values written as Python writes them. metric.log, benchmark_run.log and the timelines are read by programs made for
// Python's json module, and the console lines of the official models are printed Python dictionaries, so spacing, float
// digits and escapes are Python's, which no JSON library of C++ produces.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::logs {

// A JSON value; an object keeps its fields in the order given.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json();  // null, Python's None
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value);
  Json(int64_t value);
  Json(double value);
  Json(const char* value);
  Json(std::string value);
  Json(Array value);
  Json(Object value);

  const auto& value() const { return value_; }

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_;
};

// Returns json.dumps(value): separators ", " and ": ", ASCII only; bytes that are not UTF-8 are lone surrogates
// \udc80..\udcff, as Python reads them from the environment. Floats that are not finite are null: Python's NaN and
// Infinity are no JSON, and databases refuse the whole file for them.
std::string DumpJson(const Json& value);

// Returns json.dumps(value, indent=indent).
std::string DumpJson(const Json& value, int indent);

// Returns repr(value): single quotes, None, True, False. Text beyond ASCII stays as it is.
std::string PythonRepr(const Json& value);

// Returns repr(float): the fewest digits that read back as the same double, "0.999", "1e-05", "1e+16", "100.0", "nan".
std::string FormatDouble(double value);

// Returns str(numpy.float32): the fewest digits that read back as the same float, so 2.3025851249694824 prints
// "2.3025851". Numbers below 1e-4 are in scientific form, and since the float nearest 1e-4 is below it, that one prints
// "1e-04".
std::string FormatFloat(float value);

}  // namespace official::logs
