#include "models/language_model_pass.h"

#include <cmath>

#include "codecs/decode.h"
#include "models/test_util.h"
#include "tests/support/compare.h"

namespace hognose::models {
namespace {

constexpr size_t kRows = 13;
constexpr float kDropout = 0.3f;

// A tiny model in f32 whose tensors and gradients can be changed and read.
struct Trained {
  std::map<std::string, std::vector<float>> values, gradients;
  core::TensorMap views;
  GradientMap map;
  core::Value config;
  core::ThreadPool pool{2};

  explicit Trained(testing::TinyKind kind) {
    const testing::TinyCheckpoint tiny = testing::MakeTiny(kind);
    config = tiny.config;
    for (const auto& [name, tensor] : tiny.views()) {
      std::vector<float>& floats = values[name];
      floats.resize(tensor.elements());
      codecs::Decode(tensor, 0, floats);
      core::TensorView view = tensor;
      view.data = floats.data();
      view.dtype = core::DType::kF32;
      views[name] = view;
      gradients[name].resize(floats.size());
      map[name] = {gradients[name].data(), floats.size()};
    }
  }

  // Clears the gradients and adds those of one sequence, in `pieces` pieces of a pass.
  double Run(uint64_t noise, Checkpointing checkpointing) {
    const auto model = Build({.config = config,
                              .config_name = "config.json",
                              .tensors = views,
                              .weights_name = "weights",
                              .gradients = &map});
    EXPECT_TRUE(model.ok()) << model.status().message();
    for (auto& [name, gradient] : gradients) std::fill(gradient.begin(), gradient.end(), 0.0f);
    auto pass = LanguageModelPass::Create(
        *model, {pool},
        {.rows = kRows, .checkpointing = checkpointing, .exact = true, .dropout = kDropout});
    EXPECT_TRUE(pass.ok()) << pass.status().message();
    std::vector<int32_t> ids(kRows + 1);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((7 * i + 3) % 19);
    const Piece pieces[] = {{.begin = 0, .count = 5}, {.begin = 5, .count = kRows - 5}};
    const std::span<const int32_t> all(ids);
    return pass->LossAndGradients(*model, all.first(kRows), all.subspan(1), pieces, 1.0f, noise);
  }

  std::vector<float> Flat() const {
    std::vector<float> flat;
    for (const auto& [name, gradient] : gradients) {
      flat.insert(flat.end(), gradient.begin(), gradient.end());
    }
    return flat;
  }
};

class DropoutTest : public ::testing::TestWithParam<testing::TinyKind> {};

// Along the gradient g the loss grows by |g|^2 a step: what is dropped is the same in both passes.
TEST_P(DropoutTest, GradientIsThatOfTheSameMask) {
  Trained model(GetParam());
  model.Run(5, Checkpointing::kNone);
  const auto gradients = model.gradients;
  double squares = 0.0;
  for (const float g : model.Flat()) squares += static_cast<double>(g) * g;
  ASSERT_GT(squares, 0.0);
  const double step = 2e-3 / std::sqrt(squares);
  const auto loss_at = [&](double by) {
    Trained moved(GetParam());
    for (auto& [name, floats] : moved.values) {
      const auto& gradient = gradients.at(name);
      for (size_t i = 0; i < floats.size(); ++i) {
        floats[i] += static_cast<float>(by * gradient[i]);
      }
    }
    return moved.Run(5, Checkpointing::kNone);
  };
  const double slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
  // A loss of about 40 in f32 sums: 1e-5; over 2 step |g|^2 = 4e-3 |g|, |g| of 1 to 10: below 1e-2.
  EXPECT_NEAR(slope / squares, 1.0, 1e-2);
}

TEST_P(DropoutTest, OtherNoiseDropsOtherThingsAndBlocksRunAgainAlike) {
  Trained model(GetParam());
  const double loss = model.Run(5, Checkpointing::kNone);
  const std::vector<float> kept = model.Flat();
  EXPECT_EQ(model.Run(5, Checkpointing::kLayer), loss);
  EXPECT_TRUE(testing::SameBits(model.Flat(), kept));
  EXPECT_NE(model.Run(6, Checkpointing::kNone), loss);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DropoutTest, ::testing::ValuesIn(testing::kTinyKinds),
                         [](const auto& kind) { return std::string(Name(kind.param)); });

}  // namespace
}  // namespace hognose::models
