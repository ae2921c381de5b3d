#include "models/sequence_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/fields.h"

namespace hognose::models {
namespace {

core::Status Wrong(const std::string& where, std::string_view field, std::string_view got,
                   std::string_view want) {
  return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", where, field, got, want));
}

core::Result<std::vector<std::string>> Names(const core::Value& config, std::string_view field,
                                             const std::string& where) {
  const core::Value* value = config.Find(field);
  std::vector<std::string> names;
  if (value != nullptr && value->AsArray() != nullptr) {
    for (const auto& element : *value->AsArray()) {
      const std::string* name = element.AsString();
      if (name == nullptr || name->empty()) {
        return Wrong(where, field, element.TypeName(), "names of columns");
      }
      if (std::find(names.begin(), names.end(), *name) != names.end()) {
        return Wrong(where, field, fmt::format("\"{}\" twice", *name), "different names");
      }
      names.push_back(*name);
    }
  }
  if (names.empty()) {
    return Wrong(where, field, value == nullptr ? "nothing" : value->TypeName(),
                 "an array of some names");
  }
  return names;
}

core::Result<std::vector<double>> Numbers(const core::Value& config, std::string_view field,
                                          size_t count, bool positive, const std::string& where) {
  const core::Value* value = config.Find(field);
  std::vector<double> numbers;
  if (value != nullptr && value->AsArray() != nullptr) {
    for (const auto& element : *value->AsArray()) {
      double number = 0.0;
      const bool good = element.AsDouble(&number) && std::isfinite(number);
      if (!good || (positive && !(number > 0.0))) {
        return Wrong(where, field, good ? fmt::format("{}", number) : element.TypeName().data(),
                     positive ? "finite numbers above 0" : "finite numbers");
      }
      numbers.push_back(number);
    }
  }
  if (numbers.size() == count) return numbers;
  return Wrong(where, field,
               value == nullptr ? "nothing" : fmt::format("{} numbers", numbers.size()),
               fmt::format("{} numbers, one a name", count));
}

core::Status ReadRegression(const core::Value& config, Fields& fields, SequenceConfig* c) {
  const size_t count = c->targets.size();
  HOGNOSE_ASSIGN(c->target_mean, Numbers(config, "target_mean", count, false, fields.where()));
  HOGNOSE_ASSIGN(c->target_scale, Numbers(config, "target_scale", count, true, fields.where()));
  const std::string loss = fields.Text("loss").value_or("mse");
  c->huber_delta = fields.Number("huber_delta").value_or(1.0);
  HOGNOSE_TRY(fields.status());
  if (loss != "mse" && loss != "huber") {
    return Wrong(fields.where(), "loss", '"' + loss + '"', "mse or huber");
  }
  c->huber = loss == "huber";
  if (c->huber_delta > 0.0) return {};
  return Wrong(fields.where(), "huber_delta", fmt::format("{}", c->huber_delta),
               "a number above 0");
}

core::Status ReadClassification(Fields& fields, SequenceConfig* c) {
  const auto classes = fields.Size({"classes"});
  HOGNOSE_TRY(fields.status());
  c->classes = classes ? classes->value : 0;
  if (c->classes < 2 || c->classes > SequenceConfig::kMostClasses) {
    return Wrong(fields.where(), "classes",
                 classes ? fmt::format("{}", c->classes) : std::string("nothing"),
                 fmt::format("a number from 2 to {}", SequenceConfig::kMostClasses));
  }
  if (c->targets.size() == 1) return {};
  return Wrong(fields.where(), "targets", fmt::format("{}", c->targets.size()),
               "one column of classes");
}

core::Value Array(const auto& elements) {
  core::Value::Array array;
  for (const auto& element : elements) array.emplace_back(element);
  return array;
}

}  // namespace

bool IsSequenceConfig(const core::Value& config) {
  const core::Value* names = config.Find("architectures");
  if (names == nullptr || names->AsArray() == nullptr) return false;
  return std::any_of(names->AsArray()->begin(), names->AsArray()->end(), [](const auto& name) {
    return name.AsString() != nullptr && *name.AsString() == kSequenceClass;
  });
}

core::Result<SequenceConfig> SequenceConfig::Read(const core::Value& config,
                                                  const std::string& where) {
  models::Fields fields(config, where);
  SequenceConfig c;
  const std::string task = fields.Text("task").value_or("");
  c.time = fields.Text("time").value_or("");
  HOGNOSE_TRY(fields.status());
  if (task != "regression" && task != "classification") {
    return Wrong(where, "task", '"' + task + '"', "regression or classification");
  }
  c.classification = task == "classification";
  HOGNOSE_ASSIGN(c.features, Names(config, "features", where));
  HOGNOSE_ASSIGN(c.targets, Names(config, "targets", where));
  for (const std::string& name : c.targets) {
    if (std::find(c.features.begin(), c.features.end(), name) == c.features.end()) continue;
    return Wrong(where, "targets", fmt::format("\"{}\"", name), "a name that no feature has");
  }
  const size_t count = c.features.size();
  HOGNOSE_ASSIGN(c.feature_mean, Numbers(config, "feature_mean", count, false, where));
  HOGNOSE_ASSIGN(c.feature_scale, Numbers(config, "feature_scale", count, true, where));
  HOGNOSE_TRY(c.classification ? ReadClassification(fields, &c)
                               : ReadRegression(config, fields, &c));
  return c;
}

core::Value::Object SequenceConfig::Fields() const {
  core::Value::Object fields = {{"architectures", core::Value::Array{core::Value(kSequenceClass)}},
                                {"task", classification ? "classification" : "regression"},
                                {"features", Array(features)},
                                {"targets", Array(targets)},
                                {"feature_mean", Array(feature_mean)},
                                {"feature_scale", Array(feature_scale)}};
  if (!time.empty()) fields.emplace_back("time", time);
  if (classification) {
    fields.emplace_back("classes", classes);
    return fields;
  }
  fields.emplace_back("target_mean", Array(target_mean));
  fields.emplace_back("target_scale", Array(target_scale));
  fields.emplace_back("loss", huber ? "huber" : "mse");
  fields.emplace_back("huber_delta", huber_delta);
  return fields;
}

}  // namespace hognose::models
