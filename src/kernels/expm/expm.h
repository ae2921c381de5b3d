// expm: exponentials of many small dense matrices, their Frechet derivative and gradient.
//
// Formula    y = exp(a) = r_m(a / 2^s)^(2^s), r_m the diagonal Pade approximant p_m(x) / p_m(-x):
//            the least m of 3, 5, 7, 9, 13 (f32: 3, 5, 7) whose bound ||a||_1 keeps (expm_pade.h),
//            and above the last bound s squarings, so that it keeps that, or its powers do.
//            With p_m(a) = v + u, v even and u odd: (v - u) r = v + u, by LU with partial pivoting.
// Derivative dy = L(a, e) = lim (exp(a + h e) - exp(a)) / h, by differentiating every step above:
//            three times the products of exp alone; of the 2n x 2n block matrix it would be eight.
// Gradient   of f with df/dy = dy:  da = L(a^T, dy).
// Operands   batches of B matrices n x n, f32 or f64, as [B n, n]: matrix i has rows from i n on.
//            Any n >= 1. y may be a itself (same pointer and stride); the derivative's y and dy may
//            be a or e, the gradient's da may be a or dy, but no two results the same.
// Scratch    ExpmScratch(n, B), ExpmGradScratch(n, B) numbers of the type.
// Threads    runs of matrices, fixed by n and B. Small matrices of a batch are computed side by
//            side in the lanes of a vector, large ones by vectors of a row: the bits of a result
//            depend neither on that, nor on the thread count, nor on the other matrices.
// Errors     none; shapes are checked by HOGNOSE_DCHECK. A matrix with a NaN, an infinity or a norm
//            above half the largest number gives NaN everywhere, a result that overflows infinities
//            or NaN. There are at most 1,021 squarings (f32: 126).
// Accuracy   ||error|| <= e_s, all norms ||.||_1, X_k = exp(a / 2^(s-k)), c = 8 n eps:
//            e_0 = c ||exp(|a| / 2^(s+1))||^2 (1 + ||X_0||),
//            e_(k+1) = 2 ||X_k|| e_k + n eps ||X_k||^2.
//            What that means depends on a: in tests/fixtures the relative error is below n eps
//            times the condition of exp at a, which is at least ||a||. The derivative takes the
//            squarings of ||a||, however its powers behave: badly scaled matrices are better
//            balanced first.
// Cost       (m + 1) / 2 products (m = 13: 6), 4/3 of one for LU, s for squaring: 2 n^3 operations
//            each. The derivative: 3 times that.
// Source     N. Higham, "The scaling and squaring method for the matrix exponential revisited",
//            SIAM J. Matrix Anal. Appl. 26, 2005; A. Al-Mohy and N. Higham, "Computing the Frechet
//            derivative of the matrix exponential", the same journal, 30, 2009, and "A new scaling
//            and squaring algorithm for the matrix exponential", 31, 2009, theorem 4.2 (powers).
//            Oracles: ExpmRef (Taylor, long double), ExpmFrechetRef (the block matrix by ExpmRef),
//            scipy in tests/oracle.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

// How matrices lie in vectors: one entry of several matrices, or several entries of one's row.
enum class ExpmLayout { kAuto, kLanes, kRows };

template <typename T>  // float or double, here and below
struct ExpmArgs {
  core::Mat<const T> a = {};
  core::Mat<T> y = {};
  core::Vec<T> scratch = {};
  ExpmLayout layout = ExpmLayout::kAuto;  // another one only in tests and benchmarks
};

// Numbers of ExpmArgs::scratch.
template <typename T>
size_t ExpmScratch(size_t n, size_t batch);

void Expm(core::Exec& exec, const ExpmArgs<float>& args) noexcept;
void Expm(core::Exec& exec, const ExpmArgs<double>& args) noexcept;

template <typename T>
void ExpmRef(const ExpmArgs<T>& args);

template <typename T>
struct ExpmFrechetArgs {
  core::Mat<const T> a = {};
  core::Mat<const T> e = {};
  core::Mat<T> y = {};   // exp(a)
  core::Mat<T> dy = {};  // L(a, e)
  core::Vec<T> scratch = {};
  ExpmLayout layout = ExpmLayout::kAuto;
};

// Numbers of scratch for the derivative and the gradient.
template <typename T>
size_t ExpmGradScratch(size_t n, size_t batch);

// Its y is exp(a) too, but with the squarings that the derivative needs: not always Expm's bits.
void ExpmFrechet(core::Exec& exec, const ExpmFrechetArgs<float>& args) noexcept;
void ExpmFrechet(core::Exec& exec, const ExpmFrechetArgs<double>& args) noexcept;

template <typename T>
void ExpmFrechetRef(const ExpmFrechetArgs<T>& args);

template <typename T>
struct ExpmGradArgs {
  core::Mat<const T> a = {};
  core::Mat<const T> dy = {};
  core::Mat<T> da = {};  // written
  core::Vec<T> scratch = {};
  ExpmLayout layout = ExpmLayout::kAuto;
};

void ExpmGrad(core::Exec& exec, const ExpmGradArgs<float>& args) noexcept;
void ExpmGrad(core::Exec& exec, const ExpmGradArgs<double>& args) noexcept;

// The largest n for kLanes: beyond it the working matrices of a vector leave the caches.
inline constexpr size_t kExpmMaxLanesSize = 24;

// The layout that kAuto stands for, a function of the shape and of the lanes of a vector.
ExpmLayout ChooseExpmLayout(size_t n, size_t batch, size_t lanes);

}  // namespace hognose::kernels
