// Sequence models: configuration, building, forward pass, gradients of encoder and head.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/fp_env.h"
#include "core/rng.h"
#include "models/registry.h"
#include "models/sequence_model_pass.h"
#include "tests/support/compare.h"
#include "tests/support/status.h"
#include "tests/support/tiny_checkpoint.h"

namespace hognose::models {
namespace {

using testing::FailsAt;
using testing::kEpsF32;
using testing::RandomValues;
using testing::TinyCheckpoint;
using testing::TinyKind;

SequenceConfig Regression() {
  return {.classification = false,
          .features = {"a", "b", "c"},
          .targets = {"y", "z"},
          .time = "t",
          .feature_mean = {0.1, -3.0, 1e10},
          .feature_scale = {1.0 / 3.0, 2.0, 5.0},
          .target_mean = {1.0, 2.0},
          .target_scale = {0.7, 1e-9},
          .classes = 0,
          .huber = true,
          .huber_delta = 0.3};
}

SequenceConfig Classification() {
  SequenceConfig c = Regression();
  c.classification = true;
  c.targets = {"y"};
  c.target_mean = c.target_scale = {};
  c.classes = 5;
  c.huber = false;
  c.huber_delta = 1.0;
  return c;
}

// A tiny language model with the ends of a sequence model in place of its own.
TinyCheckpoint Tiny(TinyKind kind, const SequenceConfig& config) {
  TinyCheckpoint c = testing::MakeTiny(kind);
  for (const char* field : {"vocab_size", "architectures"}) c.Drop(field);
  std::erase_if(c.tensors, [](const auto& tensor) {
    return tensor.first.find("embed") != std::string::npos || tensor.first == "lm_head.weight";
  });
  for (const auto& [name, value] : config.Fields()) c.Set(name, value);
  c.Put("encoder.weight", {8, config.features.size()});
  c.Put("encoder.bias", {8});
  c.Put("head.weight", {config.outputs(), 8});
  c.Put("head.bias", {config.outputs()});
  return c;
}

core::Result<SequenceModel> BuildTiny(const TinyCheckpoint& c, const core::TensorMap& views) {
  return BuildSequence({c.config, "config.json", views, "w"});
}

core::Status TinyStatus(const TinyCheckpoint& c) { return BuildTiny(c, c.views()).status(); }

TEST(SequenceConfigTest, ReadsWhatItWrites) {
  for (const SequenceConfig& want : {Regression(), Classification()}) {
    const auto got = SequenceConfig::Read(want.Fields(), "config.json");
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got->classification, want.classification);
    EXPECT_EQ(got->features, want.features);
    EXPECT_EQ(got->targets, want.targets);
    EXPECT_EQ(got->time, want.time);
    EXPECT_EQ(got->feature_mean, want.feature_mean);
    EXPECT_EQ(got->feature_scale, want.feature_scale);
    EXPECT_EQ(got->target_mean, want.target_mean);
    EXPECT_EQ(got->target_scale, want.target_scale);
    EXPECT_EQ(got->classes, want.classes);
    EXPECT_EQ(got->huber, want.huber);
    EXPECT_EQ(got->huber_delta, want.huber_delta);
  }
}

TEST(SequenceConfigTest, RefusesWrongFields) {
  using Array = core::Value::Array;
  const auto refuses = [](const SequenceConfig& config, std::string_view field, core::Value value) {
    TinyCheckpoint c;
    c.config = config.Fields();
    c.Set(field, std::move(value));
    const auto status = SequenceConfig::Read(c.config, "config.json").status();
    EXPECT_TRUE(FailsAt(status, "config.json: ", {field, "got", "want"})) << field;
  };
  const SequenceConfig r = Regression(), k = Classification();
  refuses(r, "task", "lm");
  refuses(r, "task", 3);
  refuses(r, "features", Array{});
  refuses(r, "features", "a");
  refuses(r, "features", Array{"a", "a", "b"});
  refuses(r, "features", Array{"a", 1, "b"});
  refuses(r, "targets", Array{"a"});
  refuses(r, "feature_mean", Array{1.0, 2.0});
  refuses(r, "feature_mean", Array{1.0, 2.0, "x"});
  refuses(r, "feature_scale", Array{1.0, 0.0, 1.0});
  refuses(r, "feature_scale", Array{1.0, std::nan(""), 1.0});
  refuses(r, "target_mean", core::Value());
  refuses(r, "target_scale", Array{1.0, -1.0});
  refuses(r, "loss", "mae");
  refuses(r, "huber_delta", 0.0);
  refuses(k, "classes", 1);
  refuses(k, "classes", 100000);
  refuses(k, "targets", Array{"y", "z"});
}

TEST(SequenceModelTest, BuildsOnEveryArchitecture) {
  for (const TinyKind kind : {TinyKind::kMamba, TinyKind::kMamba2, TinyKind::kFalconMamba}) {
    const TinyCheckpoint c = Tiny(kind, Regression());
    const auto views = c.views();
    const auto model = BuildTiny(c, views);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->inputs(), 3u);
    EXPECT_EQ(model->outputs(), 2u);
    EXPECT_TRUE(model->unknown_tensors.empty()) << model->unknown_tensors.front();
  }
}

TEST(SequenceModelTest, RefusesWhatDoesNotFit) {
  const auto broken = [](const std::function<void(TinyCheckpoint&)>& change) {
    TinyCheckpoint c = Tiny(TinyKind::kMamba2, Regression());
    change(c);
    return TinyStatus(c);
  };
  EXPECT_TRUE(FailsAt(broken([](auto& c) {
                        c.Put("encoder.weight", {8, 4});
                      }),
                      "w: encoder.weight", {"[8, 4]", "3 columns"}));
  EXPECT_TRUE(FailsAt(broken([](auto& c) { c.Put("encoder.weight", {8}); }), "w: encoder.weight",
                      {"[D, F]"}));
  EXPECT_TRUE(FailsAt(broken([](auto& c) {
                        c.Put("head.weight", {3, 8});
                      }),
                      "w: head.weight", {"[3, 8]", "[2, 8]"}));
  EXPECT_TRUE(
      FailsAt(broken([](auto& c) { c.tensors.erase("head.bias"); }), "w: head.bias", {"missing"}));
  EXPECT_TRUE(FailsAt(broken([](auto& c) { c.Set("hidden_size", 9); }), "config.json: hidden_size",
                      {"got 9", "want 8"}));
  EXPECT_TRUE(FailsAt(broken([](auto& c) { c.Set("model_type", "gpt2"); }),
                      "config.json: model_type", {"gpt2", "Mamba2ForCausalLM"}));
}

TEST(SequenceModelTest, EachKindNamesTheOthersCommand) {
  const TinyCheckpoint sequence = Tiny(TinyKind::kMamba2, Regression()),
                       language = testing::MakeTiny(TinyKind::kMamba2);
  const auto views = sequence.views();
  EXPECT_TRUE(FailsAt(Build({sequence.config, "config.json", views, "w"}).status(),
                      "config.json: architectures", {"HognoseSequenceModel", "hognose predict"}));
  EXPECT_TRUE(FailsAt(TinyStatus(language), "config.json: architectures", {"hognose run"}));
}

// All at once, row by row and in pieces, on one thread and on three: the same bits.
TEST(SequenceModelTest, AnySplitGivesTheSameBits) {
  for (const TinyKind kind : {TinyKind::kMamba, TinyKind::kMamba2, TinyKind::kFalconMamba}) {
    const TinyCheckpoint c = Tiny(kind, Classification());
    const auto views = c.views();
    const auto model = BuildTiny(c, views);
    ASSERT_TRUE(model.ok()) << model.status().message();
    constexpr size_t kRows = 70;
    core::Rng rng(5);
    const std::vector<float> x = RandomValues(rng, kRows * 3, -2.0, 2.0);
    const auto run = [&](size_t piece, size_t threads) {
      core::ThreadPool pool(threads);
      const core::FlushDenormals flush;
      auto ws = model->NewWorkspace({pool}, kRows, true);
      auto state = nn::State::Create(model->state_shapes());
      state->Clear();
      std::vector<float> y(kRows * 5);
      for (size_t begin = 0; begin < kRows; begin += piece) {
        const size_t count = std::min(piece, kRows - begin);
        model->Forward(*ws, {x.data() + begin * 3, count, 3, 3}, *state,
                       {y.data() + begin * 5, count, 5, 5});
      }
      return y;
    };
    const std::vector<float> want = run(kRows, 1);
    for (const size_t piece : {1, 7, 64}) {
      for (const size_t threads : {1, 3}) {
        EXPECT_TRUE(testing::SameBits(run(piece, threads), want)) << piece << " " << threads;
      }
    }
  }
}

// A model without blocks: head norm_f(encoder x), which a few lines of double precision compute.
struct Toy {
  static constexpr size_t kL = 7, kF = 3, kD = 5;
  size_t outputs = 2;
  SequenceConfig config;
  // encoder.weight, encoder.bias, norm_f, head.weight, head.bias
  std::vector<std::vector<float>> p;
  std::vector<float> x, targets;
  std::vector<int32_t> classes;

  explicit Toy(const SequenceConfig& c) : outputs(c.outputs()), config(c) {
    core::Rng rng(11);
    for (const size_t size : {kD * kF, kD, kD, outputs * kD, outputs}) {
      p.push_back(RandomValues(rng, size, -1.0, 1.0));
    }
    x = RandomValues(rng, kL * kF, -1.0, 1.0);
    targets = RandomValues(rng, kL * outputs, -1.0, 1.0);
    for (size_t l = 0; l < kL; ++l) classes.push_back(static_cast<int32_t>(rng.Below(outputs)));
  }

  double RowLoss(const std::vector<double>& y, size_t l) const {
    double sum = 0.0;
    for (size_t o = 0; o < outputs; ++o) {
      const double r = y[o] - targets[l * outputs + o], d = config.huber_delta;
      if (config.classification)
        sum += std::exp(y[o]);
      else if (!config.huber)
        sum += r * r;
      else
        sum += std::abs(r) <= d ? r * r / 2 : d * (std::abs(r) - d / 2);
    }
    return config.classification ? std::log(sum) - y[classes[l]] : sum;
  }

  double Loss(const std::vector<std::vector<double>>& q) const {
    double sum = 0.0;
    for (size_t l = 0; l < kL; ++l) {
      std::vector<double> h(kD), y(outputs);
      double squares = 0.0;
      for (size_t d = 0; d < kD; ++d) {
        h[d] = q[1][d];
        for (size_t f = 0; f < kF; ++f) h[d] += q[0][d * kF + f] * x[l * kF + f];
        squares += h[d] * h[d];
      }
      const double inverse = 1.0 / std::sqrt(squares / kD + double{1e-5f});
      for (size_t o = 0; o < outputs; ++o) {
        y[o] = q[4][o];
        for (size_t d = 0; d < kD; ++d) y[o] += q[3][o * kD + d] * h[d] * inverse * q[2][d];
      }
      sum += RowLoss(y, l);
    }
    return sum;
  }

  // Central differences: the error is h^2 times a third derivative of about 10, and 1e-16 / h.
  std::vector<std::vector<float>> Differences() const {
    std::vector<std::vector<double>> q;
    for (const auto& v : p) q.emplace_back(v.begin(), v.end());
    std::vector<std::vector<float>> out;
    constexpr double kStep = 1e-5;
    for (auto& tensor : q) {
      auto& gradient = out.emplace_back();
      for (double& value : tensor) {
        const double middle = value;
        value = middle + kStep;
        const double high = Loss(q);
        value = middle - kStep;
        gradient.push_back(static_cast<float>((high - Loss(q)) / (2 * kStep)));
        value = middle;
      }
    }
    return out;
  }
};

// f32 against the differences. A prediction passes through F + D products and sums and the norm's
// D + 4 roundings; its error, as a part of the largest, reaches the gradients through as many again
// on the way back and L of the sum over rows: 4 (F + 2 D + L + 4) eps of the largest element, the
// differences' own error being far below.
TEST(SequenceModelPassTest, GradientsOfTheEnds) {
  std::vector<SequenceConfig> configs = {Regression(), Regression(), Classification()};
  configs[0].huber = false;
  configs[1].huber_delta = 0.5;
  core::ThreadPool pool(2);
  for (const SequenceConfig& config : configs) {
    const Toy toy(config);
    std::vector<std::vector<float>> grads;
    for (const auto& v : toy.p) grads.emplace_back(v.size());
    const auto view = [](const std::vector<float>& v, size_t rows, size_t cols) {
      core::TensorView t;
      t.data = v.data();
      t.rank = 2;
      t.shape = {rows, cols};
      return t;
    };
    const auto vec = [](std::vector<float>& v) { return core::Vec<float>{v.data(), v.size()}; };
    const auto cvec = [](const std::vector<float>& v) {
      return core::Vec<const float>{v.data(), v.size()};
    };
    SequenceModel model;
    model.config = config;
    model.encoder = {.w = codecs::WeightMatrix(view(toy.p[0], Toy::kD, Toy::kF)),
                     .bias = cvec(toy.p[1]),
                     .dw = vec(grads[0]),
                     .dbias = vec(grads[1])};
    model.backbone.width = Toy::kD;
    model.backbone.norm_f = cvec(toy.p[2]);
    model.backbone.dnorm_f = vec(grads[2]);
    model.head = {.w = codecs::WeightMatrix(view(toy.p[3], toy.outputs, Toy::kD)),
                  .bias = cvec(toy.p[4]),
                  .dw = vec(grads[3]),
                  .dbias = vec(grads[4])};
    auto pass = SequenceModelPass::Create(model, {pool}, {.rows = Toy::kL, .exact = true});
    ASSERT_TRUE(pass.ok()) << pass.status().message();
    const Piece whole = {.begin = 0, .count = Toy::kL};
    const SequenceTargets targets = {
        .values = {toy.targets.data(), Toy::kL, toy.outputs, toy.outputs}, .classes = toy.classes};
    const core::Mat<const float> x = {toy.x.data(), Toy::kL, Toy::kF, Toy::kF};
    const double loss = pass->LossAndGradients(model, x, targets, {&whole, 1}, 1.0f);
    constexpr double kTolerance = 4.0 * (Toy::kF + 2 * Toy::kD + Toy::kL + 4) * kEpsF32;
    std::vector<std::vector<double>> q;
    for (const auto& v : toy.p) q.emplace_back(v.begin(), v.end());
    EXPECT_NEAR(loss, toy.Loss(q), kTolerance * loss);
    EXPECT_EQ(pass->Loss(model, x, targets, {&whole, 1}), loss);
    const auto want = toy.Differences();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(testing::CloseToScale(grads[i], want[i], kTolerance)) << i;
    }
  }
}

}  // namespace
}  // namespace hognose::models
