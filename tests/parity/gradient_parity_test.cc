// Loss and gradients of whole models against torch's autograd in float64
// (tests/oracle/gradients.py), and the invariances that must hold for all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/fp_env.h"
#include "io/model_folder.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/testing.h"
#include "models/language_model_pass.h"
#include "models/registry.h"
#include "tests/support/compare.h"

namespace hognose::models {
namespace {

using testing::CloseToScale;
using testing::SameBits;
using Gradients = std::map<std::string, std::vector<float>>;

const std::string kRoot = HOGNOSE_SOURCE_DIR "/tests/fixtures/models/";

// The committed answers to one problem.
struct Expected {
  io::SafetensorsFile file;
  std::vector<int32_t> ids, targets;
  std::vector<size_t> boundaries;  // where documents begin, and L
  double loss = 0.0;               // mean over the targets that count
  size_t count = 0;                // of them
  // Of every gradient, over its tensor's largest entry. A pass in f32 is one in exact arithmetic on
  // operands that are off by some roundings. The oracle measures what one error of every weight
  // does (uniform within one eps, 8 draws), and keeps the largest change. In a pass, what a weight
  // meets in a layer is rounded about four times forward and four times back (products,
  // convolution, exponentials, scan, norm, gate), within half an eps each: sqrt(8) / 2 = 1.4 times
  // the deviation of a draw. The largest of 8 draws is 1.8 deviations; five of the pass's own are
  // 1.4 * 5 / 1.8 = 4 times that.
  double tolerance = 0.0;
  Gradients gradients;  // by the parameter's name

  const float* Data(const std::string& name) const {
    return file.tensors().find(name)->second.As<float>();
  }
};

template <typename T>
std::vector<T> Ints(const core::TensorView& tensor) {
  const auto* p = static_cast<const int64_t*>(tensor.data);
  return std::vector<T>(p, p + tensor.elements());
}

Expected ReadExpected(const std::string& path) {
  auto file = io::SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  Expected e{std::move(*file), {}, {}, {}, 0.0, 0, 0.0, {}};
  const auto& tensors = e.file.tensors();
  e.ids = Ints<int32_t>(tensors.at("ids"));
  e.targets = Ints<int32_t>(tensors.at("targets"));
  e.boundaries = {0, e.ids.size()};
  if (const auto cut = tensors.find("boundaries"); cut != tensors.end()) {
    e.boundaries = Ints<size_t>(cut->second);
  }
  e.loss = *static_cast<const double*>(tensors.at("loss").data);
  e.tolerance = 4.0 * *static_cast<const double*>(tensors.at("sensitivity").data);
  EXPECT_LE(e.tolerance, 1e-4);
  const auto ignored = std::count(e.targets.begin(), e.targets.end(), kernels::kIgnored);
  EXPECT_GT(ignored, 0);
  e.count = e.targets.size() - static_cast<size_t>(ignored);
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with("d.")) continue;
    const float* p = tensor.As<float>();
    e.gradients[name.substr(2)].assign(p, p + tensor.elements());
  }
  return e;
}

// A fixture's model, with room for the gradients of all its tensors.
struct Trainee {
  io::ModelFolder folder;
  Gradients gradients;
  LanguageModel model;

  explicit Trainee(const std::string& path) {
    auto opened = io::OpenModelFolder(path);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    folder = std::move(*opened);
    GradientMap places;
    for (const auto& [name, tensor] : folder.tensors) {
      auto& values = gradients[name];
      values.assign(tensor.elements(), 0.0f);
      places[name] = {values.data(), values.size()};
    }
    auto built = Build({.config = folder.config,
                        .config_name = "config.json",
                        .tensors = folder.tensors,
                        .weights_name = "model.safetensors",
                        .gradients = &places});
    EXPECT_TRUE(built.ok()) << built.status().message();
    model = std::move(*built);
  }

  nn::State NewState() const {
    auto state = nn::State::Create(model.state_shapes());
    EXPECT_TRUE(state.ok());
    state->Clear();
    return std::move(*state);
  }
};

struct Setting {
  size_t threads = 1;
  Checkpointing checkpointing = Checkpointing::kNone;
};
constexpr Setting kSettings[] = {{1, Checkpointing::kNone},
                                 {1, Checkpointing::kLayer},
                                 {3, Checkpointing::kNone},
                                 {3, Checkpointing::kLayer}};

// Adds to the trainee's gradients those of the mean loss; returns the mean loss.
double AddGradients(Trainee& trainee, const Expected& e, std::span<const Piece> pieces,
                    const Setting& setting) {
  core::ThreadPool pool(setting.threads);
  const core::FlushDenormals flush;
  auto pass = LanguageModelPass::Create(
      trainee.model, {pool},
      {.rows = e.ids.size(), .checkpointing = setting.checkpointing, .exact = true});
  EXPECT_TRUE(pass.ok()) << pass.status().message();
  const auto count = static_cast<double>(e.count);
  const double sum = pass->LossAndGradients(trainee.model, e.ids, e.targets, pieces,
                                            static_cast<float>(1.0 / count));
  EXPECT_EQ(pass->Loss(trainee.model, e.ids, e.targets, pieces), sum);
  return sum / count;
}

std::vector<Piece> Documents(const std::vector<size_t>& boundaries) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    pieces.push_back({.begin = boundaries[i], .count = boundaries[i + 1] - boundaries[i]});
  }
  return pieces;
}

// The same names on both sides, and every tensor close to its scale.
::testing::AssertionResult Close(const Gradients& got, const Gradients& want, double tolerance) {
  if (want.empty()) return ::testing::AssertionFailure() << "nothing to compare";
  for (const auto& [name, values] : got) {
    if (!want.contains(name)) return ::testing::AssertionFailure() << name << ": not expected";
  }
  for (const auto& [name, values] : want) {
    const auto found = got.find(name);
    if (found == got.end()) return ::testing::AssertionFailure() << name << ": missing";
    const auto close = CloseToScale(found->second, values, tolerance);
    if (!close) return ::testing::AssertionFailure() << name << ": " << close.message();
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Same(const Gradients& got, const Gradients& want) {
  if (want.empty() || got.size() != want.size()) {
    return ::testing::AssertionFailure() << "other tensors";
  }
  for (const auto& [name, values] : want) {
    const auto same = SameBits(got.at(name), values);
    if (!same) return ::testing::AssertionFailure() << name << ": " << same.message();
  }
  return ::testing::AssertionSuccess();
}

std::vector<std::string> FixturesWith(const std::string& file) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot)) {
    if (std::filesystem::exists(entry.path() / file)) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Every setting's loss and gradients: near the expected ones, and the same bits in all.
// run(trainee, setting) gives the loss.
template <typename RunBody>
void CheckSettings(const std::string& folder, const Expected& e, const RunBody& run) {
  kernels::ForEachTarget([&] {
    Gradients first;
    double first_loss = 0.0;
    for (const Setting& setting : kSettings) {
      SCOPED_TRACE(::testing::Message()
                   << setting.threads << " threads, "
                   << (setting.checkpointing == Checkpointing::kLayer ? "kLayer" : "kNone"));
      Trainee trainee(folder);
      const double loss = run(trainee, setting);
      if (first.empty()) {
        ASSERT_NEAR(loss, e.loss, 1e-6 * e.loss);
        ASSERT_TRUE(Close(trainee.gradients, e.gradients, e.tolerance));
        first = std::move(trainee.gradients);
        first_loss = loss;
        continue;
      }
      ASSERT_EQ(loss, first_loss);
      ASSERT_TRUE(Same(trainee.gradients, first));
    }
  });
}

class GradientParity : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kRoot + GetParam(); }
};
class PackedParity : public GradientParity {};
class StateParity : public GradientParity {};

TEST_P(GradientParity, EqualAutogradOnEveryTarget) {
  const Expected e = ReadExpected(folder() + "/gradients.safetensors");
  CheckSettings(folder(), e, [&](Trainee& trainee, const Setting& setting) {
    return AddGradients(trainee, e, Documents(e.boundaries), setting);
  });
}

// Pieces that hand their states on, and the gradients of them back, are the whole sequence.
TEST_P(GradientParity, PiecesThatShareStatesEqualTheWhole) {
  const Expected e = ReadExpected(folder() + "/gradients.safetensors");
  for (const size_t cut : {size_t{1}, size_t{2}, e.ids.size() / 2, e.ids.size() - 1}) {
    Trainee trainee(folder());
    nn::State middle = trainee.NewState(), gradient = trainee.NewState();
    std::vector<Piece> pieces = Documents({0, cut, e.ids.size()});
    pieces[0].last = &middle;
    pieces[1].initial = &middle;
    pieces[0].gradient = pieces[1].gradient = &gradient;
    ASSERT_NEAR(AddGradients(trainee, e, pieces, {}), e.loss, 1e-6 * e.loss) << cut;
    ASSERT_TRUE(Close(trainee.gradients, e.gradients, e.tolerance)) << cut;
  }
}

// A second pass adds the same gradients once more.
TEST_P(GradientParity, GradientsAreAdded) {
  const Expected e = ReadExpected(folder() + "/gradients.safetensors");
  Trainee trainee(folder());
  AddGradients(trainee, e, Documents(e.boundaries), {});
  AddGradients(trainee, e, Documents(e.boundaries), {});
  for (auto& [name, values] : trainee.gradients) {
    for (float& value : values) value *= 0.5f;
  }
  ASSERT_TRUE(Close(trainee.gradients, e.gradients, e.tolerance));
}

TEST_P(PackedParity, DocumentsDoNotSeeEachOther) {
  const Expected e = ReadExpected(folder() + "/gradients_packed.safetensors");
  ASSERT_GT(e.boundaries.size(), 2U);
  CheckSettings(folder(), e, [&](Trainee& trainee, const Setting& setting) {
    return AddGradients(trainee, e, Documents(e.boundaries), setting);
  });
}

// conv and ssm of all layers under `prefix`, in the files' layout.
nn::State ReadState(const Trainee& trainee, const Expected& e, const std::string& prefix) {
  nn::State state = trainee.NewState();
  for (size_t i = 0; i < state.layers(); ++i) {
    const std::string layer = prefix + ".layers." + std::to_string(i);
    nn::ImportState(state.shape(i), e.Data(layer + ".conv"), e.Data(layer + ".ssm"),
                    state.layer(i));
  }
  return state;
}

Gradients StateValues(const nn::State& state) {
  Gradients all;
  for (size_t i = 0; i < state.layers(); ++i) {
    const auto& s = state.shape(i);
    auto& conv = all["layers." + std::to_string(i) + ".conv"];
    auto& ssm = all["layers." + std::to_string(i) + ".ssm"];
    conv.resize(s.taps * s.channels);
    ssm.resize(s.ssm_rows() * s.width);
    nn::ExportState(s, state.layer(i), conv.data(), ssm.data());
  }
  return all;
}

// A state before the first token and a gradient of the one after the last.
TEST_P(StateParity, StatesHaveGradientsToo) {
  const Expected e = ReadExpected(folder() + "/gradients_state.safetensors");
  CheckSettings(folder(), e, [&](Trainee& trainee, const Setting& setting) {
    const nn::State initial = ReadState(trainee, e, "initial");
    const Gradients want = StateValues(ReadState(trainee, e, "dinitial"));
    nn::State gradient = ReadState(trainee, e, "dfinal");
    std::vector<Piece> pieces = Documents(e.boundaries);
    pieces[0].initial = &initial;
    pieces[0].gradient = &gradient;
    const double loss = AddGradients(trainee, e, pieces, setting);
    EXPECT_TRUE(Close(StateValues(gradient), want, e.tolerance));
    return loss;
  });
}

TEST_P(StateParity, FindsAStateThatIsNotThere) {
  const Expected e = ReadExpected(folder() + "/gradients_state.safetensors");
  for (const bool first : {true, false}) {
    Trainee trainee(folder());
    const nn::State initial = ReadState(trainee, e, "initial");
    nn::State gradient = ReadState(trainee, e, "dfinal");
    std::vector<Piece> pieces = Documents(e.boundaries);
    if (first) pieces[0].initial = &initial;
    if (!first) pieces[0].gradient = &gradient;
    AddGradients(trainee, e, pieces, {});
    EXPECT_FALSE(Close(trainee.gradients, e.gradients, e.tolerance)) << first;
  }
}

TEST(GradientComparison, FindsPlantedErrors) {
  const std::string folder = kRoot + "mamba2_basic";
  const Expected e = ReadExpected(folder + "/gradients.safetensors");
  Trainee trainee(folder);
  AddGradients(trainee, e, Documents(e.boundaries), {});
  ASSERT_TRUE(Close(trainee.gradients, e.gradients, e.tolerance));
  for (const auto& [name, values] : trainee.gradients) {
    Gradients flipped = trainee.gradients, dropped = trainee.gradients;
    auto& wrong = flipped.at(name);
    const auto largest = std::max_element(
        wrong.begin(), wrong.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    *largest = -*largest;
    EXPECT_FALSE(Close(flipped, e.gradients, e.tolerance)) << name;
    dropped.erase(name);
    EXPECT_FALSE(Close(dropped, e.gradients, e.tolerance)) << name;
    dropped[name].assign(values.size(), 0.0f);
    EXPECT_FALSE(Close(dropped, e.gradients, e.tolerance)) << name;
  }
}

TEST_P(PackedParity, FindsADocumentThatSeesTheOneBefore) {
  const Expected e = ReadExpected(folder() + "/gradients_packed.safetensors");
  for (size_t i = 1; i + 1 < e.boundaries.size(); ++i) {
    Trainee trainee(folder());
    std::vector<size_t> boundaries = e.boundaries;
    boundaries.erase(boundaries.begin() + static_cast<ptrdiff_t>(i));
    AddGradients(trainee, e, Documents(boundaries), {});
    EXPECT_FALSE(Close(trainee.gradients, e.gradients, e.tolerance)) << e.boundaries[i];
  }
}

constexpr auto kName = [](const auto& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Fixtures, GradientParity,
                         ::testing::ValuesIn(FixturesWith("gradients.safetensors")), kName);
INSTANTIATE_TEST_SUITE_P(Fixtures, PackedParity,
                         ::testing::ValuesIn(FixturesWith("gradients_packed.safetensors")), kName);
INSTANTIATE_TEST_SUITE_P(Fixtures, StateParity,
                         ::testing::ValuesIn(FixturesWith("gradients_state.safetensors")), kName);

}  // namespace
}  // namespace hognose::models
