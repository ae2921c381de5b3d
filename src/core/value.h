// Value: a tree of plain data (what JSON holds), so that models and runtime read configuration
// without knowing a file format. io/json.h makes and prints it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace hognose::core {

class Value {
 public:
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;  // in file order; keys are unique

  Value() = default;
  Value(bool b) : data_(b) {}  // NOLINT
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Value(T i) : data_(static_cast<int64_t>(i)) {}  // NOLINT
  Value(double d) : data_(d) {}                                                      // NOLINT
  Value(std::string s) : data_(std::move(s)) {}                                      // NOLINT
  Value(std::string_view s) : data_(std::string(s)) {}                               // NOLINT
  Value(const char* s) : data_(std::string(s)) {}                                    // NOLINT
  Value(Array a) : data_(std::move(a)) {}                                            // NOLINT
  Value(Object o) : data_(std::move(o)) {}                                           // NOLINT

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  // The content if it has that type, else nullptr. AsDouble also takes integers.
  const bool* AsBool() const { return std::get_if<bool>(&data_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&data_); }
  bool AsDouble(double* out) const {
    if (const auto* d = std::get_if<double>(&data_)) return *out = *d, true;
    if (const auto* i = AsInt()) return *out = static_cast<double>(*i), true;
    return false;
  }
  const std::string* AsString() const { return std::get_if<std::string>(&data_); }
  const Array* AsArray() const { return std::get_if<Array>(&data_); }
  const Object* AsObject() const { return std::get_if<Object>(&data_); }
  Array* AsArray() { return std::get_if<Array>(&data_); }
  Object* AsObject() { return std::get_if<Object>(&data_); }

  // The member of an object, or nullptr (also when this is no object).
  const Value* Find(std::string_view key) const {
    if (const auto* object = AsObject()) {
      for (const auto& [name, value] : *object) {
        if (name == key) return &value;
      }
    }
    return nullptr;
  }
  // "null", "true or false", "an integer", ...: for messages.
  std::string_view TypeName() const {
    static constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "a number",
                                                  "a string", "an array",  "an object"};
    return kNames[data_.index()];
  }

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data_;
};

}  // namespace hognose::core
