#include "models/tape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rng.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"

namespace hognose::models {

core::Result<Tape> Tape::Create(const Backbone& backbone, const core::Exec& exec,
                                const TapeOptions& o) {
  Tape tape(nn::GradContext{.ctx = {.exec = exec, .exact = o.exact}});
  size_t scratch = 0, products = o.other_products;
  std::vector<size_t> kept(backbone.blocks.size());
  for (size_t i = 0; i < backbone.blocks.size(); ++i) {
    const nn::Mixer& mixer = *backbone.blocks[i].mixer;
    if (const core::Status status = mixer.Trainable(); !status.ok()) {
      return core::Status::Failed(fmt::format("layer {}: {}", i, status.message()));
    }
    core::Arena measure, measure_kept;
    mixer.MeasureTraining(measure, o.rows);
    mixer.MeasureKept(measure_kept, o.rows);
    scratch = std::max(scratch, measure.used());
    products = std::max(products, mixer.GradientScratch(o.rows));
    kept[i] = measure_kept.used();
  }
  if (o.checkpointing == Checkpointing::kLayer && !kept.empty()) {
    kept = {*std::max_element(kept.begin(), kept.end())};
  }
  const size_t cols = std::max(backbone.max_cols(), o.other_cols), width = backbone.width;
  const auto carve = [&](core::Arena& arena) {
    tape.h_.clear();
    for (size_t i = 0; i <= backbone.blocks.size(); ++i) {
      tape.h_.push_back(arena.NewMat<float>(o.rows, width));
    }
    tape.u_ = arena.NewMat<float>(o.rows, width);
    tape.du_ = arena.NewMat<float>(o.rows, width);
    tape.dh_ = arena.NewMat<float>(o.rows, width);
    tape.branch_ = arena.NewMat<float>(o.dropout > 0.0f ? o.rows : 0, width);
    tape.norm_scratch_ = arena.NewVec<float>(kernels::RmsNormGradScratch(o.rows, width));
    tape.g_.ctx.x_scratch = arena.NewVec<uint8_t>(kernels::LinearScratch(o.rows, cols));
    tape.g_.ctx.adapters = arena.NewVec<float>(o.rows * backbone.max_rank());
    tape.g_.adapters = arena.NewVec<float>(o.rows * backbone.max_rank());
    tape.g_.products = arena.NewVec<float>(products);
    const size_t half = o.half ? std::max(o.rows * backbone.max_size(), o.other_half) : 0;
    tape.g_.half_left = arena.NewVec<float>(half);
    tape.g_.half_right = arena.NewVec<float>(half);
    const core::Vec<float> ones = arena.NewVec<float>(o.rows);
    if (ones.data != nullptr) std::fill_n(ones.data, ones.size, 1.0f);
    tape.g_.ones = ones;
    // One allocation for all: each is rounded up to whole pages, which may be huge.
    const auto part = [&](size_t bytes) {
      return core::Arena::Over(arena.NewVec<float>(bytes / sizeof(float)));
    };
    tape.g_.scratch = part(scratch);
    tape.kept_.clear();
    for (const size_t bytes : kept) tape.kept_.push_back(part(bytes));
  };
  tape.dropout_ = o.dropout;
  tape.checkpointing_ = o.checkpointing;
  tape.g_.half = o.half;
  core::Arena measure;
  carve(measure);
  HOGNOSE_ASSIGN(tape.memory_, core::Arena::Allocate(measure.used()));
  carve(tape.memory_);
  return tape;
}

std::span<const nn::TrainSegment> Tape::Segments(std::span<const Piece> pieces, size_t block) {
  segments_.clear();
  for (const Piece& p : pieces) {
    segments_.push_back({.begin = p.begin,
                         .count = p.count,
                         .initial = p.initial == nullptr ? nullptr : &p.initial->layer(block),
                         .last = p.last == nullptr ? nullptr : &p.last->layer(block),
                         .gradient = p.gradient == nullptr ? nullptr : &p.gradient->layer(block)});
  }
  return segments_;
}

void Tape::RunBlock(const Backbone& backbone, size_t block, size_t rows, core::Mat<float> added,
                    std::span<const Piece> pieces) {
  const core::Mat<float> u = u_.Rows(0, rows);
  backbone.Norm(g_.ctx, h_[block].Rows(0, rows), backbone.blocks[block].norm_w, u);
  backbone.blocks[block].mixer->ForwardKeeping(g_, kept(block), u, Segments(pieces, block), added);
}

void Tape::Drop(size_t place, core::Mat<float> m) {
  if (!drops()) return;
  constexpr size_t kRowsPerTask = 16, kPerWord = 4, kBits = 16;
  const auto limit = static_cast<uint64_t>(dropout_ * 65536.0f);
  const float scale = 1.0f / (1.0f - static_cast<float>(limit) / 65536.0f);
  const size_t words = (m.cols + kPerWord - 1) / kPerWord;
  g_.ctx.exec.pool.Run((m.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    const size_t end = std::min(m.rows, (task + 1) * kRowsPerTask);
    for (size_t l = task * kRowsPerTask; l < end; ++l) {
      float* row = m.Row(l);
      for (size_t w = 0; w < words; ++w) {
        const uint64_t counter = (place * h_[0].rows + l) * words + w;
        uint64_t bits = core::Mix(*noise_ + (counter + 1) * core::kMixStep);
        const size_t last = std::min(m.cols, (w + 1) * kPerWord);
        for (size_t i = w * kPerWord; i < last; ++i, bits >>= kBits) {
          row[i] = (bits & 0xFFFF) < limit ? 0.0f : row[i] * scale;
        }
      }
    }
  });
}

core::Mat<const float> Tape::Forward(const Backbone& backbone, size_t rows,
                                     std::span<const Piece> pieces) {
  const size_t blocks = backbone.blocks.size();
  Drop(0, h_[0].Rows(0, rows));
  for (size_t i = 0; i < blocks; ++i) {
    const core::Mat<float> from = h_[i].Rows(0, rows), to = h_[i + 1].Rows(0, rows);
    nn::CopyOrClear(to, &from);
    if (!drops()) {
      RunBlock(backbone, i, rows, to, pieces);
      continue;
    }
    const core::Mat<float> branch = branch_.Rows(0, rows);
    nn::CopyOrClear(branch, nullptr);
    RunBlock(backbone, i, rows, branch, pieces);
    Drop(i + 1, branch);
    for (size_t l = 0; l < rows; ++l) {
      for (size_t c = 0; c < to.cols; ++c) to.Row(l)[c] += branch.Row(l)[c];
    }
  }
  const core::Mat<float> u = u_.Rows(0, rows);
  backbone.Norm(g_.ctx, h_[blocks].Rows(0, rows), backbone.norm_f, u);
  return u;
}

core::Mat<float> Tape::Backward(const Backbone& backbone, core::Mat<const float> dy,
                                std::span<const Piece> pieces) {
  const size_t rows = dy.rows, blocks = backbone.blocks.size();
  const core::Mat<float> dh = dh_.Rows(0, rows), du = du_.Rows(0, rows), u = u_.Rows(0, rows);
  const auto norm = [&](size_t i, core::Vec<const float> w, core::Vec<float> dw,
                        core::Mat<const float> from, bool accumulate) {
    kernels::RmsNormGrad(g_.ctx.exec, {.x = h_[i].Rows(0, rows),
                                       .w = w,
                                       .dy = from,
                                       .dx = dh,
                                       .accumulate_dx = accumulate,
                                       .dw = dw,
                                       .group = backbone.width,
                                       .eps = backbone.norm_eps,
                                       .scratch = norm_scratch_});
  };
  norm(blocks, backbone.norm_f, backbone.dnorm_f, dy, /*accumulate=*/false);
  for (size_t i = blocks; i-- > 0;) {
    const Block& block = backbone.blocks[i];
    if (checkpointing_ == Checkpointing::kLayer) {
      RunBlock(backbone, i, rows, {}, pieces);
    } else {
      backbone.Norm(g_.ctx, h_[i].Rows(0, rows), block.norm_w, u);
    }
    core::Mat<const float> dbranch = dh;
    if (drops()) {
      const core::Mat<float> branch = branch_.Rows(0, rows);
      const core::Mat<float> from = dh;
      nn::CopyOrClear(branch, &from);
      Drop(i + 1, branch);
      dbranch = branch;
    }
    block.mixer->Backward(g_, kept(i), u, Segments(pieces, i), dbranch, du);
    norm(i, block.norm_w, block.dnorm_w, du, /*accumulate=*/true);
  }
  Drop(0, dh);
  return dh;
}

}  // namespace hognose::models
