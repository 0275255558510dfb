#include "utils/logs/json.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace official::logs {
namespace {

// Every expected text is what Python 3.11 and NumPy 1.26 print.

TEST_CASE("FormatDouble is Python's repr") {
  CHECK(FormatDouble(0.999) == "0.999");
  CHECK(FormatDouble(double{2.3025851f}) == "2.3025851249694824");
  CHECK(FormatDouble(100) == "100.0");
  CHECK(FormatDouble(0.0) == "0.0");
  CHECK(FormatDouble(-0.0) == "-0.0");
  CHECK(FormatDouble(0.0001) == "0.0001");
  CHECK(FormatDouble(0.00001) == "1e-05");
  CHECK(FormatDouble(double{1e-4f}) == "9.999999747378752e-05");
  CHECK(FormatDouble(1e15) == "1000000000000000.0");
  CHECK(FormatDouble(1e16) == "1e+16");
  CHECK(FormatDouble(123456789012345680.0) == "1.2345678901234568e+17");
  CHECK(FormatDouble(5e-324) == "5e-324");
  CHECK(FormatDouble(0.1 + 0.2) == "0.30000000000000004");
  CHECK(FormatDouble(-1234.5) == "-1234.5");
  CHECK(FormatDouble(std::nan("")) == "nan");
  CHECK(FormatDouble(-INFINITY) == "-inf");
}

TEST_CASE("FormatFloat is NumPy's float32") {
  CHECK(FormatFloat(2.3025851f) == "2.3025851");
  CHECK(FormatFloat(1e-4f) == "1e-04");
  CHECK(FormatFloat(2e-4f) == "0.0002");
  CHECK(FormatFloat(1.5e-5f) == "1.5e-05");
  CHECK(FormatFloat(1.0f) == "1.0");
  CHECK(FormatFloat(123456789.0f) == "123456790.0");
  CHECK(FormatFloat(1e15f) == "1000000000000000.0");
  CHECK(FormatFloat(1e16f) == "1e+16");
}

TEST_CASE("DumpJson is json.dumps, but for floats that are not finite") {
  const Json value = Json::Object{{"name", "accuracy"},
                                  {"value", 0.999},
                                  {"unit", nullptr},
                                  {"global_step", int64_t{10000}},
                                  {"ok", true},
                                  {"extras", Json::Array{Json::Object{{"name", "n"}}, 1}},
                                  {"none", Json::Array{}},
                                  {"empty", Json::Object{}}};
  CHECK(DumpJson(value) == R"({"name": "accuracy", "value": 0.999, "unit": null, "global_step": 10000, "ok": true, )"
                           R"("extras": [{"name": "n"}, 1], "none": [], "empty": {}})");
  CHECK(DumpJson(Json::Array{std::nan(""), INFINITY, -INFINITY}) == "[null, null, null]");
}

TEST_CASE("DumpJson escapes all that is not ASCII, and keeps bytes that are not UTF-8 apart") {
  CHECK(DumpJson("a\u00e9\U0001F600\x7f\x01\n\r\t\b\f\"\\/") == R"("a\u00e9\ud83d\ude00\u007f\u0001\n\r\t\b\f\"\\/")");
  CHECK(DumpJson("\xff\x80"
                 "a") == R"("\udcff\udc80a")");
  CHECK(DumpJson("\xc3") == R"("\udcc3")");                      // cut off
  CHECK(DumpJson("\xc0\xaf") == R"("\udcc0\udcaf")");            // overlong
  CHECK(DumpJson("\xed\xa0\x80") == R"("\udced\udca0\udc80")");  // a surrogate
  CHECK(DumpJson(std::string("a\0b", 3)) == R"("a\u0000b")");
}

TEST_CASE("DumpJson with indent is json.dumps(indent=4)") {
  const Json value = Json::Object{{"a", Json::Array{}},
                                  {"b", Json::Object{}},
                                  {"c", Json::Array{1, Json::Object{{"x", nullptr}}}},
                                  {"d", Json::Array{Json::Array{}}}};
  CHECK(DumpJson(value, 4) == R"({
    "a": [],
    "b": {},
    "c": [
        1,
        {
            "x": null
        }
    ],
    "d": [
        []
    ]
})");
}

TEST_CASE("PythonRepr is repr") {
  const Json value = Json::Object{{"a", nullptr},       {"b", true}, {"c", "it's"},    {"d", "q\"'\n\x01\u00e9"},
                                  {"e", Json::Array{}}, {"f", 1.0},  {"g", "tab\t\\"}, {"h", std::nan("")}};
  CHECK(PythonRepr(value) ==
        R"({'a': None, 'b': True, 'c': "it's", 'd': 'q"\'\n\x01é', 'e': [], 'f': 1.0, 'g': 'tab\t\\', 'h': nan})");
}

}  // namespace
}  // namespace official::logs
