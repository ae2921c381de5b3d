// ssd_scan by chunks. Inside a chunk every step meets every earlier one in a matrix product;
// the state passes from chunk to chunk.
#include <algorithm>

#include "kernels/ssd_scan/ssd_chunks.h"
#include "kernels/ssd_scan/ssd_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_scan/ssd_scan_chunked.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/ssd_scan/ssd_chunks-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_SSD_SCAN_CHUNKED_ONCE_
#define HOGNOSE_SSD_SCAN_CHUNKED_ONCE_
// Columns of P in one task: its local matrices, at most 150 KiB, are on the stack.
constexpr size_t kWidth = internal::kTileColumns;
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

struct Locals {
  HWY_ALIGN float state[kMaxChunkedStates * kWidth];
  HWY_ALIGN float x[kChunk * kWidth];
  HWY_ALIGN float y[kChunk * kWidth];
  HWY_ALIGN float mixing[kChunk * kChunk];
  float since[kChunk], until[kChunk], kept[kMaxChunkedStates];
};

// Columns [p, p + width) of head h in one chunk; v.state moves on by the chunk.
void ScanChunk(const SsdScanArgs& a, const internal::ChunkTables& tables, size_t h, size_t p,
               size_t width, size_t chunk_index, Locals& v) {
  const DF d;
  const HeadChunk chunk(tables, h, chunk_index, a.x.rows);
  const size_t states = a.b.cols / a.groups, group = h / (a.a.size / a.groups);
  const size_t block = chunk_index * a.groups + group;
  const size_t column = h * a.state.cols + p;
  FillDecays(chunk, v.since, v.until);
  for (size_t t = 0; t < chunk.steps; ++t) {
    std::copy_n(a.x.Row(chunk.begin + t) + column, width, v.x + t * kWidth);
  }
  // y = exp(s) c S + (c b^T decays dt) x
  const LeftSide c{a.c.Row(chunk.begin) + group * states, a.c.stride, 1};
  FillDecayMatrix(chunk, v.mixing);
  for (size_t i = 0; i < chunk.steps; ++i) {
    float* row = v.mixing + i * kChunk;
    const float* cb = tables.cb.Row(block * kChunk + i);
    for (size_t j = 0; j <= i; j += hn::Lanes(d)) {
      const VF weight = hn::Mul(hn::LoadU(d, cb + j), hn::Load(d, chunk.dt + j));
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), weight), d, row + j);
    }
  }
  ChunkOutput(chunk.steps, width, c, states, v.state, v.since, v.mixing, v.x, v.y, kWidth);
  for (size_t t = 0; t < chunk.steps; ++t) {
    const VF weight = hn::Set(d, v.until[t] * chunk.dt[t]);
    ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
      const VF x = LoadN(d, v.x + t * kWidth + i, count);
      const VF skip = LoadN(d, a.d_skip.data + column + i, count);
      StoreN(d, hn::MulAdd(skip, x, LoadN(d, v.y + t * kWidth + i, count)),
             a.y.Row(chunk.begin + t) + column + i, count);
      StoreN(d, hn::Mul(weight, x), v.x + t * kWidth + i, count);
    });
  }
  // S = exp(s_end) S + b^T (dt exp(s_end - s) x)
  std::fill_n(v.kept, states, v.since[chunk.steps - 1]);
  SmallProduct(states, width, LeftSide{tables.bt.Row(block * states), tables.bt.stride, 1}, v.x,
               kWidth, v.state, kWidth, v.kept, All(chunk.steps));
}

void ScanHead(const SsdScanArgs& a, const internal::ChunkTables& tables, size_t h, size_t p) {
  Locals v;
  const size_t states = a.b.cols / a.groups, width = std::min(kWidth, a.state.cols - p);
  float* state = a.state.Row(h * states) + p;
  if (width < kWidth) {  // whole tiles are computed, of which only these columns count
    std::fill_n(v.state, states * kWidth, 0.0f);
    std::fill_n(v.x, kChunk * kWidth, 0.0f);
  }
  for (size_t n = 0; n < states; ++n) {
    std::copy_n(state + n * a.state.stride, width, v.state + n * kWidth);
  }
  for (size_t chunk = 0; chunk < internal::Chunks(a.x.rows); ++chunk) {
    ScanChunk(a, tables, h, p, width, chunk, v);
  }
  for (size_t n = 0; n < states; ++n) {
    std::copy_n(v.state + n * kWidth, width, state + n * a.state.stride);
  }
}

void FillSumsOf(const SsdScanArgs& a, const internal::ChunkTables& tables, size_t chunk) {
  FillSums(a, tables, chunk);
}
void FillProductsOf(const SsdScanArgs& a, const internal::ChunkTables& tables, size_t chunk,
                    size_t group) {
  FillProducts(a, tables, chunk, group);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(FillSumsOf);
HWY_EXPORT(FillProductsOf);
HWY_EXPORT(ScanHead);

size_t SsdScanChunkedScratch(size_t steps, size_t heads, size_t groups, size_t states) {
  core::Arena measure;
  internal::ChunkTables::Carve(measure, steps, heads, groups, states, /*backward=*/false);
  return measure.used() / sizeof(float);
}

void SsdScanChunked(core::Exec& exec, const SsdScanArgs& args,
                    core::Vec<float> chunk_scratch) noexcept {
  const size_t heads = args.a.size, states = args.b.cols / args.groups;
  HOGNOSE_DCHECK(heads % args.groups == 0 && args.b.cols % args.groups == 0);
  HOGNOSE_DCHECK(states <= kMaxChunkedStates);
  core::Arena arena = core::Arena::Over(chunk_scratch);
  const auto tables =
      internal::ChunkTables::Carve(arena, args.x.rows, heads, args.groups, states, false);
  const size_t chunks = internal::Chunks(args.x.rows);
  exec.pool.Run(chunks * (1 + args.groups), [&](size_t task) {
    if (task < chunks) return HWY_DYNAMIC_DISPATCH(FillSumsOf)(args, tables, task);
    const size_t block = task - chunks;
    HWY_DYNAMIC_DISPATCH(FillProductsOf)(args, tables, block / args.groups, block % args.groups);
  });
  const size_t blocks = (args.state.cols + kWidth - 1) / kWidth;
  exec.pool.Run(heads * blocks, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(ScanHead)(args, tables, task / blocks, task % blocks * kWidth);
  });
}

}  // namespace hognose::kernels
#endif
