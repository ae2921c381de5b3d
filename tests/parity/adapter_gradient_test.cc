// Gradients of LoRA adapters against those of the matrices that they add to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/fp_env.h"
#include "io/adapter.h"
#include "io/model_folder.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/testing.h"
#include "models/language_model_pass.h"
#include "models/registry.h"
#include "runtime/quantize.h"
#include "tests/support/compare.h"

namespace hognose::models {
namespace {

using testing::CloseToScale;
using testing::SameBits;
using testing::Within;
using Tensors = std::map<std::string, std::vector<float>>;

constexpr size_t kRank = 3;
constexpr float kScale = 0.5f;

constexpr struct Setting {
  size_t threads = 1;
  Checkpointing checkpointing = Checkpointing::kNone;
} kSettings[] = {{1, Checkpointing::kNone},
                 {1, Checkpointing::kLayer},
                 {3, Checkpointing::kNone},
                 {3, Checkpointing::kLayer}};

core::TensorView View(const std::vector<float>& floats, size_t rows) {
  return {floats.data(), core::DType::kF32, 2, {rows, floats.size() / rows}};
}

// A fixture in f32 with an adapter of every product, A and B as large as the matrices themselves.
class AdapterGradients : public ::testing::TestWithParam<const char*> {
 protected:
  AdapterGradients() {
    const std::string path = std::string(HOGNOSE_SOURCE_DIR "/tests/fixtures/models/") + GetParam();
    auto opened = io::OpenModelFolder(path);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    folder_ = std::move(*opened);
    core::Rng rng(5);
    for (const auto& [name, tensor] : folder_.tensors) {
      if (!name.ends_with("_proj.weight")) continue;
      EXPECT_EQ(tensor.dtype, core::DType::kF32);
      const std::string module = name.substr(0, name.size() - std::string(".weight").size());
      modules_.push_back(module);
      const size_t rows = tensor.shape[0], cols = tensor.shape[1];
      const double size = 1.0 / std::sqrt(static_cast<double>(cols));
      values_[module + std::string(io::kLoraA)] =
          testing::RandomValues(rng, kRank * cols, -size, size);
      values_[module + std::string(io::kLoraB)] =
          testing::RandomValues(rng, rows * kRank, -0.5, 0.5);
    }
    ReadProblem(path + "/gradients.safetensors");
  }

  void ReadProblem(const std::string& path) {
    const auto file = io::SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto ints = [&](const char* name) {
      const core::TensorView& tensor = file->tensors().at(name);
      const auto* p = static_cast<const int64_t*>(tensor.data);
      return std::vector<int32_t>(p, p + tensor.elements());
    };
    ids_ = ints("ids");
    targets_ = ints("targets");
    count_ =
        static_cast<double>(std::count_if(targets_.begin(), targets_.end(), [](int32_t target) {
          return target != kernels::kIgnored;
        }));
    // As gradient_parity_test derives it: what roundings do to any gradient, over its tensor's
    // largest entry.
    tolerance_ = 4.0 * *static_cast<const double*>(file->tensors().at("sensitivity").data);
    ASSERT_LE(tolerance_, 1e-4);
  }

  core::TensorMap WithAdapters(core::TensorMap tensors) const {
    for (const std::string& module : modules_) {
      const std::string a = module + std::string(io::kLoraA), b = module + std::string(io::kLoraB);
      tensors[a] = View(values_.at(a), kRank);
      tensors[b] = View(values_.at(b), values_.at(b).size() / kRank);
    }
    return tensors;
  }
  // `tensors` with W + scale B A in place of each W, summed in float64 and rounded once.
  core::TensorMap Merged(core::TensorMap tensors, Tensors& memory) const {
    for (const std::string& module : modules_) {
      core::TensorView& w = tensors.at(module + ".weight");
      const auto& a = values_.at(module + std::string(io::kLoraA));
      const auto& b = values_.at(module + std::string(io::kLoraB));
      const size_t cols = w.shape[1];
      auto& sum = memory[module];
      sum.resize(w.elements());
      for (size_t i = 0; i < sum.size(); ++i) {
        double exact = w.As<float>()[i];
        for (size_t r = 0; r < kRank; ++r) {
          exact += static_cast<double>(kScale) * b[i / cols * kRank + r] * a[r * cols + i % cols];
        }
        sum[i] = static_cast<float>(exact);
      }
      w.data = sum.data();
    }
    return tensors;
  }

  // The mean loss; `gradients` become those of its tensors, of which there is one name each.
  double Run(const core::TensorMap& tensors, Tensors& gradients,
             const Setting& setting = {}) const {
    GradientMap places;
    for (auto& [name, values] : gradients) {
      values.assign(tensors.at(name).elements(), 0.0f);
      places[name] = {values.data(), values.size()};
    }
    const auto model = Build({.config = folder_.config,
                              .config_name = "config.json",
                              .tensors = tensors,
                              .weights_name = "weights",
                              .gradients = &places,
                              .adapter_scale = kScale});
    EXPECT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE(model->unknown_tensors.empty());
    core::ThreadPool pool(setting.threads);
    const core::FlushDenormals flush;
    auto pass = LanguageModelPass::Create(
        *model, {pool},
        {.rows = ids_.size(), .checkpointing = setting.checkpointing, .exact = true});
    EXPECT_TRUE(pass.ok()) << pass.status().message();
    const Piece whole[] = {{.begin = 0, .count = ids_.size()}};
    return pass->LossAndGradients(*model, ids_, targets_, whole, static_cast<float>(1.0 / count_)) /
           count_;
  }
  Tensors AdapterNames() const {
    Tensors names;
    for (const auto& [name, values] : values_) names[name];
    return names;
  }

  io::ModelFolder folder_;
  std::vector<std::string> modules_;
  Tensors values_;  // of A and B
  std::vector<int32_t> ids_, targets_;
  double count_ = 0.0;
  double tolerance_ = 0.0;
};

// The largest sum of magnitudes of a column (`across` rows apart) of B, or of a row of A.
double LargestSum(const std::vector<float>& values, size_t lines, bool columns) {
  double largest = 0.0;
  const size_t each = values.size() / lines;
  for (size_t line = 0; line < lines; ++line) {
    double sum = 0.0;
    for (size_t i = 0; i < each; ++i) {
      sum += std::abs(static_cast<double>(values[columns ? i * lines + line : line * each + i]));
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

// dA [R, K] = scale B^T dW and dB [M, R] = scale dW A^T, in float64.
struct Products {
  std::vector<float> da, db;

  Products(const std::vector<float>& dw, const std::vector<float>& a, const std::vector<float>& b) {
    const size_t rows = b.size() / kRank, cols = a.size() / kRank;
    for (size_t r = 0; r < kRank; ++r) {
      for (size_t k = 0; k < cols; ++k) {
        double sum = 0.0;
        for (size_t m = 0; m < rows; ++m) {
          sum += static_cast<double>(b[m * kRank + r]) * dw[m * cols + k];
        }
        da.push_back(static_cast<float>(kScale * sum));
      }
    }
    for (size_t m = 0; m < rows; ++m) {
      for (size_t r = 0; r < kRank; ++r) {
        double sum = 0.0;
        for (size_t k = 0; k < cols; ++k) {
          sum += static_cast<double>(dw[m * cols + k]) * a[r * cols + k];
        }
        db.push_back(static_cast<float>(kScale * sum));
      }
    }
  }
};

// Both passes compute the same dW in exact arithmetic, each within `tolerance_` of its largest
// entry, and the merged weights' own rounding is half an eps of the one that it was measured with:
// three times the tolerance. dA and dB are products of it, so that an entry is off by at most scale
// times the sum of B's column or A's row.
TEST_P(AdapterGradients, AreProductsOfTheMergedMatrixGradient) {
  Tensors memory, whole;
  for (const std::string& module : modules_) whole[module + ".weight"];
  const core::TensorMap merged = Merged(folder_.tensors, memory);
  const core::TensorMap adapted = WithAdapters(folder_.tensors);
  kernels::ForEachTarget([&] {
    const double want_loss = Run(merged, whole);
    Tensors first;
    for (const Setting& setting : kSettings) {
      Tensors got = AdapterNames();
      const double loss = Run(adapted, got, setting);
      if (!first.empty()) {
        for (const auto& [name, values] : got) {
          ASSERT_TRUE(SameBits(values, first.at(name))) << name;
        }
        continue;
      }
      // Each within 1e-6 of the exact one, as gradient_parity_test has it.
      ASSERT_NEAR(loss, want_loss, 2e-6 * want_loss);
      for (const std::string& module : modules_) {
        const std::string a = module + std::string(io::kLoraA);
        const std::string b = module + std::string(io::kLoraB);
        const auto& dw = whole.at(module + ".weight");
        const Products want(dw, values_.at(a), values_.at(b));
        double largest = 0.0;
        for (const float value : dw)
          largest = std::max(largest, std::abs(static_cast<double>(value)));
        const double bound = 3.0 * tolerance_ * kScale * largest;
        const double by_b = bound * LargestSum(values_.at(b), kRank, /*columns=*/true);
        const double by_a = bound * LargestSum(values_.at(a), kRank, /*columns=*/false);
        ASSERT_TRUE(Within(got.at(a), want.da, by_b)) << a;
        ASSERT_TRUE(Within(got.at(b), want.db, by_a)) << b;
        // The bounds say something: a hundredth of the largest is found.
        ASSERT_TRUE(CloseToScale(got.at(a), want.da, 1e-2)) << a;
        ASSERT_TRUE(CloseToScale(got.at(b), want.db, 1e-2)) << b;
      }
      first = std::move(got);
    }
  });
}

TEST_P(AdapterGradients, TheAdapterAndItsScaleCount) {
  Tensors none, names = AdapterNames();
  const double base = Run(folder_.tensors, none);
  EXPECT_GT(std::abs(Run(WithAdapters(folder_.tensors), names) - base), 1e-3 * base);
  for (const auto& [name, values] : names) {
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return v != 0.0f; }))
        << name;
  }
}

// More ranks than rows or columns, and than ids: nothing is written past its end, and what is added
// twice is twice as much.
TEST_P(AdapterGradients, ALargeRankIsTheSumOfSmallOnes) {
  constexpr size_t kTimes = 130;
  Tensors small = AdapterNames(), large = small, memory;
  core::TensorMap tensors = WithAdapters(folder_.tensors);
  const double want = Run(tensors, small);
  for (const auto& [name, values] : values_) {
    const bool a = name.ends_with(io::kLoraA);
    auto& many = memory[name];
    // A again and again; B only once, zeros behind it.
    const size_t lines = a ? 1 : values.size() / kRank, each = values.size() / lines;
    for (size_t line = 0; line < lines; ++line) {
      for (size_t time = 0; time < kTimes; ++time) {
        for (size_t i = 0; i < each; ++i) {
          many.push_back(a || time == 0 ? values[line * each + i] : 0.0f);
        }
      }
    }
    tensors[name] = View(many, a ? kRank * kTimes : lines);
  }
  EXPECT_NEAR(Run(tensors, large), want, 2e-6 * want);
  for (const std::string& module : modules_) {
    const auto& da = large.at(module + std::string(io::kLoraA));
    const auto& want_da = small.at(module + std::string(io::kLoraA));
    EXPECT_TRUE(CloseToScale(std::span(da).first(want_da.size()), want_da, 2.0 * tolerance_));
    // Where B is zero, nothing comes back.
    EXPECT_TRUE(std::all_of(da.begin() + static_cast<ptrdiff_t>(want_da.size()), da.end(),
                            [](float v) { return v == 0.0f; }));
  }
}

// Integer weights under adapters: the backward pass has the decoded matrices, the forward pass
// activations of 16 bits, off by at most 2^-16 of a row's largest, about three times its root mean
// square. To a product that is 3 * 2^7 times what an error of one eps of every weight is, a draw of
// the sensitivity; of such draws the tolerance has room for 1.4: 3 * 2^7 / 1.4 = 275 times it.
TEST_P(AdapterGradients, OverIntegersAreThoseOverTheDecodedMatrices) {
  core::ThreadPool pool(1);
  for (const auto encoding : {codecs::Encoding::kInt8, codecs::Encoding::kInt4}) {
    auto quantized = runtime::Quantize({pool}, folder_.tensors, {.encoding = encoding}, "x");
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    core::TensorMap decoded = folder_.tensors;
    Tensors memory;
    for (auto& [name, tensor] : decoded) {
      const auto scales = quantized->tensors.find(name + ".scales");
      if (scales == quantized->tensors.end()) continue;
      codecs::WeightMatrix w(tensor);
      w.encoding = encoding;
      w.values = quantized->tensors.at(name);
      w.scales = scales->second;
      w.group = 64;
      auto& floats = memory[name];
      floats.resize(tensor.elements());
      for (size_t row = 0; row < w.rows; ++row) {
        codecs::DecodeRow(w, row, {floats.data() + row * w.cols, w.cols});
      }
      tensor.data = floats.data();
    }
    ASSERT_FALSE(memory.empty());
    kernels::ForEachTarget([&] {
      Tensors want = AdapterNames(), got = want, first;
      const double loss = Run(WithAdapters(decoded), want);
      for (const Setting& setting : kSettings) {
        ASSERT_NEAR(Run(WithAdapters(quantized->tensors), got, setting), loss, 1e-4 * loss);
        if (first.empty()) first = got;
        for (const auto& [name, values] : got) {
          ASSERT_TRUE(SameBits(values, first.at(name))) << name;
        }
      }
      for (const auto& [name, values] : got) {
        ASSERT_TRUE(CloseToScale(values, want.at(name), 275.0 * tolerance_)) << name;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, AdapterGradients,
                         ::testing::Values("mamba_basic", "mamba_odd_sizes", "mamba2_basic",
                                           "mamba2_groups_4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hognose::models
