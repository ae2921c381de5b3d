// What the training passes of blocks share: a layer's state, and the pieces of a sequence.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/arena.h"
#include "core/tensor.h"

namespace hognose::nn {

struct LayerState {
  core::Mat<float> conv;
  core::Mat<float> ssm;
};

// Rows [begin, begin + count) of a training pass: a document, or a piece of one. They don't see the
// rows before them except through `initial`.
struct TrainSegment {
  size_t begin = 0;
  size_t count = 0;
  const LayerState* initial = nullptr;  // before the first row; null: zeros
  LayerState* last = nullptr;           // becomes the state after the last row; null: not wanted
  // Holds the gradient of `last`, becomes that of `initial`; null: zero, and not wanted.
  LayerState* gradient = nullptr;
};

// to = from, or zeros without it; both have the same shape.
inline void CopyOrClear(const core::Mat<float>& to, const core::Mat<float>* from) {
  for (size_t r = 0; r < to.rows; ++r) {
    if (from == nullptr) {
      std::fill_n(to.Row(r), to.cols, 0.0f);
    } else {
      std::copy_n(from->Row(r), to.cols, to.Row(r));
    }
  }
}

// One part of a layer's state, &LayerState::conv or &LayerState::ssm, into a buffer (zeros where
// there is no state) and back (where somebody wants it).
using StatePart = core::Mat<float> LayerState::*;
inline void LoadPart(const LayerState* from, StatePart part, const core::Mat<float>& to) {
  CopyOrClear(to, from == nullptr ? nullptr : &(from->*part));
}
inline void StorePart(const core::Mat<float>& from, StatePart part, LayerState* to) {
  if (to != nullptr) CopyOrClear(to->*part, &from);
}

}  // namespace hognose::nn
