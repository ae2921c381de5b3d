// The gradient of ssd_scan, by chunks (math.md 1.5): the states at the chunks' beginnings are
// computed again, then the chunks pass from last to first with the gradient of the state that
// leaves them. Matrices inside a chunk have the earlier step j as their row, the later step i as
// column.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ssd_scan/ssd_chunks.h"
#include "kernels/ssd_scan/ssd_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_scan/ssd_scan_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/ssd_scan/ssd_chunks-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_SSD_SCAN_GRAD_ONCE_
#define HOGNOSE_SSD_SCAN_GRAD_ONCE_

struct GradTables {
  internal::ChunkTables chunks;
  core::Mat<float> states;  // [H chunks N, P]: at the chunks' beginnings
  core::Mat<float> db;      // [H L, N]: a head's part, through the states
  core::Mat<float> dc;      // [H L, N]
  core::Mat<float> dcb;     // [H chunks Q, Q]: a head's part, through b_j . c_i

  static GradTables Carve(core::Arena& arena, size_t steps, size_t heads, size_t width,
                          size_t groups, size_t states) {
    const size_t blocks = heads * internal::Chunks(steps);
    const size_t p = internal::TileColumns(width), n = internal::TileColumns(states);
    return {internal::ChunkTables::Carve(arena, steps, heads, groups, states, /*backward=*/true),
            arena.NewMat<float>(blocks * states, p), arena.NewMat<float>(heads * steps, n),
            arena.NewMat<float>(heads * steps, n),
            arena.NewMat<float>(blocks * internal::kChunk, internal::kChunk)};
  }
};

// A head's matrices near the processor, for its widths rounded up to tiles.
constexpr size_t LocalFloats(size_t p, size_t n) {
  constexpr size_t kQ = internal::kChunk;
  return 4 * kQ * p + p * kQ + 3 * kQ * kQ + 2 * p * n + n * p;
}
constexpr size_t kMaxLocalFloats =
    LocalFloats(internal::TileColumns(kMaxGradWidth), internal::TileColumns(kMaxChunkedStates));
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Matrices of a head, rows of `p` (P rounded up), `n` (N rounded up) or kChunk floats; scalars of
// the steps of the chunk at hand.
struct Locals {
  float *x, *dy, *kept_dy, *dx;  // [Q, p]
  float* dyt;                    // [p, Q]: dy transposed
  float *decays, *mixing, *dm;   // [Q, Q]
  float *st, *dst;               // [p, n]: state and its gradient, transposed
  float* ds;                     // [N, p]: gradient of the state that leaves the chunk
  HWY_ALIGN float since[kChunk], until[kChunk], kept[kMaxChunkedStates];
  double dsum[kChunk];  // of the exponents: da of math.md
  float ddt[kChunk];    // with dt's part of the products

  Locals(float* memory, size_t p, size_t n) {
    const auto take = [&](size_t floats) {
      float* at = memory;
      memory += floats;
      return at;
    };
    x = take(kChunk * p), dy = take(kChunk * p), kept_dy = take(kChunk * p), dx = take(kChunk * p);
    dyt = take(kChunk * p);
    decays = take(kChunk * kChunk), mixing = take(kChunk * kChunk), dm = take(kChunk * kChunk);
    st = take(p * n), dst = take(p * n), ds = take(n * p);
  }
};

struct Head {
  const SsdScanGradArgs& a;
  const GradTables& tables;
  size_t h;
  size_t width = a.state.cols, states = a.b.cols / a.groups;
  size_t p = internal::TileColumns(width), n = internal::TileColumns(states);
  size_t group = h / (a.a.size / a.groups), column = h * width;
  size_t chunks = internal::Chunks(a.x.rows);

  size_t block(size_t chunk) const { return chunk * a.groups + group; }
  float* State(size_t chunk) const { return tables.states.Row((h * chunks + chunk) * states); }
};

// to[t] = weights[t] from[t] (times[t]).
HWY_INLINE void ScaleRows(const float* from, const float* weights, const float* times, size_t steps,
                          size_t p, float* to) {
  const DF d;
  for (size_t t = 0; t < steps; ++t) {
    const VF weight = hn::Set(d, times == nullptr ? weights[t] : weights[t] * times[t]);
    for (size_t i = 0; i < p; i += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(weight, hn::LoadU(d, from + t * p + i)), d, to + t * p + i);
    }
  }
}

// The states at the beginning of every chunk.
void ReplayStates(const Head& head, Locals& v) {
  const SsdScanGradArgs& a = head.a;
  for (size_t n = 0; n < head.states; ++n) {
    float* row = head.State(0) + n * head.p;
    std::copy_n(a.state.Row(head.h * head.states + n), head.width, row);
    std::fill(row + head.width, row + head.p, 0.0f);
  }
  for (size_t c = 0; c + 1 < head.chunks; ++c) {
    const HeadChunk chunk(head.tables.chunks, head.h, c, a.x.rows);
    FillDecays(chunk, v.since, v.until);
    CopyRows(a.x, chunk.begin, chunk.steps, head.column, head.width, head.p, v.x);
    ScaleRows(v.x, v.until, chunk.dt, chunk.steps, head.p, v.x);
    std::fill_n(v.kept, head.states, v.since[kChunk - 1]);
    std::copy_n(head.State(c), head.states * head.p, head.State(c + 1));
    const LeftSide bt{head.tables.chunks.bt.Row(head.block(c) * head.states), kChunk, 1};
    SmallProduct(head.states, head.p, bt, v.x, head.p, head.State(c + 1), head.p, v.kept,
                 All(chunk.steps));
  }
}

// What the steps of the chunk do to each other: dx, dt's and the exponents' parts, and the
// gradient of b_j . c_i.
void InsideChunk(const Head& head, const HeadChunk& chunk, size_t c, Locals& v) {
  const size_t steps = chunk.steps;
  FillDecaysForward(chunk, v.decays);
  TransposeInto(v.dy, head.p, steps, head.width, v.dyt, kChunk);
  SmallProduct(steps, steps, LeftSide{v.x, head.p, 1}, v.dyt, kChunk, v.dm, kChunk, nullptr,
               [&](size_t i, size_t j) {
                 return std::pair(size_t{0}, j + kProductCols > i ? head.width : 0);
               });
  MixingGradient(chunk, chunk.dt, v.decays, head.tables.chunks.cb.Row(head.block(c) * kChunk),
                 head.tables.chunks.cb.stride, v.dm, v.mixing,
                 head.tables.dcb.Row((head.h * head.chunks + c) * kChunk), v.dsum);
}

// dx and dt's part of the products: dx = dt (mixing dy + until b dS) + d_skip dy.
void InputGradient(const Head& head, const HeadChunk& chunk, Locals& v) {
  const DF d;
  const SsdScanGradArgs& a = head.a;
  const size_t steps = chunk.steps;
  const LeftSide b{a.b.Row(chunk.begin) + head.group * head.states, a.b.stride, 1};
  ChunkInputGradient(steps, head.p, b, head.states, v.ds, v.until, v.mixing, v.dy, v.dx, head.p);
  for (size_t t = 0; t < steps; ++t) {
    const float* x = v.x + t * head.p;
    const float* dx = v.dx + t * head.p;
    const float* dy = v.dy + t * head.p;
    v.ddt[t] = Dot(dx, x, head.p);
    const VF dt = hn::Set(d, chunk.dt[t]);
    float* out = a.dx.Row(chunk.begin + t) + head.column;
    ForVectors(head.width, [&](size_t i, size_t count) HWY_ATTR {
      const VF skip = LoadN(d, a.d_skip.data + head.column + i, count);
      const VF dyi = LoadN(d, dy + i, count);
      StoreN(d, hn::MulAdd(dt, LoadN(d, dx + i, count), hn::Mul(skip, dyi)), out + i, count);
      if (a.dd_skip.size == 0) return;
      float* dd = a.dd_skip.data + head.column + i;
      StoreN(d, hn::MulAdd(dyi, LoadN(d, x + i, count), LoadN(d, dd, count)), dd, count);
    });
  }
}

// What passes through the states: a head's db and dc, the exponents' parts, and dS for the chunk
// before.
void ThroughStates(const Head& head, const HeadChunk& chunk, size_t c, Locals& v) {
  const SsdScanGradArgs& a = head.a;
  const size_t steps = chunk.steps, begin = chunk.begin;
  const float* state = head.State(c);
  TransposeInto(state, head.p, head.states, head.width, v.st, head.n);
  TransposeInto(v.ds, head.p, head.states, head.width, v.dst, head.n);
  ScaleRows(v.dy, v.since, nullptr, steps, head.p, v.kept_dy);
  float* dc = head.tables.dc.Row(head.h * a.x.rows + begin);
  float* db = head.tables.db.Row(head.h * a.x.rows + begin);
  SmallProduct(steps, head.n, LeftSide{v.kept_dy, head.p, 1}, v.st, head.n, dc, head.n, nullptr,
               All(head.width));
  ScaleRows(v.x, v.until, chunk.dt, steps, head.p, v.x);
  SmallProduct(steps, head.n, LeftSide{v.x, head.p, 1}, v.dst, head.n, db, head.n, nullptr,
               All(head.width));
  float from_state[kChunk], into_state[kChunk];
  for (size_t t = 0; t < steps; ++t) {
    const size_t group = head.group * head.states;
    from_state[t] = Dot(dc + t * head.n, a.c.Row(begin + t) + group, head.states);
    into_state[t] = Dot(db + t * head.n, a.b.Row(begin + t) + group, head.states);
  }
  const float kept = v.since[kChunk - 1];
  const double passing = static_cast<double>(kept) * Dot(state, v.ds, head.states * head.p);
  AddExponentGradient(steps, from_state, into_state, passing, v.dsum);
  std::fill_n(v.kept, head.states, kept);
  const LeftSide ct{head.tables.chunks.ct.Row(head.block(c) * head.states), kChunk, 1};
  SmallProduct(head.states, head.p, ct, v.kept_dy, head.p, v.ds, head.p, v.kept, All(steps));
}

// From the gradients of dt and of the exponents dt a to those of the raw dt, its bias and a.
void TimeStepGradient(const Head& head, const HeadChunk& chunk, Locals& v) {
  const SsdScanGradArgs& a = head.a;
  const float rate = a.a.data[head.h], bias = a.dt_bias.data[head.h];
  double dbias = 0.0, da = 0.0;
  for (size_t t = 0; t < chunk.steps; ++t) {
    const double raw = static_cast<double>(a.dt.Row(chunk.begin + t)[head.h]) + bias;
    const double softplus = raw > 20.0 ? raw : std::log1p(std::exp(raw));
    const bool inside = softplus >= a.dt_min && softplus <= a.dt_max;
    const double slope = !inside ? 0.0 : raw > 20.0 ? 1.0 : 1.0 / (1.0 + std::exp(-raw));
    const double draw = (v.ddt[t] + rate * v.dsum[t]) * slope;
    a.ddt.Row(chunk.begin + t)[head.h] = static_cast<float>(draw);
    dbias += draw;
    da += chunk.dt[t] * v.dsum[t];
  }
  if (a.ddt_bias.size != 0) a.ddt_bias.data[head.h] += static_cast<float>(dbias);
  if (a.da.size != 0) a.da.data[head.h] += static_cast<float>(da);
}

void GradHead(const SsdScanGradArgs& a, const GradTables& tables, size_t h) {
  const Head head{.a = a, .tables = tables, .h = h};
  HWY_ALIGN float memory[kMaxLocalFloats];
  Locals v(memory, head.p, head.n);
  ReplayStates(head, v);
  for (size_t n = 0; n < head.states; ++n) {
    std::copy_n(a.dstate.Row(h * head.states + n), head.width, v.ds + n * head.p);
    std::fill(v.ds + n * head.p + head.width, v.ds + (n + 1) * head.p, 0.0f);
  }
  // Rounded-up columns of these two are read, and mean nothing.
  std::fill_n(v.st, head.p * head.n, 0.0f);
  std::fill_n(v.dst, head.p * head.n, 0.0f);
  for (size_t c = head.chunks; c-- > 0;) {
    const HeadChunk chunk(tables.chunks, h, c, a.x.rows);
    FillDecays(chunk, v.since, v.until);
    CopyRows(a.x, chunk.begin, chunk.steps, head.column, head.width, head.p, v.x);
    CopyRows(a.dy, chunk.begin, chunk.steps, head.column, head.width, head.p, v.dy);
    std::fill_n(v.dsum, kChunk, 0.0);
    InsideChunk(head, chunk, c, v);
    InputGradient(head, chunk, v);
    ThroughStates(head, chunk, c, v);
    TimeStepGradient(head, chunk, v);
  }
  for (size_t n = 0; n < head.states; ++n) {
    std::copy_n(v.ds + n * head.p, head.width, a.dstate.Row(h * head.states + n));
  }
}

// db and dc of one group in one chunk: the heads' parts in their order, then what passes through
// b_j . c_i for all of them at once.
void GradGroup(const SsdScanGradArgs& a, const GradTables& tables, size_t c, size_t group) {
  const DF d;
  const size_t begin = c * kChunk, steps = std::min(kChunk, a.x.rows - begin);
  const size_t states = a.b.cols / a.groups, n = internal::TileColumns(states);
  const size_t heads = a.a.size / a.groups, chunks = internal::Chunks(a.x.rows);
  HWY_ALIGN float dcb[kChunk * kChunk] = {};
  HWY_ALIGN float rows[kChunk * kMaxChunkedStates];
  HWY_ALIGN float sum[kChunk * kMaxChunkedStates];
  const auto add = [&](const float* from, size_t size, float* to) HWY_ATTR {
    for (size_t i = 0; i < size; i += hn::Lanes(d)) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
    }
  };
  for (size_t h = group * heads; h < (group + 1) * heads; ++h) {
    add(tables.dcb.Row((h * chunks + c) * kChunk), kChunk * steps, dcb);
  }
  const auto finish = [&](const core::Mat<float>& parts, const core::Mat<const float>& other,
                          LeftSide left, bool later, const core::Mat<float>& out) HWY_ATTR {
    std::fill_n(sum, steps * n, 0.0f);
    for (size_t h = group * heads; h < (group + 1) * heads; ++h) {
      add(parts.Row(h * a.x.rows + begin), steps * n, sum);
    }
    CopyRows(other, begin, steps, group * states, states, n, rows);
    HWY_ALIGN float ones[kChunk];
    std::fill_n(ones, kChunk, 1.0f);
    SmallProduct(steps, n, left, rows, n, sum, n, ones, [&](size_t i, size_t) {
      return later ? std::pair(i, steps) : std::pair(size_t{0}, std::min(i + kProductRows, steps));
    });
    for (size_t t = 0; t < steps; ++t) {
      std::copy_n(sum + t * n, states, out.Row(begin + t) + group * states);
    }
  };
  finish(tables.dc, a.b, LeftSide{dcb, 1, kChunk}, /*later=*/false, a.dc);
  finish(tables.db, a.c, LeftSide{dcb, kChunk, 1}, /*later=*/true, a.db);
}

void FillGradSums(const SsdScanGradArgs& a, const GradTables& tables, size_t chunk) {
  FillSums(a, tables.chunks, chunk);
}
void FillGradProducts(const SsdScanGradArgs& a, const GradTables& tables, size_t chunk,
                      size_t group) {
  FillProducts(a, tables.chunks, chunk, group);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(FillGradSums);
HWY_EXPORT(FillGradProducts);
HWY_EXPORT(GradHead);
HWY_EXPORT(GradGroup);

size_t SsdScanGradScratch(size_t steps, size_t heads, size_t width, size_t groups, size_t states) {
  core::Arena measure;
  GradTables::Carve(measure, steps, heads, width, groups, states);
  return measure.used() / sizeof(float);
}

void SsdScanGrad(core::Exec& exec, const SsdScanGradArgs& args) noexcept {
  const size_t heads = args.a.size, states = args.b.cols / args.groups;
  HOGNOSE_DCHECK(heads % args.groups == 0 && args.b.cols % args.groups == 0);
  HOGNOSE_DCHECK(states <= kMaxChunkedStates && args.state.cols <= kMaxGradWidth);
  core::Arena arena = core::Arena::Over(args.scratch);
  const GradTables tables =
      GradTables::Carve(arena, args.x.rows, heads, args.state.cols, args.groups, states);
  const size_t chunks = internal::Chunks(args.x.rows);
  exec.pool.Run(chunks * (1 + args.groups), [&](size_t task) {
    if (task < chunks) return HWY_DYNAMIC_DISPATCH(FillGradSums)(args, tables, task);
    const size_t block = task - chunks;
    HWY_DYNAMIC_DISPATCH(FillGradProducts)(args, tables, block / args.groups, block % args.groups);
  });
  exec.pool.Run(heads, [&](size_t h) { HWY_DYNAMIC_DISPATCH(GradHead)(args, tables, h); });
  exec.pool.Run(chunks * args.groups, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(GradGroup)(args, tables, task / args.groups, task % args.groups);
  });
}

}  // namespace hognose::kernels
#endif
