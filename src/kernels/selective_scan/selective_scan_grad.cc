#include <algorithm>

#include "kernels/selective_scan/selective_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/selective_scan_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_SELECTIVE_SCAN_GRAD_ONCE_
#define HOGNOSE_SELECTIVE_SCAN_GRAD_ONCE_
namespace {
// Steps whose states are held at once: what belongs to them must fit the first-level cache.
constexpr size_t kSteps = 16;
// Channels of one task; a multiple of kMaxWidth.
constexpr size_t kChannels = 64;
// Channels that are walked together, at most: two vectors of the widest target.
constexpr size_t kMaxWidth = 32;

inline size_t Ceil(size_t a, size_t b) { return (a + b - 1) / b; }
// A task's row of dc and db: for each two states dc, dc, db, db.
inline size_t SlotColumns(size_t states) { return Ceil(states, 2) * 4; }
inline size_t EdgeFloats(size_t l, size_t e, size_t n) {
  return Ceil(l, kSteps) * n * Ceil(e, kMaxWidth) * kMaxWidth;
}
// [L, SlotColumns] of one task, behind the states at the edges.
inline float* Slot(const SelectiveScanGradArgs& a, size_t task) {
  const size_t l = a.x.rows, n = a.b.cols;
  return a.scratch.data + EdgeFloats(l, a.x.cols, n) + task * l * SlotColumns(n);
}
}  // namespace
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Two vectors of channels and two states at a time: their states, gradients and sums over time stay
// in registers, and the four sums over channels of a step are one SumLanes4.
constexpr size_t kVecs = 2;
constexpr size_t kPair = 2;
constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

// The channels of a task, and how their vectors are read and written: those from channel e on.
struct Channels {
  const SelectiveScanGradArgs& args;
  size_t begin, end;

  size_t Count(size_t e) const { return std::min(hn::Lanes(DF()), end - std::min(end, e)); }
  VF LoadFrom(const float* row, size_t e) const { return LoadN(DF(), row + e, Count(e)); }
  void StoreTo(VF value, float* row, size_t e) const { StoreN(DF(), value, row + e, Count(e)); }
  void AddTo(VF value, float* row, size_t e) const {
    StoreTo(hn::Add(LoadFrom(row, e), value), row, e);
  }
  // The end of the last kVecs vectors, where the values of a block are zero from `end` on.
  size_t PaddedEnd() const {
    const size_t width = kVecs * hn::Lanes(DF());
    return begin + Ceil(end - begin, width) * width;
  }
  // The states before block `block` of time, channels [e, e + kVecs vectors): [N, kVecs vectors].
  float* Edge(size_t block, size_t e) const {
    const size_t n = args.b.cols, blocks = Ceil(args.x.rows, kSteps);
    return args.scratch.data + (e * blocks + block * kVecs * hn::Lanes(DF())) * n;
  }
};

// One block of time: what all states share. Read and written for all channels of the task in a row,
// as short pieces of rows that lie far apart are slow to come.
struct Block {
  using Values = float[kSteps][kChannels];
  size_t t0, steps;
  HWY_ALIGN Values dt, dtx, dy, sigmoid;  // dy: before the gate; sigmoid: of z
  HWY_ALIGN Values y, s, w;               // sums over the states so far
  HWY_ALIGN float dskip[kChannels];       // sum over all blocks so far
};

// Two states in a block of time: h[t] before step t, and the decay of step t.
struct Kept {
  HWY_ALIGN float h[kSteps + 1][kPair * kVecs * kMaxLanes];
  HWY_ALIGN float decay[kSteps][kPair * kVecs * kMaxLanes];
};

HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

// softplus is computed once: the result's memory, ddt, keeps it until the way back.
void LoadBlock(const Channels& ch, size_t block, bool softplus_known, Block& k) {
  const DF d;
  const SelectiveScanGradArgs& a = ch.args;
  k.t0 = block * kSteps;
  k.steps = std::min(kSteps, a.x.rows - k.t0);
  for (size_t t = 0; t < k.steps; ++t) {
    const float* raw = a.dt.Row(k.t0 + t);
    const float* x = a.x.Row(k.t0 + t);
    float* ddt = a.ddt.Row(k.t0 + t);
    for (size_t e = ch.begin; e < ch.PaddedEnd(); e += hn::Lanes(d)) {
      const VF dt = softplus_known ? ch.LoadFrom(ddt, e) : Softplus(d, ch.LoadFrom(raw, e));
      if (!softplus_known) ch.StoreTo(dt, ddt, e);
      hn::Store(dt, d, k.dt[t] + e - ch.begin);
      hn::Store(hn::Mul(dt, ch.LoadFrom(x, e)), d, k.dtx[t] + e - ch.begin);
    }
  }
}

void LoadGate(const Channels& ch, Block& k) {
  const DF d;
  for (size_t t = 0; t < k.steps; ++t) {
    const float* z_row = ch.args.z.Row(k.t0 + t);
    const float* dy_row = ch.args.dy.Row(k.t0 + t);
    for (size_t e = ch.begin; e < ch.PaddedEnd(); e += hn::Lanes(d)) {
      const size_t i = e - ch.begin;
      const VF z = ch.LoadFrom(z_row, e);
      const VF sigmoid = Sigmoid(z);
      hn::Store(sigmoid, d, k.sigmoid[t] + i);
      hn::Store(hn::Mul(ch.LoadFrom(dy_row, e), hn::Mul(z, sigmoid)), d, k.dy[t] + i);
      for (float* sum : {k.y[t], k.s[t], k.w[t]}) hn::Store(hn::Zero(d), d, sum + i);
    }
  }
}

// States [n, n + kN) of kVecs vectors of channels from e on through the block, from `from`. With
// kKeep all of them are stored in `kept` and added to y; without it only the last, in `to`.
template <size_t kN, bool kKeep>
void Advance(const Channels& ch, size_t e, size_t n, const float* from, Block& k, Kept* kept,
             float* to) {
  const DF d;
  const size_t lanes = hn::Lanes(d), column = e - ch.begin;
  VF h[kN][kVecs], rate[kN][kVecs];
  for (size_t i = 0; i < kN; ++i) {
    for (size_t v = 0; v < kVecs; ++v) {
      h[i][v] = hn::LoadU(d, from + (i * kVecs + v) * lanes);
      if (kKeep) hn::Store(h[i][v], d, kept->h[0] + (i * kVecs + v) * lanes);
      rate[i][v] = hn::Mul(ch.LoadFrom(ch.args.a.Row(n + i), e + v * lanes),
                           hn::Set(d, 1.44269504088896341f));
    }
  }
  for (size_t t = 0; t < k.steps; ++t) {
    const float* b = ch.args.b.Row(k.t0 + t) + n;
    const float* c = ch.args.c.Row(k.t0 + t) + n;
    for (size_t v = 0; v < kVecs; ++v) {
      const VF dt = hn::Load(d, k.dt[t] + column + v * lanes);
      const VF dtx = hn::Load(d, k.dtx[t] + column + v * lanes);
      VF y = kKeep ? hn::Load(d, k.y[t] + column + v * lanes) : hn::Zero(d);
      for (size_t i = 0; i < kN; ++i) {
        const VF decay = Exp2NonPositive(d, hn::Mul(dt, rate[i][v]));
        h[i][v] = hn::MulAdd(decay, h[i][v], hn::Mul(dtx, hn::Set(d, b[i])));
        if (kKeep) {
          hn::Store(decay, d, kept->decay[t] + (i * kVecs + v) * lanes);
          hn::Store(h[i][v], d, kept->h[t + 1] + (i * kVecs + v) * lanes);
          y = hn::MulAdd(hn::Set(d, c[i]), h[i][v], y);
        }
      }
      if (kKeep) hn::Store(y, d, k.y[t] + column + v * lanes);
    }
  }
  if (kKeep) return;
  for (size_t i = 0; i < kN; ++i) {
    for (size_t v = 0; v < kVecs; ++v) hn::StoreU(h[i][v], d, to + (i * kVecs + v) * lanes);
  }
}

// The gradient of states [n, n + kN) back through the block. slot: the task's rows of dc and db.
template <size_t kN>
void SweepBack(const Channels& ch, size_t e, size_t n, const Kept& kept, Block& k, float* slot) {
  const DF d;
  const size_t lanes = hn::Lanes(d), column = e - ch.begin;
  const SelectiveScanGradArgs& args = ch.args;
  VF g[kN][kVecs], a[kN][kVecs], da[kN][kVecs], h[kN][kVecs];
  for (size_t i = 0; i < kN; ++i) {
    for (size_t v = 0; v < kVecs; ++v) {
      g[i][v] = ch.LoadFrom(args.dstate.Row(n + i), e + v * lanes);
      a[i][v] = ch.LoadFrom(args.a.Row(n + i), e + v * lanes);
      h[i][v] = hn::Load(d, kept.h[k.steps] + (i * kVecs + v) * lanes);
      da[i][v] = hn::Zero(d);
    }
  }
  for (size_t t = k.steps; t-- > 0;) {
    const float* b = args.b.Row(k.t0 + t) + n;
    const float* c = args.c.Row(k.t0 + t) + n;
    VF sums[2 * kPair] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};  // dc, dc, db, db
    for (size_t v = 0; v < kVecs; ++v) {
      const VF dt = hn::Load(d, k.dt[t] + column + v * lanes);
      const VF dtx = hn::Load(d, k.dtx[t] + column + v * lanes);
      const VF dy = hn::Load(d, k.dy[t] + column + v * lanes);
      VF s = hn::Load(d, k.s[t] + column + v * lanes);
      VF w = hn::Load(d, k.w[t] + column + v * lanes);
      for (size_t i = 0; i < kN; ++i) {
        const VF before = hn::Load(d, kept.h[t] + (i * kVecs + v) * lanes);
        g[i][v] = hn::MulAdd(dy, hn::Set(d, c[i]), g[i][v]);
        s = hn::MulAdd(g[i][v], hn::Set(d, b[i]), s);
        const VF dc = hn::Mul(dy, h[i][v]), db = hn::Mul(dtx, g[i][v]);
        sums[i] = v == 0 ? dc : hn::MulAdd(dy, h[i][v], sums[i]);
        sums[kPair + i] = v == 0 ? db : hn::MulAdd(dtx, g[i][v], sums[kPair + i]);
        g[i][v] = hn::Mul(g[i][v], hn::Load(d, kept.decay[t] + (i * kVecs + v) * lanes));
        const VF gq = hn::Mul(g[i][v], before);
        w = hn::MulAdd(gq, a[i][v], w);
        da[i][v] = hn::MulAdd(gq, dt, da[i][v]);
        h[i][v] = before;
      }
      hn::Store(s, d, k.s[t] + column + v * lanes);
      hn::Store(w, d, k.w[t] + column + v * lanes);
    }
    HWY_ALIGN float total[2 * kPair];
    SumLanes4(d, sums[0], sums[1], sums[2], sums[3], total);
    float* to = slot + (k.t0 + t) * SlotColumns(args.b.cols) + 2 * n;
    for (size_t i = 0; i < 2 * kPair; ++i) to[i] += total[i];
  }
  for (size_t i = 0; i < kN; ++i) {
    for (size_t v = 0; v < kVecs; ++v) {
      ch.StoreTo(g[i][v], args.dstate.Row(n + i), e + v * lanes);
      if (args.da.data != nullptr) ch.AddTo(da[i][v], args.da.Row(n + i), e + v * lanes);
    }
  }
}

// What is left of a block when all states have been through it.
void FinishBlock(const Channels& ch, Block& k) {
  const DF d;
  const SelectiveScanGradArgs& a = ch.args;
  const VF one = hn::Set(d, 1.0f);
  for (size_t t = 0; t < k.steps; ++t) {
    const size_t row = k.t0 + t;
    for (size_t e = ch.begin; e < ch.end; e += hn::Lanes(d)) {
      const size_t i = e - ch.begin;
      const VF skip = ch.LoadFrom(a.d_skip.data, e);
      const VF gy = hn::Load(d, k.dy[t] + i), s = hn::Load(d, k.s[t] + i);
      const VF x = ch.LoadFrom(a.x.Row(row), e);
      hn::Store(hn::MulAdd(gy, x, hn::Load(d, k.dskip + i)), d, k.dskip + i);
      ch.StoreTo(hn::MulAdd(hn::Load(d, k.dt[t] + i), s, hn::Mul(skip, gy)), a.dx.Row(row), e);
      const VF raw = ch.LoadFrom(a.dt.Row(row), e);
      const VF slope = hn::IfThenElse(hn::Gt(raw, hn::Set(d, 20.0f)), one, Sigmoid(raw));
      const VF ddt = hn::MulAdd(x, s, hn::Load(d, k.w[t] + i));
      ch.StoreTo(hn::Mul(ddt, slope), a.ddt.Row(row), e);
      // silu' = sigmoid (1 + z (1 - sigmoid)).
      const VF sigmoid = hn::Load(d, k.sigmoid[t] + i);
      const VF z = ch.LoadFrom(a.z.Row(row), e);
      const VF gate = hn::Mul(sigmoid, hn::MulAdd(z, hn::Sub(one, sigmoid), one));
      const VF y = hn::MulAdd(skip, x, hn::Load(d, k.y[t] + i));
      ch.StoreTo(hn::Mul(hn::Mul(ch.LoadFrom(a.dy.Row(row), e), gate), y), a.dz.Row(row), e);
    }
  }
}

// All states from the edge before block to the edge before the next one.
void AdvanceEdge(const Channels& ch, size_t block, Block& k) {
  const size_t states = ch.args.b.cols, width = kVecs * hn::Lanes(DF());
  LoadBlock(ch, block, false, k);
  for (size_t e = ch.begin; e < ch.end; e += width) {
    const float* from = ch.Edge(block, e);
    float* to = ch.Edge(block + 1, e);
    size_t n = 0;
    for (; n + kPair <= states; n += kPair) {
      Advance<kPair, false>(ch, e, n, from + n * width, k, nullptr, to + n * width);
    }
    if (n < states) Advance<1, false>(ch, e, n, from + n * width, k, nullptr, to + n * width);
  }
}

void GradBlock(const Channels& ch, size_t block, Block& k, float* slot) {
  const size_t states = ch.args.b.cols, width = kVecs * hn::Lanes(DF());
  Kept kept;
  LoadGate(ch, k);
  for (size_t e = ch.begin; e < ch.end; e += width) {
    const float* edge = ch.Edge(block, e);
    size_t n = 0;
    for (; n + kPair <= states; n += kPair) {
      Advance<kPair, true>(ch, e, n, edge + n * width, k, &kept, nullptr);
      SweepBack<kPair>(ch, e, n, kept, k, slot);
    }
    if (n < states) {
      Advance<1, true>(ch, e, n, edge + n * width, k, &kept, nullptr);
      SweepBack<1>(ch, e, n, kept, k, slot);
    }
  }
  FinishBlock(ch, k);
}

void GradChannels(const SelectiveScanGradArgs& a, size_t begin, size_t end, float* slot) {
  const DF d;
  const size_t lanes = hn::Lanes(d), width = kVecs * lanes;
  const size_t states = a.b.cols, blocks = Ceil(a.x.rows, kSteps);
  const Channels ch = {a, begin, end};
  std::fill_n(slot, a.x.rows * SlotColumns(states), 0.0f);
  Block k;
  std::fill_n(k.dskip, kChannels, 0.0f);
  for (size_t e = begin; e < ch.PaddedEnd(); e += lanes) {
    float* edge = ch.Edge(0, begin + (e - begin) / width * width) + (e - begin) % width;
    for (size_t n = 0; n < states; ++n) {
      hn::StoreU(ch.LoadFrom(a.state.Row(n), e), d, edge + n * width);
    }
  }
  for (size_t block = 0; block + 1 < blocks; ++block) AdvanceEdge(ch, block, k);
  for (size_t block = blocks; block-- > 0;) {
    LoadBlock(ch, block, block + 1 < blocks, k);
    GradBlock(ch, block, k, slot);
  }
  if (a.dd_skip.data == nullptr) return;
  for (size_t e = begin; e < end; e += lanes) {
    ch.AddTo(hn::Load(d, k.dskip + e - begin), a.dd_skip.data, e);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(GradChannels);

namespace {

// Rows [begin, end) of db and dc: the tasks' parts, added in their order.
void AddSlots(const SelectiveScanGradArgs& a, size_t begin, size_t end) {
  const size_t columns = SlotColumns(a.b.cols);
  for (size_t t = begin; t < end; ++t) {
    float* sum = Slot(a, 0) + t * columns;
    for (size_t task = 1; task < Ceil(a.x.cols, kChannels); ++task) {
      const float* part = Slot(a, task) + t * columns;
      for (size_t i = 0; i < columns; ++i) sum[i] += part[i];
    }
    for (size_t n = 0; n < a.b.cols; ++n) {
      a.dc.Row(t)[n] = sum[n / 2 * 4 + n % 2];
      a.db.Row(t)[n] = sum[n / 2 * 4 + n % 2 + 2];
    }
  }
}

bool SameShape(core::Mat<const float> a, core::Mat<const float> b) {
  return a.rows == b.rows && a.cols == b.cols;
}

}  // namespace

size_t SelectiveScanGradScratch(size_t l, size_t e, size_t n) noexcept {
  return EdgeFloats(l, e, n) + Ceil(e, kChannels) * l * SlotColumns(n);
}

void SelectiveScanGrad(core::Exec& exec, const SelectiveScanGradArgs& args) noexcept {
  const size_t l = args.x.rows, e = args.x.cols;
  for (const auto& m : {args.dt, args.z, args.dy}) HOGNOSE_DCHECK(SameShape(m, args.x));
  for (const auto& m : {args.ddt, args.dx, args.dz}) HOGNOSE_DCHECK(SameShape(m, args.x));
  for (const auto& m : {args.db, args.dc}) HOGNOSE_DCHECK(SameShape(m, args.b));
  HOGNOSE_DCHECK(SameShape(args.b, args.c) && args.b.rows == l);
  HOGNOSE_DCHECK(args.a.rows == args.b.cols && args.a.cols == e);
  HOGNOSE_DCHECK(SameShape(args.state, args.a) && SameShape(args.dstate, args.a));
  HOGNOSE_DCHECK(args.da.data == nullptr || SameShape(args.da, args.a));
  HOGNOSE_DCHECK(args.d_skip.size == e);
  HOGNOSE_DCHECK(args.dd_skip.data == nullptr || args.dd_skip.size == e);
  HOGNOSE_DCHECK(args.scratch.size >= SelectiveScanGradScratch(l, e, args.b.cols));
  exec.pool.Run(Ceil(e, kChannels), [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(GradChannels)
    (args, task * kChannels, std::min(e, (task + 1) * kChannels), Slot(args, task));
  });
  constexpr size_t kRows = 64;
  exec.pool.Run(Ceil(l, kRows), [&](size_t task) {
    AddSlots(args, task * kRows, std::min(l, (task + 1) * kRows));
  });
}

}  // namespace hognose::kernels
#endif
