// discretize: a continuous system x' = a x + b u, of dense or diagonal a, as steps of length dt:
// x(t + dt) = abar x(t) + bbar u(t).
//
// Formula    zero-order hold: abar = exp(dt a), bbar = dt phi(dt a) b, phi(z) = (exp(z) - 1) / z;
//              dense: exp(dt [[a, b], [0, 0]]) = [[abar, bbar], [0, I]], with no inverse of a;
//              diagonal: phi(z) = expm1(z) / z, and 1 at 0.
//            bilinear (Tustin), h = dt / 2: abar = (I - h a)^-1 (I + h a),
//              bbar = dt (I - h a)^-1 b, by LU with partial pivoting.
//            Euler: abar = I + dt a, bbar = dt b.
// Gradient   of f with df/dabar = dabar, df/dbbar = dbbar; <x, y> is the sum of x y.
//            zero-order hold, dense, L the Frechet derivative of exp:
//              [[x, y], .] = L(dt [[a, b], [0, 0]]^T, [[dabar, dbbar], [0, 0]]),
//              da = dt x, db = dt y, ddt = <x, a> + <y, b>.
//            bilinear, dense, s = (I - h a)^-1:
//              x = s^T (2 dabar + dt dbbar b^T) s^T, y = s^T dbbar,
//              da = h x, db = dt y, ddt = <x, a> / 2 + <y, b>.
//            Diagonal: da = dabar d(abar)/da + <dbbar, b> d(f)/da where bbar = f b, and so on;
//              zero-order hold: d(f)/da = dt^2 phi'(dt a), d(f)/ddt = exp(dt a).
// Operands   dense: a, abar [B n, n], b, bbar [B n, m], dt [B], f32 or f64: system i has rows
//            [i n, i n + n). diagonal: a, abar [B, n], the rest the same. Any n, m >= 1, any dt.
//            A result may be the operand of its own name (abar a, da dabar: same pointer and
//            stride) and nothing else.
// Scratch    DiscretizeScratch, DiscretizeGradScratch numbers for dense systems, else none.
// Threads    runs of systems, fixed by the shape. Same bits for any thread count and any company.
// Errors     none; shapes are checked by HOGNOSE_DCHECK. Where I - h a is singular the bilinear
//            result has infinities or NaN.
// Accuracy   zero-order hold, dense: expm.h's of the (n + m) x (n + m) block; diagonal: 8 eps of
//            |abar| and |bbar|, beside eps |dt a| |abar| for the rounding of dt a.
//            bilinear: 8 n eps ||(I - h a)^-1|| ||I - h a|| of the result's norm, growth of the
//            elimination apart.
// Cost       zero-order hold, dense: one exp of size n + m; bilinear: LU and two solves.
// Source     G. Franklin, J. Powell, M. Workman, "Digital control of dynamic systems"; C. Van Loan,
//            "Computing integrals involving the matrix exponential", 1978 (the block).
//            Oracles: DiscretizeRef, DiscretizeDiagonalRef and their gradients, scalar, f64.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

enum class DiscretizeMethod { kZeroOrderHold, kBilinear, kEuler };

template <typename T>  // float or double, here and below
struct DiscretizeArgs {
  core::Mat<const T> a = {};
  core::Mat<const T> b = {};
  core::Vec<const T> dt = {};
  core::Mat<T> abar = {};
  core::Mat<T> bbar = {};
  DiscretizeMethod method = DiscretizeMethod::kZeroOrderHold;
  core::Vec<T> scratch = {};  // dense only
};

// For B systems of size n with m inputs.
template <typename T>
size_t DiscretizeScratch(DiscretizeMethod method, size_t batch, size_t n, size_t m);

void Discretize(core::Exec& exec, const DiscretizeArgs<float>& args) noexcept;
void Discretize(core::Exec& exec, const DiscretizeArgs<double>& args) noexcept;
void DiscretizeDiagonal(core::Exec& exec, const DiscretizeArgs<float>& args) noexcept;
void DiscretizeDiagonal(core::Exec& exec, const DiscretizeArgs<double>& args) noexcept;

template <typename T>
void DiscretizeRef(const DiscretizeArgs<T>& args);
template <typename T>
void DiscretizeDiagonalRef(const DiscretizeArgs<T>& args);

template <typename T>
struct DiscretizeGradArgs {
  core::Mat<const T> a = {};
  core::Mat<const T> b = {};
  core::Vec<const T> dt = {};
  core::Mat<const T> dabar = {};
  core::Mat<const T> dbbar = {};
  core::Mat<T> da = {};  // all written
  core::Mat<T> db = {};
  core::Vec<T> ddt = {};
  DiscretizeMethod method = DiscretizeMethod::kZeroOrderHold;
  core::Vec<T> scratch = {};  // dense only
};

template <typename T>
size_t DiscretizeGradScratch(DiscretizeMethod method, size_t batch, size_t n, size_t m);

void DiscretizeGrad(core::Exec& exec, const DiscretizeGradArgs<float>& args) noexcept;
void DiscretizeGrad(core::Exec& exec, const DiscretizeGradArgs<double>& args) noexcept;
void DiscretizeDiagonalGrad(core::Exec& exec, const DiscretizeGradArgs<float>& args) noexcept;
void DiscretizeDiagonalGrad(core::Exec& exec, const DiscretizeGradArgs<double>& args) noexcept;

template <typename T>
void DiscretizeGradRef(const DiscretizeGradArgs<T>& args);
template <typename T>
void DiscretizeDiagonalGradRef(const DiscretizeGradArgs<T>& args);

}  // namespace hognose::kernels
