#include "nn/mixer.h"

#include <algorithm>

namespace hognose::nn {
namespace {

std::vector<LayerState> Carve(core::Arena& arena, const std::vector<StateShape>& shapes) {
  std::vector<LayerState> layers;
  for (const auto& s : shapes) {
    layers.push_back(
        {arena.NewMat<float>(s.taps, s.channels), arena.NewMat<float>(s.ssm_rows(), s.width)});
  }
  return layers;
}

template <typename Body>  // body(mat of this, mat of the other)
void ForEachMat(std::vector<LayerState>& to, const std::vector<LayerState>& from,
                const Body& body) {
  for (size_t i = 0; i < to.size(); ++i) {
    body(to[i].conv, from[i].conv);
    body(to[i].ssm, from[i].ssm);
  }
}

}  // namespace

size_t Mixer::max_cols() const {
  size_t cols = 0;
  for (const Linear* linear : linears())
    cols = std::max({cols, linear->cols(), linear->lora.rank()});
  return cols;
}

size_t Mixer::max_rank() const {
  size_t rank = 0;
  for (const Linear* linear : linears()) rank = std::max(rank, linear->lora.rank());
  return rank;
}

size_t Mixer::GradientScratch(size_t rows) const {
  size_t floats = 0;
  for (const Linear* linear : linears()) floats = std::max(floats, linear->GradientScratch(rows));
  return floats;
}

core::Result<State> State::Create(std::vector<StateShape> shapes) {
  core::Arena measure;
  Carve(measure, shapes);
  HOGNOSE_ASSIGN(core::Arena arena, core::Arena::Allocate(measure.used()));
  State state;
  state.layers_ = Carve(arena, shapes);
  state.arena_ = std::move(arena);
  state.shapes_ = std::move(shapes);
  return state;
}

void State::Clear() {
  ForEachMat(layers_, layers_, [](core::Mat<float> to, core::Mat<float>) {
    std::fill_n(to.data, to.rows * to.stride, 0.0f);
  });
}

void State::CopyFrom(const State& other) {
  HOGNOSE_CHECK(layers_.size() == other.layers_.size());
  ForEachMat(layers_, other.layers_, [](core::Mat<float> to, core::Mat<float> from) {
    HOGNOSE_CHECK(to.rows == from.rows && to.stride == from.stride);
    std::copy_n(from.data, from.rows * from.stride, to.data);
  });
}

void ExportState(const StateShape& s, const LayerState& state, float* conv, float* ssm) {
  for (size_t c = 0; c < s.channels; ++c) {
    for (size_t k = 0; k < s.taps; ++k) conv[c * s.taps + k] = state.conv.Row(k)[c];
  }
  for (size_t row = 0; row < s.ssm_rows(); ++row) {
    const size_t head = row / s.states, n = row % s.states;
    for (size_t p = 0; p < s.width; ++p) {
      ssm[(head * s.width + p) * s.states + n] = state.ssm.Row(row)[p];
    }
  }
}

void ImportState(const StateShape& s, const float* conv, const float* ssm, LayerState& state) {
  for (size_t c = 0; c < s.channels; ++c) {
    for (size_t k = 0; k < s.taps; ++k) state.conv.Row(k)[c] = conv[c * s.taps + k];
  }
  for (size_t row = 0; row < s.ssm_rows(); ++row) {
    const size_t head = row / s.states, n = row % s.states;
    for (size_t p = 0; p < s.width; ++p) {
      state.ssm.Row(row)[p] = ssm[(head * s.width + p) * s.states + n];
    }
  }
}

}  // namespace hognose::nn
