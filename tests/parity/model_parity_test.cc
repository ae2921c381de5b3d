// Every committed fixture against its float64 recurrence, and the invariances that must hold for
// all.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "io/safetensors.h"
#include "kernels/testing.h"
#include "runtime/session.h"
#include "tests/support/compare.h"

namespace hognose::runtime {
namespace {

using testing::CloseToScale;
using testing::SameBits;

struct Expected {
  io::SafetensorsFile file;
  std::vector<int32_t> ids;
  std::vector<size_t> rows;   // rows of `logits`: tokens whose logits are stored
  std::vector<float> logits;  // [rows, V]
};

Expected ReadExpected(const std::string& folder) {
  auto file = io::SafetensorsFile::Open(folder + "/expected.safetensors");
  EXPECT_TRUE(file.ok()) << file.status().message();
  Expected e{std::move(*file), {}, {}, {}};
  const auto& tensors = e.file.tensors();
  const auto ints = [&](std::string_view name, auto* out) {
    const auto& t = tensors.find(name)->second;
    const auto* p = static_cast<const int64_t*>(t.data);
    out->assign(p, p + t.elements());
  };
  ints("ids", &e.ids);
  if (tensors.contains("rows")) {
    ints("rows", &e.rows);
  } else {
    e.rows.resize(e.ids.size());
    std::iota(e.rows.begin(), e.rows.end(), 0);
  }
  const auto& logits = tensors.find("logits")->second;
  e.logits.assign(logits.As<float>(), logits.As<float>() + logits.elements());
  return e;
}

// LayerNorm checkpoints are refused (registry.cc); model_load_test has the message.
constexpr std::string_view kRefused = "original_mamba_layer_norm";

std::vector<std::string> Fixtures() {
  std::vector<std::string> names;
  const std::string root = HOGNOSE_SOURCE_DIR "/tests/fixtures/models";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (name != kRefused) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return HOGNOSE_SOURCE_DIR "/tests/fixtures/models/" + GetParam(); }
  std::shared_ptr<const Model> Load(size_t threads) const {
    auto model = Model::Load(folder(), {.threads = threads});
    EXPECT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE((*model)->warnings.empty()) << (*model)->warnings[0];
    return *model;
  }
  static Session New(const std::shared_ptr<const Model>& model, bool exact, size_t piece = 256) {
    auto session = Session::Create(model, {.piece = piece, .exact = exact});
    EXPECT_TRUE(session.ok()) << session.status().message();
    return std::move(*session);
  }
};

// The logits of `rows`, one after the other.
std::vector<float> Score(Session& session, const Expected& e) {
  std::vector<float> all;
  const auto status = session.Score(e.ids, [&](size_t row, std::span<const float> logits) {
    if (std::count(e.rows.begin(), e.rows.end(), row) != 0) {
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

std::vector<float> StateValues(const SessionState& state) {
  std::vector<float> all;
  for (size_t i = 0; i < state.state.layers(); ++i) {
    const auto& s = state.state.shape(i);
    std::vector<float> conv(s.taps * s.channels), ssm(s.ssm_rows() * s.width);
    nn::ExportState(s, state.state.layer(i), conv.data(), ssm.data());
    all.insert(all.end(), conv.begin(), conv.end());
    all.insert(all.end(), ssm.begin(), ssm.end());
  }
  return all;
}

// f32 within 1e-4 of the largest logit; the states to 1e-4 of their largest value.
TEST_P(Parity, LogitsAndStatesEqualTheRecurrenceOnEveryTarget) {
  const Expected e = ReadExpected(folder());
  const auto model = Load(2);
  kernels::ForEachTarget([&] {
    Session session = New(model, /*exact=*/true);
    ASSERT_TRUE(CloseToScale(Score(session, e), e.logits, 1e-4));
    const auto& state = session.state().state;
    for (size_t i = 0; i < state.layers(); ++i) {
      const auto& s = state.shape(i);
      std::vector<float> conv(s.taps * s.channels), ssm(s.ssm_rows() * s.width);
      nn::ExportState(s, state.layer(i), conv.data(), ssm.data());
      const auto want = [&](std::string_view part) {
        const auto& t =
            e.file.tensors().find("layers." + std::to_string(i) + "." + std::string(part))->second;
        return std::span(t.As<float>(), t.elements());
      };
      ASSERT_TRUE(CloseToScale(conv, want("conv"), 1e-4)) << i;
      ASSERT_TRUE(CloseToScale(ssm, want("ssm"), 1e-4)) << i;
    }
  });
}

// Rounded activations stay within 3e-2 of the largest logit.
TEST_P(Parity, RoundedActivationsStayNear) {
  const Expected e = ReadExpected(folder());
  Session session = New(Load(2), /*exact=*/false);
  ASSERT_TRUE(CloseToScale(Score(session, e), e.logits, 3e-2));
}

// Every first split, step by step and odd pieces: not near, but the same bits, with either
// precision.
TEST_P(Parity, AnySplitIntoPiecesHasTheSameBits) {
  const Expected e = ReadExpected(folder());
  const auto model = Load(2);
  for (const bool exact : {true, false}) {
    Session whole = New(model, exact);
    ASSERT_TRUE(whole.Prefill(e.ids).ok());
    const std::vector<float> logits(whole.logits().begin(), whole.logits().end());
    const std::vector<float> states = StateValues(whole.state());
    const std::span<const int32_t> ids(e.ids);
    for (size_t first = 1; first < ids.size(); first += (ids.size() > 100 ? 37 : 1)) {
      Session parts = New(model, exact);
      ASSERT_TRUE(parts.Prefill(ids.first(first)).ok());
      ASSERT_TRUE(parts.Prefill(ids.subspan(first)).ok());
      ASSERT_TRUE(SameBits(parts.logits(), logits)) << first;
      ASSERT_TRUE(SameBits(StateValues(parts.state()), states)) << first;
    }
    for (const size_t piece : {1, 2, 3, 7, 36, 37, 38}) {
      Session parts = New(model, exact, piece);
      ASSERT_TRUE(parts.Prefill(ids).ok());
      ASSERT_TRUE(SameBits(parts.logits(), logits)) << piece;
      Session scored = New(model, exact, piece);
      ASSERT_TRUE(CloseToScale(Score(scored, e), e.logits, exact ? 1e-4 : 3e-2)) << piece;
      ASSERT_TRUE(SameBits(StateValues(scored.state()), states)) << piece;
    }
  }
}

TEST_P(Parity, AnyThreadCountHasTheSameBits) {
  const Expected e = ReadExpected(folder());
  Session one = New(Load(1), /*exact=*/false);
  const auto want = Score(one, e);
  for (const size_t threads : {2, 3, 5}) {
    Session session = New(Load(threads), /*exact=*/false);
    ASSERT_TRUE(SameBits(Score(session, e), want)) << threads;
    ASSERT_TRUE(SameBits(StateValues(session.state()), StateValues(one.state()))) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Parity, ::testing::ValuesIn(Fixtures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hognose::runtime
