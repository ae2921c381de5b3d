// Value, Status, Result and their macros, FunctionRef.
#include "core/value.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/function_ref.h"
#include "core/status.h"

namespace hognose::core {
namespace {

TEST(Value, HoldsOneTypeAndSaysWhich) {
  const Value values[] = {Value(),
                          Value(true),
                          Value(7),
                          Value(0.5),
                          Value("text"),
                          Value(Value::Array{1, 2}),
                          Value(Value::Object{{"key", 1}})};
  const std::string_view names[] = {"null",     "a boolean", "an integer", "a number",
                                    "a string", "an array",  "an object"};
  for (size_t i = 0; i < std::size(values); ++i) {
    EXPECT_EQ(values[i].TypeName(), names[i]);
    EXPECT_EQ(values[i].is_null(), i == 0);
    EXPECT_EQ(values[i].AsBool() != nullptr, i == 1);
    EXPECT_EQ(values[i].AsInt() != nullptr, i == 2);
    EXPECT_EQ(values[i].AsString() != nullptr, i == 4);
    EXPECT_EQ(values[i].AsArray() != nullptr, i == 5);
    EXPECT_EQ(values[i].AsObject() != nullptr, i == 6);
    double number = -1.0;
    EXPECT_EQ(values[i].AsDouble(&number), i == 2 || i == 3);
    EXPECT_EQ(number, i == 2 ? 7.0 : (i == 3 ? 0.5 : -1.0));
  }
}

TEST(Value, TextIsTextAndNotABoolean) {
  const std::string text = "abc";
  for (const Value& value : {Value("abc"), Value(text), Value(std::string_view("abc"))}) {
    ASSERT_NE(value.AsString(), nullptr);
    EXPECT_EQ(*value.AsString(), "abc");
  }
  EXPECT_EQ(*Value(size_t{3}).AsInt(), 3);
  EXPECT_EQ(*Value(int8_t{-3}).AsInt(), -3);
}

TEST(Value, FindsMembersOfObjectsOnly) {
  const Value object = Value::Object{{"a", 1}, {"b", Value::Object{{"c", "deep"}}}};
  ASSERT_NE(object.Find("b"), nullptr);
  EXPECT_EQ(*object.Find("b")->Find("c")->AsString(), "deep");
  EXPECT_EQ(object.Find("c"), nullptr);
  EXPECT_EQ(Value(1).Find("a"), nullptr);
  EXPECT_EQ(Value().Find(""), nullptr);
}

TEST(Status, KeepsCodeAndMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  const Status failed = Status::Failed("a: b"), usage = Status::Usage("c");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), StatusCode::kFailed);
  EXPECT_EQ(failed.message(), "a: b");
  EXPECT_EQ(usage.code(), StatusCode::kUsage);
}

Result<std::unique_ptr<int>> Half(int n) {
  if (n % 2 != 0) return Status::Failed("odd");
  return std::make_unique<int>(n / 2);
}

Result<int> Quarter(int n) {
  HOGNOSE_ASSIGN(const std::unique_ptr<int> half, Half(n));
  HOGNOSE_ASSIGN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

Status CheckSmall(int n, int* calls) {
  ++*calls;
  return n < 10 ? Status() : Status::Usage("large");
}

Status CheckBoth(int a, int b, int* calls) {
  HOGNOSE_TRY(CheckSmall(a, calls));
  HOGNOSE_TRY(CheckSmall(b, calls));
  return {};
}

TEST(Result, MacrosHandOnTheFirstFailure) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(3).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  int calls = 0;
  EXPECT_TRUE(CheckBoth(1, 2, &calls).ok());
  EXPECT_EQ(calls, 2) << "each expression is evaluated once";
  EXPECT_EQ(CheckBoth(10, 2, &calls).code(), StatusCode::kUsage);
  EXPECT_EQ(calls, 3);
}

TEST(Result, WithoutAValueHasNone) {
  auto failed = Half(1);
  EXPECT_FALSE(failed.ok());
  EXPECT_DEATH((void)failed.value(), "check failed");
  EXPECT_DEATH((void)Result<int>(Status()), "check failed");
}

TEST(FunctionRef, CallsTheObjectItself) {
  int calls = 0;
  auto count = [&calls, own = 0](int by) mutable {
    own += by;
    calls = own;
    return own;
  };
  const FunctionRef<int(int)> ref = count;
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(copy(3), 5);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace hognose::core
