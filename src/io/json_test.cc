#include "io/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/rng.h"
#include "io/test_util.h"

namespace hognose::io {
namespace {

using core::Value;

core::Status Error(std::string_view text) { return ParseJson(text, "x.json").status(); }

Value Parsed(std::string_view text) {
  auto value = ParseJson(text, "x.json");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : Value();
}

double Number(std::string_view text) {
  double number = -12345;
  EXPECT_TRUE(Parsed(text).AsDouble(&number)) << text;
  return number;
}

TEST(JsonTest, ReadsEveryKind) {
  const Value v = Parsed(R"( {"a": [1, -2, 2.5, true, false, null], "b": {"c": "d"}, "": ""} )");
  const auto& a = *v.Find("a")->AsArray();
  ASSERT_EQ(a.size(), 6u);
  EXPECT_EQ(*a[0].AsInt(), 1);
  EXPECT_EQ(*a[1].AsInt(), -2);
  EXPECT_EQ(a[2].AsInt(), nullptr);
  EXPECT_TRUE(*a[3].AsBool());
  EXPECT_FALSE(*a[4].AsBool());
  EXPECT_TRUE(a[5].is_null());
  EXPECT_EQ(*v.Find("b")->Find("c")->AsString(), "d");
  EXPECT_EQ(*v.Find("")->AsString(), "");
  EXPECT_EQ(v.AsObject()->front().first, "a");  // in file order
}

TEST(JsonTest, ReadsStringsWithEscapes) {
  const Value v = Parsed(R"("q\" b\\ s\/ \b\f\n\r\t \u00e9 \ud83d\ude00 é")");
  EXPECT_EQ(*v.AsString(), "q\" b\\ s/ \b\f\n\r\t \xC3\xA9 \xF0\x9F\x98\x80 \xC3\xA9");
  EXPECT_EQ(*Parsed(R"("a\u0000b")").AsString(), std::string("a\0b", 3));
  // Longer than any buffer of the parser, with escapes all through.
  std::string text = "\"", want;
  for (int i = 0; i < 5000; ++i) text += "ab\\n\xC3\xA9", want += "ab\n\xC3\xA9";
  EXPECT_EQ(*Parsed(text + "\"").AsString(), want);
  EXPECT_EQ(Parsed("{" + text + "\": 1}").AsObject()->front().first, want);
}

TEST(JsonTest, ReadsBareWordsAsNumbers) {
  EXPECT_EQ(Number("Infinity"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Number("-Infinity"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(Number("NaN")));
  const Value v = Parsed("{\"time_step_limit\":[0.0,Infinity],\n\"x\": [NaN ,-Infinity,11111111]}");
  double d = 0;
  ASSERT_TRUE((*v.Find("time_step_limit")->AsArray())[1].AsDouble(&d));
  EXPECT_TRUE(std::isinf(d) && d > 0);
  ASSERT_TRUE((*v.Find("x")->AsArray())[1].AsDouble(&d));
  EXPECT_TRUE(std::isinf(d) && d < 0);
  EXPECT_EQ(*(*v.Find("x")->AsArray())[2].AsInt(), 11111111);
}

TEST(JsonTest, LeavesTheWordsInStringsAlone) {
  const Value v =
      Parsed(R"({"a Infinity": "NaN", "\"": ["-Infinity", "\\", Infinity, "\\\" NaN "], "NaN":1})");
  EXPECT_EQ(*v.Find("a Infinity")->AsString(), "NaN");
  const auto& list = *v.Find("\"")->AsArray();
  EXPECT_EQ(*list[0].AsString(), "-Infinity");
  EXPECT_EQ(*list[1].AsString(), "\\");
  double d = 0;
  EXPECT_TRUE(list[2].AsDouble(&d) && std::isinf(d));
  EXPECT_EQ(*list[3].AsString(), "\\\" NaN ");
  EXPECT_EQ(*v.Find("NaN")->AsInt(), 1);
}

TEST(JsonTest, RefusesWordsThatAreNotExact) {
  for (const char* text :
       {"Infinityx",  "xInfinity",  "Infinity5",   "5Infinity",        "--Infinity",    "+Infinity",
        "-NaN",       "NaNN",       "NaN.0",       "infinity",         "nan",           "Inf",
        "Infinit",    "[NaN NaN]",  "{NaN: 1}",    "{\"a\" Infinity}", "Infinity\"a\"", "[Infinity",
        "- Infinity", "1 Infinity", "-111111111x", "Infinity:",        "\"a\"NaN"}) {
    EXPECT_TRUE(FailsWith(Error(text), {"x.json: line 1 column"})) << text;
  }
  EXPECT_TRUE(FailsWith(Error("[1, Infinityx]"), {"line 1 column 5: got 'I', want valid JSON"}));
}

TEST(JsonTest, ErrorsGiveThePlace) {
  EXPECT_TRUE(
      FailsWith(Error("{\n  \"a\": 1,\n  \"b\": x\n}"), {"x.json: line 3 column 8: got 'x'"}));
  EXPECT_TRUE(FailsWith(Error("[\"\xC3\xA9\xC3\xA9\", x]"), {"line 1 column 8: got 'x'"}));
  EXPECT_TRUE(FailsWith(Error("{\"a\": 1"), {"line 1 column 8: got the end of the text"}));
  EXPECT_TRUE(FailsWith(Error(""), {"line 1 column 1: got the end of the text"}));
  EXPECT_TRUE(FailsWith(Error({}), {"line 1 column 1: got the end of the text"}));
  EXPECT_TRUE(FailsWith(Error("1 2"), {"line 1 column 3: got '2' after the value"}));
  EXPECT_TRUE(FailsWith(Error("[\n1\n]\n\n,"), {"line 5 column 1: got ',' after the value"}));
  EXPECT_TRUE(FailsWith(Error("[1,]"), {"got ']'"}));
  EXPECT_TRUE(FailsWith(Error("[01]"), {"got '1'"}));
  EXPECT_TRUE(FailsWith(Error("// a\n1"), {"got '/'"}));
  EXPECT_TRUE(FailsWith(Error("\"a\nb\""), {"got the byte 0x0A"}));
  EXPECT_TRUE(FailsWith(Error("{'a': 1}"), {"got '''"}));
  EXPECT_TRUE(FailsWith(Error("\"\\ud800\\u0041\""), {"got half of a surrogate pair"}));
  EXPECT_TRUE(FailsWith(Error("\"\\udc00\""), {"got half of a surrogate pair"}));
  EXPECT_TRUE(FailsWith(Error("\"\\ud800 \""), {"line 1 column 8: got ' '"}));
  EXPECT_TRUE(FailsWith(Error("\xEF\xBB\xBF{}"), {"line 1 column 1: got a byte order mark"}));
}

TEST(JsonTest, RefusesDuplicateKeys) {
  EXPECT_TRUE(FailsWith(Error("{\"a\": 1,\n \"b\": 2, \"a\": 3}"),
                        {"line 2 column 1", "got the key \"a\" twice, want it once"}));
  EXPECT_TRUE(FailsWith(Error(R"({"é": 1, "\u00e9": 2})"), {"twice"}));
  EXPECT_TRUE(FailsWith(Error(R"([{"x": {"": 1, "": 2}}])"), {"got the key \"\" twice"}));
  Parsed(R"([{"a": {"a": 1}}, {"a": 2}])");  // not in the same object
}

TEST(JsonTest, FindsDuplicateKeysInLargeObjects) {
  for (const int count : {11, 12, 13, 14, 63, 64, 65, 1000, 100000}) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += fmt::format("\"key{}\":{},", i, i);
    const Value v = Parsed(text + "\"last\": 0}");
    EXPECT_EQ(v.AsObject()->size(), static_cast<size_t>(count) + 1);
    for (const int i : {0, count / 2, count - 1}) {
      EXPECT_TRUE(FailsWith(Error(fmt::format("{}\"key{}\": 0}}", text, i)),
                            {fmt::format("got the key \"key{}\" twice", i)}));
    }
  }
}

TEST(JsonTest, LimitsDepth) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  Parsed(nested(kMaxJsonDepth));
  EXPECT_TRUE(FailsWith(Error(nested(kMaxJsonDepth + 1)), {"got nesting deeper than 64 levels"}));
  EXPECT_TRUE(FailsWith(Error(std::string(1 << 20, '[')), {"got nesting deeper than 64 levels"}));
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(FailsWith(Error(objects), {"got nesting deeper than 64 levels"}));
}

TEST(JsonTest, RefusesInvalidUtf8) {
  for (const char* bad :
       {"\xFF", "\xC0\x80", "\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80",
        "\xF0\x80\x80\x80", "\x80", "\xE2\x82", "\xF8\x88\x80\x80"}) {
    EXPECT_TRUE(FailsWith(Error(fmt::format("{{\"abc\":\n\"x{}\"}}", bad)),
                          {"line 2 column 3: got invalid UTF-8 (byte 0x"}))
        << bad;
  }
  EXPECT_TRUE(IsUtf8("\xED\x9F\xBF \xEE\x80\x80 \xF4\x8F\xBF\xBF \xF0\x90\x80\x80 \xE0\xA0\x80"));
  EXPECT_EQ(ValidUtf8Prefix("12345678abc\xFF"), 11u);
}

TEST(JsonTest, IntegersKeepTheirValueOrBecomeDoubles) {
  EXPECT_EQ(*Parsed("9223372036854775807").AsInt(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*Parsed("-9223372036854775808").AsInt(), std::numeric_limits<int64_t>::min());
  for (const char* text : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                           "-9223372036854775809", "123456789012345678901234567890"}) {
    EXPECT_EQ(Parsed(text).AsInt(), nullptr) << text;
    EXPECT_EQ(Number(text), std::strtod(text, nullptr)) << text;
  }
  EXPECT_EQ(Parsed("1.0").AsInt(), nullptr);
  EXPECT_EQ(Parsed("1e2").AsInt(), nullptr);
}

TEST(JsonTest, RefusesNumbersOutOfRange) {
  for (const std::string text : {"1e999", "-1e999", "1e309", "1.8e308", "1e2147483647", "1E+400",
                                 "0.1e310", "10000000000000000000e300"}) {
    EXPECT_TRUE(FailsWith(Error(text), {"want a number in the range of double"})) << text;
  }
  EXPECT_TRUE(FailsWith(Error(std::string(400, '9')), {"want a number in the range of double"}));
  EXPECT_TRUE(FailsWith(Error("1e99999999999"), {"got an exponent out of range"}));
  EXPECT_EQ(Number("1e-999"), 0.0);
  EXPECT_TRUE(std::signbit(Number("-1e-999")));
  EXPECT_EQ(Number("0." + std::string(400, '0') + "1"), 0.0);
  EXPECT_EQ(Number("0." + std::string(400, '0') + "1e401"), 1.0);
  EXPECT_EQ(Number("1" + std::string(400, '0') + "e-400"), 1.0);
  EXPECT_EQ(Number("0e999"), 0.0);
  EXPECT_EQ(Number("5e-324"), 5e-324);
}

TEST(JsonTest, DoublesAreRoundedCorrectly) {
  for (const char* text :
       {"0.1", "1.7976931348623157e308", "2.2250738585072014e-308", "9007199254740993.0",
        "0.30000000000000004", "123456789.123456789", "8.41e21", "5.0e-324"}) {
    EXPECT_EQ(Number(text), std::strtod(text, nullptr)) << text;
  }
}

TEST(JsonTest, DoublesPrintShortAndReadBackTheSame) {
  EXPECT_EQ(ToJson(Value(0.1)), "0.1");
  EXPECT_EQ(ToJson(Value(1.0)), "1.0");  // stays a double
  EXPECT_EQ(ToJson(Value(-0.0)), "-0.0");
  EXPECT_EQ(ToJson(Value(1e300)), "1e+300");
  core::Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const double d = std::bit_cast<double>(rng.Next());
    if (std::isnan(d)) continue;
    double back = 0;
    auto value = ParseJson(ToJson(Value(d)), "x");
    ASSERT_TRUE(value.ok() && value->AsInt() == nullptr && value->AsDouble(&back));
    ASSERT_EQ(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(d));
  }
}

TEST(JsonTest, PrintsWhatItReads) {
  const std::string text =
      R"({"a":[1,-2,2.5,true,null,[],{}],"b\"\\\n\t\r\u0001":"é\u001f","c":[Infinity,-Infinity,NaN]})";
  EXPECT_EQ(ToJson(Parsed(text)), text);
  EXPECT_EQ(ToJson(Parsed(R"({"a":[1,{}],"b":{"c":[]}})"), 2),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": []\n  }\n}");
  EXPECT_EQ(ToJson(Value("a\xFF\xC3")), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(ToJson(Value("\x7F")), "\"\x7F\"");
}

}  // namespace
}  // namespace hognose::io
