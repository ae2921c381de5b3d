// Any configuration with any tensors gives a model or a Status. Valid checkpoints are broken at
// random, a pure function of the case's number; what still builds must run clean (under sanitizers:
// tensors have memory of exactly their size).
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <limits>

#include "core/rng.h"
#include "models/test_util.h"

namespace hognose::models {
namespace {

using core::DType;
using core::Rng;
using core::Value;
using testing::MakeTiny;
using testing::TinyCheckpoint;
using testing::TinyTensor;

Value AnyValue(Rng& rng) {
  const Value values[] = {Value(),
                          Value(true),
                          Value(false),
                          Value(-1),
                          Value(INT64_MIN),
                          Value(INT64_MAX),
                          Value(int64_t{1} << 31),
                          Value((int64_t{1} << 31) + 1),
                          Value(2.5),
                          Value(-0.0),
                          Value(1e300),
                          Value(std::numeric_limits<double>::infinity()),
                          Value(std::numeric_limits<double>::quiet_NaN()),
                          Value(""),
                          Value("auto"),
                          Value("Mamba2ForCausalLM"),
                          Value("Infinity"),
                          Value(Value::Array{}),
                          Value(Value::Array{1, 2}),
                          Value(Value::Array{0.0, Value::Object{{"__float__", "Infinity"}}}),
                          Value(Value::Object{}),
                          Value(Value::Object{{"layer", "Mamba2"}})};
  if (rng.Below(2) == 0) return Value(rng.Below(30));
  return values[rng.Below(std::size(values))];
}

const std::string& AnyTensor(Rng& rng, const TinyCheckpoint& c) {
  return std::next(c.tensors.begin(), static_cast<ptrdiff_t>(rng.Below(c.tensors.size())))->first;
}

size_t AnySize(Rng& rng, size_t old) {
  const size_t sizes[] = {0, 1, old / 2, old - 1, old + 1, 2 * old, rng.Below(40)};
  const size_t size = sizes[rng.Below(std::size(sizes))];
  return size > 200 ? 0 : size;
}

void Reshape(Rng& rng, TinyCheckpoint& c) {
  const std::string name = AnyTensor(rng, c);
  auto shape = c.tensors.at(name).shape;
  const uint64_t how = rng.Below(4);
  if (how == 0 && !shape.empty()) {
    shape.erase(shape.begin() + static_cast<ptrdiff_t>(rng.Below(shape.size())));
  } else if (how == 1 && shape.size() < 4) {
    shape.insert(shape.begin() + static_cast<ptrdiff_t>(rng.Below(shape.size() + 1)), rng.Below(3));
  } else if (how == 2 && shape.size() > 1) {
    std::swap(shape.front(), shape.back());
  } else if (!shape.empty()) {
    auto& n = shape[rng.Below(shape.size())];
    n = AnySize(rng, n);
  }
  c.Put(name, shape);
}

// One size becomes another one wherever it stands, so that the tensors still agree with each other.
void ChangeSizeEverywhere(Rng& rng, TinyCheckpoint& c) {
  const auto& some = c.tensors.at(AnyTensor(rng, c)).shape;
  if (some.empty()) return;
  const size_t from = some[rng.Below(some.size())], to = AnySize(rng, from);
  for (auto& [name, tensor] : c.tensors) {
    auto shape = tensor.shape;
    std::replace(shape.begin(), shape.end(), from, to);
    if (shape != tensor.shape) c.Put(name, shape, tensor.dtype);
  }
}

void ChangeNumber(Rng& rng, TinyCheckpoint& c) {
  TinyTensor& tensor = c.tensors.at(AnyTensor(rng, c));
  if (tensor.bytes.size() < 4) return;
  const float values[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::max(),
                          -200.0f,
                          1e-40f};
  const float value = values[rng.Below(std::size(values))];
  std::memcpy(tensor.bytes.data() + rng.Below(tensor.bytes.size() / 4) * 4, &value, 4);
}

void Rename(Rng& rng, TinyCheckpoint& c) {
  auto node = c.tensors.extract(AnyTensor(rng, c));
  const std::string_view names[] = {"",
                                    "lm_head.weight",
                                    "lm_head.bias",
                                    "embeddings.weight",
                                    "backbone.layers.1.mixer.in_proj.bias",
                                    "backbone.layers.18446744073709551616.norm.weight",
                                    "backbone.layers.-1.norm.weight"};
  node.key() = rng.Below(2) == 0 && !c.tensors.empty() ? AnyTensor(rng, c)
                                                       : names[rng.Below(std::size(names))];
  c.tensors.erase(node.key());
  c.tensors.insert(std::move(node));
}

void Mutate(Rng& rng, TinyCheckpoint& c) {
  if (c.tensors.empty()) return;
  const auto fields = c.fields();
  const auto field = [&] { return fields.empty() ? "x" : fields[rng.Below(fields.size())]; };
  switch (rng.Below(9)) {
    case 0:
      c.tensors.erase(AnyTensor(rng, c));
      return;
    case 1:
      return Rename(rng, c);
    case 2:
      return Reshape(rng, c);
    case 3:
    case 4:
      return ChangeSizeEverywhere(rng, c);
    case 5:
      return c.Retype(AnyTensor(rng, c), core::kDTypes[rng.Below(core::kDTypes.size())].dtype);
    case 6:
      return c.Drop(field());
    case 7:
      return ChangeNumber(rng, c);
    default:
      return c.Set(field(), AnyValue(rng));
  }
}

// Drops every size from the config, so that the tensors alone decide.
void DropSizes(TinyCheckpoint& c) {
  for (const auto& field : c.fields()) {
    const Value* value = c.config.Find(field);
    if (value != nullptr && value->AsInt() != nullptr) c.Set(field, "auto");
    if (field.starts_with("ssm_cfg.d_") || field == "ssm_cfg.headdim") c.Drop(field);
  }
}

TEST(Mutations, GiveAModelThatRunsOrAStatus) {
  size_t built = 0, refused = 0;
  for (uint64_t number = 0; number < 20000; ++number) {
    SCOPED_TRACE(number);
    Rng rng(number);
    TinyCheckpoint c = MakeTiny(testing::kTinyKinds[number % std::size(testing::kTinyKinds)]);
    if (rng.Below(2) == 0) DropSizes(c);
    for (uint64_t i = 0, count = 1 + rng.Below(3); i < count; ++i) Mutate(rng, c);
    const core::TensorMap views = c.views();
    const auto model = Build({c.config, "config.json", views, "model.safetensors"});
    if (!model.ok()) {
      ++refused;
      const std::string message = model.status().message();
      ASSERT_TRUE(message.starts_with(kConfig) || message.starts_with(kWeights)) << message;
      continue;
    }
    ++built;
    const auto last = static_cast<int32_t>(model->input_ids() - 1);
    ASSERT_EQ(RunModel(*model, {0, last, 0}).size(), model->logits_size());
  }
  // Both ends are reached often, or the test looks at nothing.
  EXPECT_GT(built, 2000u);
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace hognose::models
