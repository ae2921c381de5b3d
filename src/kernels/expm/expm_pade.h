// The Pade approximants r_m = p_m(A) / p_m(-A) of exp(A): coefficients, how large ||A||_1 may be
// for each order, and what follows for a matrix: its order and number of squarings.
#pragma once

#include <cmath>
#include <cstddef>
#include <iterator>
#include <type_traits>

namespace hognose::kernels {

inline constexpr size_t kPadeMaxOrder = 13;

// b_0 .. b_m of p_m(x) = sum of b_k x^k, whole numbers with b_m = 1.
template <size_t kOrder>
inline constexpr double kPade[kOrder + 1] = {};
template <>
inline constexpr double kPade<3>[] = {120, 60, 12, 1};
template <>
inline constexpr double kPade<5>[] = {30240, 15120, 3360, 420, 30, 1};
template <>
inline constexpr double kPade<7>[] = {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1};
template <>
inline constexpr double kPade<9>[] = {17643225600, 8821612800, 2075673600, 302702400, 30270240,
                                      2162160,     110880,     3960,       90,        1};
template <>
inline constexpr double kPade<13>[] = {64764752532480000.,
                                       32382376266240000.,
                                       7771770303897600.,
                                       1187353796428800.,
                                       129060195264000.,
                                       10559470521600.,
                                       670442572800.,
                                       33522128640.,
                                       1323241920.,
                                       40840800.,
                                       960960.,
                                       16380.,
                                       182.,
                                       1.};

// The largest norm for an order. With log(exp(-x) r_m(x)) = sum of c_k x^k from k = 2m + 1 on, u
// half the type's epsilon: `value` is where sum |c_k| x^(k-1) = u, so that r_m(A) = exp(A + dA)
// with ||dA|| <= u ||A||; `derivative` where sum k |c_k| x^(k-1) = u, the same for the Frechet
// derivative. tests/oracle/expm_thetas.py computes both.
struct PadeBound {
  size_t order;
  double value, derivative;
};
inline constexpr PadeBound kPadeBoundsF64[] = {{3, 1.4955852179582915e-2, 1.0813385777848366e-2},
                                               {5, 2.5393983300632321e-1, 1.9980632069789490e-1},
                                               {7, 9.5041789961629319e-1, 7.8346084729620445e-1},
                                               {9, 2.0978479612570675, 1.7824486239692788},
                                               {13, 5.3719203511481523, 4.7403075437668067}};
inline constexpr PadeBound kPadeBoundsF32[] = {{3, 4.2587300348979312e-1, 3.0803304184533009e-1},
                                               {5, 1.8801526985337688, 1.4825326147931447},
                                               {7, 3.9257248464332842, 3.2486717552004776}};

template <typename T>
inline constexpr auto& kPadeBounds = kPadeBoundsF64;
template <>
inline constexpr auto& kPadeBounds<float> = kPadeBoundsF32;

// exp(A) = r_order(A / 2^squarings)^(2^squarings).
struct PadePlan {
  size_t order;
  size_t squarings;
};

// The halvings that bring `norm` down to what the highest order allows.
template <typename T>
size_t PadeSquarings(double norm, bool derivative) {
  const PadeBound& last = std::end(kPadeBounds<T>)[-1];
  const double bound = derivative ? last.derivative : last.value;
  if (norm <= bound) return 0;
  // norm / bound = fraction 2^exponent with a fraction in [1/2, 1): exact, where a logarithm would
  // round.
  int exponent = 0;
  const double fraction = std::frexp(norm / bound, &exponent);
  return static_cast<size_t>(fraction == 0.5 ? exponent - 1 : exponent);
}

// For a norm of at most half the largest number: then 2^-squarings is a normal one.
template <typename T>
PadePlan PlanPade(T norm, bool derivative) {
  for (const PadeBound& b : kPadeBounds<T>) {
    if (norm <= (derivative ? b.derivative : b.value)) return {b.order, 0};
  }
  return {std::end(kPadeBounds<T>)[-1].order, PadeSquarings<T>(norm, derivative)};
}

// Powers k >= p (p - 1) have ||A^k|| <= max(||A^p||^(1/p), ||A^(p+1)||^(1/(p+1)))^k, and the series
// above begins with k = 2m + 1: 27 or 15. So this p, for the highest order, makes a norm of powers
// stand in for ||A||.
template <typename T>
inline constexpr int kPadePower = std::is_same_v<T, float> ? 4 : 5;

}  // namespace hognose::kernels
