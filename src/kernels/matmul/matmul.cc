#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/matmul/matmul_blocks.h"
#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/product_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::Block;
using internal::kPackRows;

// The right side's floats as they lie in memory; null when it must be decoded.
struct RightSide {
  const float* data = nullptr;
  size_t stride = 0;

  explicit RightSide(const MatmulArgs& args) : data(args.b.data), stride(args.b.stride) {
    if (args.w == nullptr) return;
    const bool plain =
        args.w->encoding == codecs::Encoding::kPlain && args.w->values.dtype == core::DType::kF32;
    data = plain ? args.w->values.As<float>() : nullptr;
    stride = args.w->cols;
  }
};

template <typename T>
void DecodeRun(const T* from, float* to, size_t count) {
  const DF d;
  ForVectors(count, [&](size_t i, size_t n) HWY_ATTR {
    StoreN(d, n == hn::Lanes(d) ? LoadF32(d, from + i) : LoadTail(d, from + i, n), to + i, n);
  });
}

// Columns [begin, begin + count) of a row of weights as floats.
void DecodeWeights(const codecs::WeightMatrix& w, size_t row, size_t begin, size_t count,
                   float* to) {
  const bool plain = w.encoding == codecs::Encoding::kPlain;
  const size_t at = row * w.cols + begin;
  if (plain && w.values.dtype == core::DType::kBF16) {
    return DecodeRun(w.values.As<core::BFloat16>() + at, to, count);
  }
  if (plain && w.values.dtype == core::DType::kF16) {
    return DecodeRun(w.values.As<core::Half>() + at, to, count);
  }
  codecs::DecodeColumns(w, row, begin, {to, count});
}

// Rows [k, end) of b into panels [depth][kProductCols], columns filled up with zeros.
void PackRowsOfB(const MatmulArgs& args, const Block& block, size_t k, size_t end) {
  const DF d;
  const size_t n_size = args.c.cols;
  const RightSide right(args);
  for (; k < end; ++k) {
    for (size_t n = 0; n < n_size; n += kProductCols) {
      const size_t count = std::min(kProductCols, n_size - n);
      float* to = block.b + n * block.depth + k * kProductCols;
      if (right.data == nullptr) {
        DecodeWeights(*args.w, block.k0 + k, n, count, to);
      } else {
        const float* from = right.data + (block.k0 + k) * right.stride + n;
        if (count == kProductCols) {
          for (size_t i = 0; i < kProductCols; i += hn::Lanes(d)) {
            hn::StoreU(hn::LoadU(d, from + i), d, to + i);
          }
          continue;
        }
        std::copy_n(from, count, to);
      }
      std::fill(to + count, to + kProductCols, 0.0f);
    }
  }
}

// Columns [k, end) of a transposed right side into the panels: of each panel kProductCols rows.
void PackTransposedB(const MatmulArgs& args, const Block& block, size_t k, size_t end) {
  HWY_ALIGN float rows[kProductCols * kPackRows];
  const size_t n_size = args.c.cols, count = end - k;
  const RightSide right(args);
  for (size_t n = 0; n < n_size; n += kProductCols) {
    const size_t cols = std::min(kProductCols, n_size - n);
    float* to = block.b + n * block.depth + k * kProductCols;
    if (right.data != nullptr) {
      // The next panel's rows lie far apart, which the processor does not foresee.
      const size_t next = std::min(n + 2 * kProductCols, n_size);
      for (size_t row = n + kProductCols; row < next; ++row) {
        __builtin_prefetch(right.data + row * right.stride + block.k0 + k);
      }
      TransposeInto(right.data + n * right.stride + block.k0 + k, right.stride, cols, count, to,
                    kProductCols);
    } else {
      for (size_t i = 0; i < cols; ++i) {
        DecodeWeights(*args.w, n + i, block.k0 + k, count, rows + i * count);
      }
      TransposeInto(rows, count, cols, count, to, kProductCols);
    }
    for (size_t i = 0; i < count && cols < kProductCols; ++i) {
      std::fill(to + i * kProductCols + cols, to + (i + 1) * kProductCols, 0.0f);
    }
  }
}

void PackB(const MatmulArgs& args, const Block& block, size_t k, size_t end) {
  if (args.transpose_b) return PackTransposedB(args, block, k, end);
  PackRowsOfB(args, block, k, end);
}

// Rows [k, end) of a transposed left side into tiles [depth][kProductRows]. What the last tile
// lacks is never read.
void PackA(const MatmulArgs& args, const Block& block, size_t k, size_t end) {
  for (; k < end; ++k) {
    const float* from = args.a.Row(block.k0 + k) + block.m0;
    float* to = block.a + k * kProductRows;
    size_t m = 0;
    for (; m + kProductRows <= block.rows; m += kProductRows, to += block.depth * kProductRows) {
      std::memcpy(to, from + m, kProductRows * sizeof(float));
    }
    std::copy(from + m, from + block.rows, to);
  }
}

void MultiplyTiles(const MatmulArgs& args, const Block& block, size_t m_begin, size_t m_end,
                   size_t n_begin, size_t n_end) {
  constexpr float kOnes[kProductRows] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  const float* scale = args.accumulate || block.k0 > 0 ? kOnes : nullptr;
  HWY_ALIGN float partial[kProductRows * kProductCols];
  for (size_t n = n_begin; n < n_end; n += kProductCols) {
    const float* b = block.b + n * block.depth;
    const size_t cols = std::min(kProductCols, n_end - n);
    for (size_t m = m_begin; m < m_end; m += kProductRows) {
      const size_t rows = std::min(kProductRows, m_end - m);
      const LeftSide a = args.transpose_a
                             ? LeftSide{block.a + m * block.depth, 1, kProductRows}
                             : LeftSide{args.a.Row(block.m0 + m) + block.k0, args.a.stride, 1};
      float* c = args.c.Row(block.m0 + m) + n;
      if (cols == kProductCols) {
        ProductTileRows(rows, a, b, kProductCols, block.depth, c, args.c.stride, scale);
        continue;
      }
      for (size_t i = 0; i < rows; ++i) {
        std::copy_n(c + i * args.c.stride, cols, partial + i * kProductCols);
        std::fill_n(partial + i * kProductCols + cols, kProductCols - cols, 0.0f);
      }
      ProductTileRows(rows, a, b, kProductCols, block.depth, partial, kProductCols, scale);
      for (size_t i = 0; i < rows; ++i) {
        std::copy_n(partial + i * kProductCols, cols, c + i * args.c.stride);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(PackA);
HWY_EXPORT(PackB);
HWY_EXPORT(MultiplyTiles);

namespace {

using internal::Block;
using internal::BlockPasses;
using internal::kPackRows;

// A multiple of every target's tile.
constexpr size_t kPadded = 64;
constexpr size_t kRows = 6;

size_t Rounded(size_t size, size_t to) { return (size + to - 1) / to * to; }

BlockPasses Passes(const MatmulArgs& args) {
  const bool bf16 = args.w == nullptr || (args.w->encoding == codecs::Encoding::kPlain &&
                                          args.w->values.dtype == core::DType::kBF16);
  if (args.round_bf16 && bf16 && !args.transpose_b && UseAvx512Bf16()) {
    return internal::Avx512Bf16Passes();
  }
  return {.pack_a = args.transpose_a ? &HWY_DYNAMIC_DISPATCH(PackA) : nullptr,
          .pack_b = &HWY_DYNAMIC_DISPATCH(PackB),
          .multiply = &HWY_DYNAMIC_DISPATCH(MultiplyTiles)};
}

void MultiplyBlock(core::Exec& exec, const MatmulArgs& args, const Block& block,
                   const BlockPasses& passes) {
  const size_t a_rows = args.transpose_a ? block.depth : block.rows;
  const size_t pack_a = passes.pack_a == nullptr ? 0 : (a_rows + kPackRows - 1) / kPackRows;
  // The panels are there already for later rows.
  const size_t pack_b = block.m0 == 0 ? (block.depth + kPackRows - 1) / kPackRows : 0;
  exec.pool.Run(pack_a + pack_b, [&](size_t task) {
    const bool right = task < pack_b;
    const size_t begin = (right ? task : task - pack_b) * kPackRows;
    const size_t end = std::min(begin + kPackRows, right ? block.depth : a_rows);
    (right ? passes.pack_b : passes.pack_a)(args, block, begin, end);
  });
  const size_t row_tasks = (block.rows + internal::kTaskRows - 1) / internal::kTaskRows;
  const size_t step = Rounded((block.rows + row_tasks - 1) / row_tasks, kRows);
  const size_t col_tasks = (args.c.cols + internal::kTaskCols - 1) / internal::kTaskCols;
  exec.pool.Run(row_tasks * col_tasks, [&](size_t task) {
    const size_t m = task / col_tasks * step, n = task % col_tasks * internal::kTaskCols;
    if (m >= block.rows) return;
    passes.multiply(args, block, m, std::min(m + step, block.rows), n,
                    std::min(n + internal::kTaskCols, args.c.cols));
  });
}

}  // namespace

size_t MatmulScratch(size_t m, size_t n) {
  return kMatmulDepth *
         (Rounded(n, kPadded) + Rounded(std::min(m, internal::kMaxPackedRows), kRows));
}

void Matmul(core::Exec& exec, const MatmulArgs& args) noexcept {
  const size_t depth = args.transpose_a ? args.a.rows : args.a.cols;
  HOGNOSE_DCHECK(args.c.rows == (args.transpose_a ? args.a.cols : args.a.rows));
  const size_t b_rows = args.w != nullptr ? args.w->rows : args.b.rows;
  const size_t b_cols = args.w != nullptr ? args.w->cols : args.b.cols;
  HOGNOSE_DCHECK((args.transpose_b ? b_cols : b_rows) == depth);
  HOGNOSE_DCHECK((args.transpose_b ? b_rows : b_cols) == args.c.cols);
  HOGNOSE_DCHECK(args.scratch.size >= MatmulScratch(args.c.rows, args.c.cols));
  float* packed_a = args.scratch.data + kMatmulDepth * Rounded(args.c.cols, kPadded);
  const BlockPasses passes = Passes(args);
  const size_t max_rows = passes.pack_a == nullptr ? args.c.rows : internal::kMaxPackedRows;
  for (size_t k = 0; k < depth; k += kMatmulDepth) {
    for (size_t m = 0; m < args.c.rows; m += max_rows) {
      MultiplyBlock(exec, args,
                    {.k0 = k,
                     .depth = std::min(kMatmulDepth, depth - k),
                     .m0 = m,
                     .rows = std::min(max_rows, args.c.rows - m),
                     .b = args.scratch.data,
                     .a = packed_a},
                    passes);
    }
  }
}

void MatmulRef(const MatmulArgs& args) {
  const size_t depth = args.transpose_a ? args.a.rows : args.a.cols;
  const size_t rows = args.w != nullptr ? args.w->rows : args.b.rows;
  const size_t cols = args.w != nullptr ? args.w->cols : args.b.cols;
  std::vector<float> b(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    const std::span<float> row = std::span(b).subspan(r * cols, cols);
    if (args.w != nullptr) {
      codecs::DecodeRow(*args.w, r, row);
    } else {
      for (size_t c = 0; c < cols; ++c) row[c] = args.b.Row(r)[c];
    }
  }
  for (size_t m = 0; m < args.c.rows; ++m) {
    for (size_t n = 0; n < args.c.cols; ++n) {
      double sum = 0.0;
      for (size_t k = 0; k < depth; ++k) {
        const double a = args.transpose_a ? args.a.Row(k)[m] : args.a.Row(m)[k];
        sum += a * (args.transpose_b ? b[n * cols + k] : b[k * cols + n]);
      }
      float& c = args.c.Row(m)[n];
      c = static_cast<float>(args.accumulate ? c + sum : sum);
    }
  }
}

}  // namespace hognose::kernels
#endif
