// What these tests share: models, and looks at what a command printed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/value.h"
#include "io/json.h"
#include "io/test_util.h"
#include "tests/cli/process.h"

namespace hognose::cli_test {

using io::Slurp;
using io::TestFolder;

inline const std::string kDemo = HOGNOSE_SOURCE_DIR "/models/demo";
inline std::string Fixture(std::string_view name) {
  return HOGNOSE_SOURCE_DIR "/tests/fixtures/models/" + std::string(name);
}

// hognose with these arguments.
inline Outcome Hognose(std::vector<std::string> args, std::string input = {}) {
  return Launch({.args = std::move(args), .input = std::move(input)});
}

inline std::string Describe(const Outcome& o) {
  return "exit code " + std::to_string(o.code) + (o.hung ? ", hung" : "") +
         "\nstandard output: " + o.out.substr(0, 2000) +
         "\nstandard error: " + o.err.substr(0, 2000);
}

// Passes if the command ended well.
inline ::testing::AssertionResult Done(const Outcome& o) {
  if (o.code == 0 && !o.hung) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << Describe(o);
}

// Passes if the command failed with `code` and said so in one line, which begins with `begin` and
// holds `middle`.
inline ::testing::AssertionResult Fails(const Outcome& o, int code, std::string_view begin,
                                        std::string_view middle = ": ") {
  const bool one_line = std::count(o.err.begin(), o.err.end(), '\n') == 1 && o.err.ends_with('\n');
  if (o.code == code && !o.hung && one_line && o.err.starts_with(begin) &&
      o.err.find(middle) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "want exit code " << code << " and one line: " << begin
                                       << "..." << middle << "...; got " << Describe(o);
}

// The one line of JSON that the command printed.
inline core::Value Json(const Outcome& o) {
  EXPECT_TRUE(Done(o));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  EXPECT_EQ(o.out.find("Infinity"), std::string::npos);  // ParseJson is kinder than the RFC
  EXPECT_EQ(o.out.find("NaN"), std::string::npos);
  auto value = io::ParseJson(o.out, "output");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? std::move(*value) : core::Value();
}

// The names of an object's fields, in order, between spaces.
inline std::string Keys(const core::Value& value) {
  std::string keys;
  if (value.AsObject() == nullptr) return "not an object";
  for (const auto& [name, member] : *value.AsObject()) keys += (keys.empty() ? "" : " ") + name;
  return keys;
}

inline std::string Text(const core::Value& object, std::string_view name) {
  const core::Value* value = object.Find(name);
  EXPECT_TRUE(value != nullptr && value->AsString() != nullptr) << name;
  return value != nullptr && value->AsString() != nullptr ? *value->AsString() : "";
}

inline double Number(const core::Value& object, std::string_view name) {
  double number = -1.0;
  const core::Value* value = object.Find(name);
  EXPECT_TRUE(value != nullptr && value->AsDouble(&number)) << name;
  return number;
}

inline std::vector<int32_t> Ids(const core::Value& object) {
  std::vector<int32_t> ids;
  const core::Value* value = object.Find("ids");
  EXPECT_TRUE(value != nullptr && value->AsArray() != nullptr);
  if (value == nullptr || value->AsArray() == nullptr) return ids;
  for (const auto& id : *value->AsArray()) ids.push_back(static_cast<int32_t>(*id.AsInt()));
  return ids;
}

}  // namespace hognose::cli_test
