// Fields: typed reading of a configuration object. The first fault is kept and returned by
// status(), so that a table of fields reads without a check at every line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/value.h"

namespace hognose::models {

// A size and the name under which the configuration gives it.
struct SizeField {
  std::string_view name;
  size_t value;
};

class Fields {
 public:
  // `where` begins every message: "config.json" or "config.json: ssm_cfg".
  Fields(const core::Value& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Absent and null fields are nullopt. Alternative names are the published layouts' spellings of
  // one field; the first present one counts. A size may be "auto": the tensors tell it.
  std::optional<SizeField> Size(std::initializer_list<std::string_view> names);
  std::optional<bool> Bool(std::initializer_list<std::string_view> names);
  std::optional<double> Number(std::string_view name);
  // What a norm adds to its mean square: from 0 to 1.
  std::optional<float> Epsilon(std::string_view name);
  std::optional<std::string> Text(std::string_view name);
  // A number, or infinity as a bare word, a string ("Infinity", "inf") or {"__float__":
  // "Infinity"}. A pair [low, high] with 0 <= low <= high.
  std::optional<std::pair<float, float>> Limits(std::initializer_list<std::string_view> names);
  // One integer or an array of integers.
  std::vector<int64_t> Ints(std::string_view name);

  const core::Status& status() const { return status_; }
  const std::string& where() const { return where_; }
  void Fault(std::string_view name, const core::Value& got, std::string_view want);

 private:
  const core::Value* Find(std::string_view name) const;
  // The first present one of `names`, with its name.
  std::pair<std::string_view, const core::Value*> FindAny(
      std::initializer_list<std::string_view> names) const;

  const core::Value& object_;
  std::string where_;
  core::Status status_;
};

// A size that both the config and a tensor's shape tell. An absent field takes the tensor's size; a
// disagreement is an error that names both.
core::Status Agree(const Fields& fields, const std::optional<SizeField>& configured, size_t derived,
                   const std::string& tensor);

}  // namespace hognose::models
