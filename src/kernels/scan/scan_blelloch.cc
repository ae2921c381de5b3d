#include <algorithm>
#include <bit>

#include "kernels/scan/scan_piece.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scan/scan_blelloch.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/scan/scan_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::ScanPieceArgs;

bool OneChannelDense(const ScanPieceArgs& p) {
  const auto dense = [&](ptrdiff_t step) { return step == (p.x_step < 0 ? -1 : 1); };
  return p.channels == 1 && dense(p.x_step) && dense(p.a_step) && dense(p.y_step);
}

// The rows 2 i and 2 i + 1 of one channel for a register of pairs i.
struct PairVectors {
  VF first, second;
};

// From row i on, without gaps.
PairVectors LoadPairs(const float* rows, size_t i, bool reverse) {
  const DF d;
  PairVectors v;
  if (!reverse) {
    hn::LoadInterleaved2(d, rows + i, v.first, v.second);
  } else {
    hn::LoadInterleaved2(d, rows - (i + 2 * kLanes - 1), v.second, v.first);
    v = {hn::Reverse(d, v.first), hn::Reverse(d, v.second)};
  }
  return v;
}

void StorePairs(PairVectors v, float* rows, size_t i, bool reverse) {
  const DF d;
  if (!reverse) return hn::StoreInterleaved2(v.first, v.second, d, rows + i);
  hn::StoreInterleaved2(hn::Reverse(d, v.second), hn::Reverse(d, v.first), d,
                        rows - (i + 2 * kLanes - 1));
}

// Row i of total_a and total_x, `step` apart: rows 2 i and 2 i + 1 in one; a last single row alone.
template <ScanOp kOp>
void PairTotals(const ScanPieceArgs& p, float* total_a, float* total_x, ptrdiff_t step) {
  constexpr bool kLinear = kOp == ScanOp::kLinear;
  size_t i = 0;
  if (OneChannelDense(p)) {
    const bool reverse = p.x_step < 0;
    for (; i + 2 * kLanes <= p.steps; i += 2 * kLanes) {
      const PairVectors x = LoadPairs(p.x, i, reverse);
      const PairVectors a = kLinear ? LoadPairs(p.a, i, reverse) : x;
      const Step total = Combine<kOp>({a.first, x.first}, {a.second, x.second});
      if (kLinear) hn::StoreU(total.a, DF(), total_a + i / 2);
      hn::StoreU(total.x, DF(), total_x + i / 2);
    }
  }
  for (; i < p.steps; i += 2) {
    const auto row = static_cast<ptrdiff_t>(i);
    const float *a = p.a + row * p.a_step, *x = p.x + row * p.x_step;
    float *to_a = total_a + row / 2 * step, *to_x = total_x + row / 2 * step;
    const bool pair = i + 1 < p.steps;
    ForTiles(p.channels, [&](size_t begin, size_t count, auto vectors, auto full) {
      const Part<full()> part(count);
      for (size_t c = begin; c < begin + vectors() * kLanes; c += kLanes) {
        Step total = part.template LoadStep<kOp>(a + c, x + c);
        if (pair) {
          const Step second = part.template LoadStep<kOp>(a + p.a_step + c, x + p.x_step + c);
          total = Combine<kOp>(total, second);
        }
        if (kLinear) part.Store(total.a, to_a + c);
        part.Store(total.x, to_x + c);
      }
    });
  }
}

// Row i of `state`, `step` apart, is the state before rows 2 i and 2 i + 1: writes y of both.
template <ScanOp kOp>
void PairStates(const ScanPieceArgs& p, const float* state, ptrdiff_t step) {
  constexpr bool kLinear = kOp == ScanOp::kLinear;
  size_t i = 0;
  if (OneChannelDense(p)) {
    const bool reverse = p.x_step < 0;
    for (; i + 2 * kLanes <= p.steps; i += 2 * kLanes) {
      const PairVectors x = LoadPairs(p.x, i, reverse);
      const PairVectors a = kLinear ? LoadPairs(p.a, i, reverse) : x;
      const VF before = hn::LoadU(DF(), state + i / 2);
      const VF between = Apply<kOp>(before, {a.first, x.first});
      const VF after = Apply<kOp>(between, {a.second, x.second});
      StorePairs(p.exclusive ? PairVectors{before, between} : PairVectors{between, after}, p.y, i,
                 reverse);
    }
  }
  for (; i < p.steps; i += 2) {
    const auto row = static_cast<ptrdiff_t>(i);
    const float *a = p.a + row * p.a_step, *x = p.x + row * p.x_step;
    const float* from = state + row / 2 * step;
    float* y = p.y + row * p.y_step;
    const bool pair = i + 1 < p.steps;
    ForTiles(p.channels, [&](size_t begin, size_t count, auto vectors, auto full) {
      const Part<full()> part(count);
      for (size_t c = begin; c < begin + vectors() * kLanes; c += kLanes) {
        const VF before = part.Load(from + c);
        const VF between = Apply<kOp>(before, part.template LoadStep<kOp>(a + c, x + c));
        VF first = between, second = before;
        if (pair) {
          second =
              Apply<kOp>(between, part.template LoadStep<kOp>(a + p.a_step + c, x + p.x_step + c));
        }
        if (p.exclusive) {
          first = before;
          second = between;
        }
        part.Store(first, y + c);
        if (pair) part.Store(second, y + p.y_step + c);
      }
    });
  }
}

void DoPairTotals(const ScanPieceArgs& p, float* total_a, float* total_x, ptrdiff_t step) {
  ForOp(p.op, [&](auto op) { PairTotals<op()>(p, total_a, total_x, step); });
}
void DoPairStates(const ScanPieceArgs& p, const float* state, ptrdiff_t step) {
  ForOp(p.op, [&](auto op) { PairStates<op()>(p, state, step); });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(DoPairTotals);
HWY_EXPORT(DoPairStates);

constexpr size_t kChannelsPerTask = 256;  // above the blocks

// Level 0 are the steps themselves; a row of level k + 1 stands for two of level k, up to one row
// at the root. The lowest levels of 2^block_levels steps are one task, so that they are still in
// the cache when the next level wants them.
struct Tree {
  size_t sequences, steps, channels;
  size_t levels, block_levels;

  explicit Tree(const ScanShape& s) : sequences(s.sequences), steps(s.steps), channels(s.channels) {
    constexpr size_t kElements = 8192, kMinBlockLevels = 4;
    levels = std::max<size_t>(1, std::bit_width(steps - 1));
    const size_t fit = std::bit_width(std::max<size_t>(1, kElements / channels)) - 1;
    block_levels = std::min(levels, std::max(kMinBlockLevels, fit));
  }
  size_t Rows(size_t level) const { return ((steps - 1) >> level) + 1; }
  size_t blocks() const { return Rows(block_levels); }
  // Floats of one sequence's levels from 1 up to `level`, that one left out.
  size_t Offset(size_t level) const {
    size_t rows = 0;
    for (size_t k = 1; k < level; ++k) rows += Rows(k);
    return rows * channels;
  }
  size_t sequence_size() const { return Offset(levels + 1); }
};

// The totals of all levels above 0, later the states before them, in x; a for kLinear only.
class Levels {
 public:
  Levels(const ScanArgs& args, const Tree& tree)
      : args_(args), tree_(tree), x_(args.scratch.data), a_(x_) {
    if (args.op == ScanOp::kLinear) a_ += tree.sequences * tree.sequence_size();
  }

  // Totals of level + 1 for rows [begin, end) of `level`, begin even, and of some channels.
  void Up(size_t b, size_t level, size_t begin, size_t end, size_t c, size_t channels) const {
    const size_t above = At(b, level + 1, begin / 2, c);
    HWY_DYNAMIC_DISPATCH(DoPairTotals)
    (Piece(b, level, begin, end, c, channels), a_ + above, x_ + above, Step());
  }
  // States before rows [begin, end) of `level`, or y on level 0.
  void Down(size_t b, size_t level, size_t begin, size_t end, size_t c, size_t channels) const {
    HWY_DYNAMIC_DISPATCH(DoPairStates)
    (Piece(b, level, begin, end, c, channels), x_ + At(b, level + 1, begin / 2, c), Step());
  }
  // The state before the root is the initial one; the root's total gives the last one.
  void PassRoot(size_t b, size_t c, size_t channels) const {
    const size_t root = At(b, tree_.levels, 0, c);
    float initial[kChannelsPerTask], after[kChannelsPerTask];
    if (args_.initial.rows == 0) {
      std::fill_n(initial, channels, internal::Identity(args_.op));
    } else {
      std::copy_n(args_.initial.Row(b) + c, channels, initial);
    }
    internal::AdvanceState(args_.op, channels, a_ + root, x_ + root, initial, after);
    if (args_.last.rows != 0) std::copy_n(after, channels, args_.last.Row(b) + c);
    std::copy_n(initial, channels, x_ + root);
  }

 private:
  ptrdiff_t Step() const { return static_cast<ptrdiff_t>(tree_.channels); }
  size_t At(size_t b, size_t level, size_t row, size_t c) const {
    return b * tree_.sequence_size() + tree_.Offset(level) + row * tree_.channels + c;
  }
  internal::ScanPieceArgs Piece(size_t b, size_t level, size_t begin, size_t end, size_t c,
                                size_t channels) const {
    if (level == 0) return internal::PieceOf(args_, b, begin, end - begin, c, channels);
    const size_t at = At(b, level, begin, c);
    return {.op = args_.op,
            .exclusive = true,
            .a = a_ + at,
            .x = x_ + at,
            .y = x_ + at,
            .a_step = Step(),
            .x_step = Step(),
            .y_step = Step(),
            .steps = end - begin,
            .channels = channels};
  }

  const ScanArgs& args_;
  const Tree& tree_;
  float* x_;
  float* a_;
};

}  // namespace

namespace internal {

size_t BlellochBlocks(const ScanShape& shape) noexcept { return Tree(shape).blocks(); }

size_t BlellochScratch(const ScanShape& shape) noexcept {
  const Tree tree(shape);
  const size_t operands = shape.op == ScanOp::kLinear ? 2 : 1;
  return operands * tree.sequences * tree.sequence_size();
}

void ScanBlelloch(core::Exec& exec, const ScanArgs& args) noexcept {
  const Tree tree({args.op, args.x.sequences, args.x.steps, args.x.channels});
  const Levels levels(args, tree);
  const size_t channels = tree.channels, blocks = tree.blocks();
  // Rows of `level` that belong to the block.
  const auto first = [&](size_t block, size_t level) {
    return block << (tree.block_levels - level);
  };
  const auto end = [&](size_t block, size_t level) {
    return std::min(tree.Rows(level), first(block + 1, level));
  };
  exec.pool.Run(tree.sequences * blocks, [&](size_t task) {
    const size_t b = task / blocks, block = task % blocks;
    for (size_t k = 0; k < tree.block_levels; ++k) {
      levels.Up(b, k, first(block, k), end(block, k), 0, channels);
    }
  });
  const size_t parts = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  exec.pool.Run(tree.sequences * parts, [&](size_t task) {
    const size_t b = task / parts, c = task % parts * kChannelsPerTask;
    const size_t count = std::min(kChannelsPerTask, channels - c);
    for (size_t k = tree.block_levels; k < tree.levels; ++k) {
      levels.Up(b, k, 0, tree.Rows(k), c, count);
    }
    levels.PassRoot(b, c, count);
    for (size_t k = tree.levels; k-- > tree.block_levels;) {
      levels.Down(b, k, 0, tree.Rows(k), c, count);
    }
  });
  exec.pool.Run(tree.sequences * blocks, [&](size_t task) {
    const size_t b = task / blocks, block = task % blocks;
    for (size_t k = tree.block_levels; k-- > 0;) {
      levels.Down(b, k, first(block, k), end(block, k), 0, channels);
    }
  });
}

}  // namespace internal
}  // namespace hognose::kernels
#endif
