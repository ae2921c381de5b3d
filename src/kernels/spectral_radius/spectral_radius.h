// spectral_radius: the largest magnitude of an eigenvalue of dense matrices, and keeping it below a
// bound; for the decays exp(dt a) of a diagonal system the bound is one of A_log.
//
// Formula    Gelfand: rho(a) = lim ||a^k||^(1/k), k = 2^j by j squarings; before each, a power of 2
//            brings the norm near 1, and the exponents are added up.
//            Projection: a *= R / rho where rho > R.
//            Diagonal: exp(-exp(A_log) dt) <= R for every dt >= dt_low where
//            A_log >= ln(-ln R / dt_low).
// Operands   a [B n, n] f32 or f64 (computed in f64), matrix i in rows [i n, i n + n); rho [B].
// Scratch    SpectralRadiusScratch doubles.
// Threads    runs of matrices, fixed by the shape. Same bits for any thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK. A NaN, an infinity or a norm that is too
//            large gives NaN, and the projection leaves such a matrix as it is.
// Accuracy   an upper bound, but for rounding: rho <= result <= rho (n k)^(2^-32), k the
//            condition of the eigenvectors, so that even k = 10^12 costs 7e-9. A nilpotent matrix
//            whose squares vanish exactly (a strict triangle) gives 0.
// Cost       kSpectralSquarings products.
// Source     I. Gelfand, "Normierte Ringe", 1941. Oracles: matrices made of known eigenvalues, and
//            LAPACK's eigenvalues (tests/oracle/expm_fixture.py).
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

inline constexpr int kSpectralSquarings = 32;

template <typename T>  // float or double, here and below
struct SpectralRadiusArgs {
  core::Mat<const T> a = {};
  core::Vec<T> rho = {};
  core::Vec<double> scratch = {};
};

size_t SpectralRadiusScratch(size_t n, size_t batch);

void SpectralRadius(core::Exec& exec, const SpectralRadiusArgs<float>& args) noexcept;
void SpectralRadius(core::Exec& exec, const SpectralRadiusArgs<double>& args) noexcept;

template <typename T>
struct ProjectSpectralRadiusArgs {
  core::Mat<T> a = {};  // in place
  T max_radius = 1;
  core::Vec<T> rho = {};  // what they were
  core::Vec<double> scratch = {};
};

void ProjectSpectralRadius(core::Exec& exec, const ProjectSpectralRadiusArgs<float>& args) noexcept;
void ProjectSpectralRadius(core::Exec& exec,
                           const ProjectSpectralRadiusArgs<double>& args) noexcept;

// ln(-ln R / dt_low): the A_log from which exp(-exp(A_log) dt) <= R wherever dt >= dt_low.
double LeastALog(double max_radius, double dt_low);

// Raises every A_log to `least`, rounded up, so that the bound holds.
void ProjectALog(core::Vec<float> a_log, double least) noexcept;

}  // namespace hognose::kernels
