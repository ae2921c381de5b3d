// What the tests of linear share: every kind of weights, a case with its operands, and the check
// that a row has the same bits in all company.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codecs/float16.h"
#include "core/rng.h"
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"

namespace hognose::kernels::testing {

using codecs::Encoding;
using core::BFloat16;
using core::DType;
using core::Half;
using hognose::testing::RandomValues;

// How a matrix is stored: plain by dtype, or quantised by group.
struct Kind {
  Encoding encoding;
  DType dtype;
  size_t group;
  std::string name() const {
    if (encoding == Encoding::kPlain) return std::string(core::Name(dtype));
    return (encoding == Encoding::kInt8 ? "int8/" : "int4/") + std::to_string(group);
  }
};
inline constexpr Kind kKinds[] = {
    {Encoding::kPlain, DType::kF32, 0}, {Encoding::kPlain, DType::kBF16, 0},
    {Encoding::kPlain, DType::kF16, 0}, {Encoding::kInt8, DType::kI8, 32},
    {Encoding::kInt8, DType::kI8, 64},  {Encoding::kInt8, DType::kI8, 128},
    {Encoding::kInt4, DType::kU8, 32},  {Encoding::kInt4, DType::kU8, 64},
    {Encoding::kInt4, DType::kU8, 128},
};

// Random weights of a kind; the oracle reads the same stored values.
struct Weights {
  std::vector<float> f32;
  std::vector<uint8_t> bytes;
  std::vector<BFloat16> scales;
  codecs::WeightMatrix view;

  Weights(core::Rng& rng, const Kind& kind, size_t rows, size_t cols)
      : f32(RandomValues(rng, rows * cols, -1.0, 1.0)) {
    if (kind.encoding == Encoding::kPlain) {
      bytes.resize(f32.size() * core::Bytes(kind.dtype));
      for (size_t i = 0; i < f32.size(); ++i) Store(kind.dtype, i);
      view = core::TensorView{bytes.data(), kind.dtype, 2, {rows, cols}};
      return;
    }
    const size_t row_bytes = codecs::RowBytes(kind.encoding, cols, kind.group);
    const size_t groups = codecs::PaddedColumns(cols, kind.group) / kind.group;
    bytes.resize(rows * row_bytes);
    scales.resize(rows * groups);
    for (size_t m = 0; m < rows; ++m) {
      codecs::EncodeRow({&f32[m * cols], cols}, kind.encoding, kind.group,
                        {&bytes[m * row_bytes], row_bytes}, {&scales[m * groups], groups});
    }
    view.encoding = kind.encoding;
    view.rows = rows;
    view.cols = cols;
    view.group = kind.group;
    view.values = {bytes.data(), kind.dtype, 2, {rows, row_bytes}};
    view.scales = {scales.data(), DType::kBF16, 2, {rows, groups}};
  }
  void Store(DType dtype, size_t i) {
    const BFloat16 bf16 = codecs::EncodeBF16(f32[i]);
    const Half f16 = codecs::EncodeF16(f32[i]);
    const void* from = &f32[i];
    if (dtype == DType::kBF16) from = &bf16;
    if (dtype == DType::kF16) from = &f16;
    std::memcpy(&bytes[i * core::Bytes(dtype)], from, core::Bytes(dtype));
  }
};

// Views of x and y are rows inside wider buffers, so that a kernel that ignores strides fails.
struct Case {
  std::vector<float> x, y, want, bias;
  std::vector<uint8_t> scratch;
  Weights w;
  LinearArgs args;

  Case(core::Rng& rng, const Kind& kind, size_t l, size_t k, size_t m, bool accumulate)
      : x(RandomValues(rng, l * (k + 3), -1.0, 1.0)),
        y(RandomValues(rng, l * (m + 5), -1.0, 1.0)),
        want(y),
        bias(RandomValues(rng, m, -1.0, 1.0)),
        scratch(LinearScratch(l, k)),
        w(rng, kind, m, k) {
    args.x = {x.data(), l, k, k + 3};
    args.w = w.view;
    if (!accumulate) args.bias = {bias.data(), m};
    args.y = {y.data(), l, m, m + 5};
    args.accumulate = accumulate;
    args.scratch = {scratch.data(), scratch.size()};
  }
  LinearArgs Want() {
    LinearArgs a = args;
    a.y.data = want.data();
    return a;
  }
};

// Passes when product(exec, args) gives each row of the case the same bits in smaller and smaller
// company: with three threads all rows at once, then with one thread 1 row, 1 + more, ... at a
// time.
template <typename Product>
::testing::AssertionResult SameBitsInAnyCompany(Case& c, size_t more, const Product& product) {
  core::ThreadPool pool(3), one(1);
  core::Exec exec{pool}, exec_one{one};
  product(exec, c.args);
  const std::vector<float> together = c.y;
  const size_t rows = c.args.x.rows;
  for (size_t begin = 0, count = 1; begin < rows; begin += count, count += more) {
    count = std::min(count, rows - begin);
    LinearArgs part = c.args;
    part.x = c.args.x.Rows(begin, count);
    part.y = c.args.y.Rows(begin, count);
    for (size_t i = 0; i < count; ++i) std::fill_n(part.y.Row(i), part.y.cols, 0.0f);
    product(exec_one, part);
  }
  return hognose::testing::SameBits(c.y, together);
}

}  // namespace hognose::kernels::testing
