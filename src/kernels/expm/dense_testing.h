// For tests of dense matrices in f32 and f64: random batches, errors, same bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"
#include "kernels/expm/expm.h"

namespace hognose::kernels {

// [rows, cols] with a stride that is no multiple of anything.
template <typename T>
struct TestMat {
  size_t rows, cols;
  std::vector<T> data;

  TestMat(size_t r, size_t c) : rows(r), cols(c), data(r * (c + 3), T{7}) {}
  core::Mat<T> Mat() { return {data.data(), rows, cols, cols + 3}; }
  core::Mat<const T> Mat() const { return {data.data(), rows, cols, cols + 3}; }
  T& operator()(size_t i, size_t j) { return data[i * (cols + 3) + j]; }
  T operator()(size_t i, size_t j) const { return data[i * (cols + 3) + j]; }
};

template <typename T>
TestMat<T> RandomMat(core::Rng& rng, size_t rows, size_t cols, double range) {
  TestMat<T> m(rows, cols);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) m(i, j) = static_cast<T>(rng.Uniform(-range, range));
  }
  return m;
}

template <typename To, typename From>
TestMat<To> Convert(const TestMat<From>& from) {
  TestMat<To> to(from.rows, from.cols);
  for (size_t i = 0; i < from.data.size(); ++i) to.data[i] = static_cast<To>(from.data[i]);
  return to;
}

template <typename T>
constexpr double kEpsOf = std::numeric_limits<T>::epsilon();

// The 1-norm of rows [begin, begin + rows) of x, minus y where there is one; NaN if any entry is.
template <typename T>
double NormOf(const TestMat<T>& x, size_t begin, size_t rows, const TestMat<T>* y = nullptr) {
  double norm = 0.0;
  for (size_t j = 0; j < x.cols; ++j) {
    double sum = 0.0;
    for (size_t i = begin; i < begin + rows; ++i) {
      sum += std::abs(static_cast<double>(x(i, j)) -
                      (y == nullptr ? 0.0 : static_cast<double>((*y)(i, j))));
    }
    if (std::isnan(sum)) return sum;
    norm = std::max(norm, sum);
  }
  return norm;
}

// Multiplies matrix i of a batch so that its 1-norm is `norm`.
template <typename T>
void SetNorm(TestMat<T>& a, size_t i, double norm) {
  const size_t n = a.cols;
  const double factor = norm / NormOf(a, i * n, n);
  for (size_t r = i * n; r < (i + 1) * n; ++r) {
    for (size_t c = 0; c < n; ++c) a(r, c) = static_cast<T>(a(r, c) * factor);
  }
}

// The bound of expm.h of exp(m)'s error after `squarings`; `eps` is n times the type's epsilon. In
// it c = 8 n eps, since four products follow each other in p and q, LU with its two solves counts
// for three more, each n eps of the sizes of its factors, and rounding and the approximant's own
// error for one. p, q and the inverse of q, over b_0, have entries of sizes below exp(|m| / 2).
inline double ExpmErrorBound(TestMat<double> m, size_t squarings, double eps) {
  const size_t n = m.cols;
  for (double& v : m.data) v = std::ldexp(v, -static_cast<int>(squarings));
  const auto norm_of_exp = [&](TestMat<double> x) {
    ExpmRef<double>({.a = x.Mat(), .y = x.Mat()});
    return NormOf(x, 0, n);
  };
  TestMat<double> half = m;
  for (double& v : half.data) v = std::abs(v) / 2;
  double power = norm_of_exp(m);
  double error = 8 * eps * std::pow(norm_of_exp(half), 2) * (1.0 + power);
  for (size_t k = 0; k < squarings; ++k) {
    error = 2 * power * error + eps * power * power;
    for (double& v : m.data) v *= 2;
    power = norm_of_exp(m);
  }
  return error;
}

template <typename T>
::testing::AssertionResult SameMatrixBits(const TestMat<T>& got, const TestMat<T>& want) {
  if (want.rows * want.cols == 0) return ::testing::AssertionFailure() << "nothing to compare";
  if (got.rows != want.rows || got.cols != want.cols || &got == &want) {
    return ::testing::AssertionFailure() << "not two matrices of one shape";
  }
  for (size_t i = 0; i < got.rows; ++i) {
    for (size_t j = 0; j < got.cols; ++j) {
      const T x = got(i, j), y = want(i, j);
      if (std::memcmp(&x, &y, sizeof(T)) != 0) {
        return ::testing::AssertionFailure() << i << ", " << j << ": got " << x << ", want " << y;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hognose::kernels
