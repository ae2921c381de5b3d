// The oracles: scalar, f64 or wider, one system after the other.
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/discretize/block.h"
#include "kernels/discretize/discretize.h"
#include "kernels/expm/expm.h"

namespace hognose::kernels {
namespace {

using Wide = long double;

// A small matrix of its own.
struct Matrix {
  size_t rows, cols;
  std::vector<Wide> values;

  Matrix(size_t r, size_t c) : rows(r), cols(c), values(r * c) {}
  template <typename T>
  Matrix(const core::Mat<T>& m, size_t begin, size_t r) : Matrix(r, m.cols) {
    for (size_t i = 0; i < r; ++i) {
      for (size_t j = 0; j < cols; ++j) (*this)(i, j) = m.Row(begin + i)[j];
    }
  }
  Wide& operator()(size_t i, size_t j) { return values[i * cols + j]; }
  Wide operator()(size_t i, size_t j) const { return values[i * cols + j]; }

  Matrix Transposed() const {
    Matrix t(cols, rows);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) t(j, i) = (*this)(i, j);
    }
    return t;
  }
  template <typename T>
  void Put(Wide factor, const core::Mat<T>& to, size_t begin) const {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        to.Row(begin + i)[j] = static_cast<T>(factor * (*this)(i, j));
      }
    }
  }
};

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t k = 0; k < a.cols; ++k) {
      for (size_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

Wide Dot(const Matrix& a, const Matrix& b) {
  Wide sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

// I + factor a.
Matrix PlusIdentity(const Matrix& a, Wide factor) {
  Matrix result(a.rows, a.cols);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.cols; ++j) result(i, j) = factor * a(i, j) + (i == j ? 1 : 0);
  }
  return result;
}

// By Gauss and Jordan, with pivots.
Matrix Inverse(Matrix a) {
  const size_t n = a.rows;
  Matrix x = PlusIdentity(Matrix(n, n), 0);
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i) {
      if (std::abs(a(i, k)) > std::abs(a(pivot, k))) pivot = i;
    }
    for (size_t j = 0; j < n; ++j) {
      std::swap(a(k, j), a(pivot, j));
      std::swap(x(k, j), x(pivot, j));
    }
    const Wide by = 1 / a(k, k);
    for (size_t j = 0; j < n; ++j) {
      a(k, j) *= by;
      x(k, j) *= by;
    }
    for (size_t i = 0; i < n; ++i) {
      const Wide factor = a(i, k);
      for (size_t j = 0; j < n && i != k; ++j) {
        a(i, j) -= factor * a(k, j);
        x(i, j) -= factor * x(k, j);
      }
    }
  }
  return x;
}

template <typename T>
void HoldRef(const DiscretizeArgs<T>& args, size_t s) {
  const size_t n = args.a.cols, m = args.b.cols;
  std::vector<double> block((n + m) * (n + m));
  const core::Mat<double> matrix = {block.data(), n + m, n + m, n + m};
  for (size_t i = 0; i < n; ++i) {
    const double dt = args.dt[s];
    for (size_t j = 0; j < n; ++j) matrix.Row(i)[j] = dt * args.a.Row(s * n + i)[j];
    for (size_t j = 0; j < m; ++j) matrix.Row(i)[n + j] = dt * args.b.Row(s * n + i)[j];
  }
  ExpmRef<double>({.a = matrix, .y = matrix});
  Matrix(matrix.Cols(0, n), 0, n).Put(1, args.abar, s * n);
  Matrix(matrix.Cols(n, m), 0, n).Put(1, args.bbar, s * n);
}

// x and y of the gradient.
template <typename T>
std::pair<Matrix, Matrix> HoldGradRef(const DiscretizeGradArgs<T>& args, size_t s) {
  const size_t n = args.a.cols, m = args.b.cols, size = n + m;
  std::vector<double> block(size * size), along(size * size);
  const core::Mat<double> matrix = {block.data(), size, size, size};
  const core::Mat<double> e = {along.data(), size, size, size};
  const double dt = args.dt[s];
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < size; ++j) {
      const size_t row = s * n + i;
      matrix.Row(j)[i] = dt * (j < n ? args.a.Row(row)[j] : args.b.Row(row)[j - n]);
      e.Row(i)[j] = j < n ? args.dabar.Row(row)[j] : args.dbbar.Row(row)[j - n];
    }
  }
  ExpmFrechetRef<double>({.a = matrix, .e = e, .dy = e});
  return {Matrix(e.Cols(0, n), 0, n), Matrix(e.Cols(n, m), 0, n)};
}

template <typename T>
std::pair<Matrix, Matrix> BilinearGradRef(const DiscretizeGradArgs<T>& args, size_t s) {
  const size_t n = args.a.cols, first = s * n;
  const Wide dt = args.dt[s];
  const Matrix a(args.a, first, n), b(args.b, first, n), dbbar(args.dbbar, first, n);
  const Matrix inverse = Inverse(PlusIdentity(a, -dt / 2)).Transposed();
  Matrix ds = dbbar * b.Transposed();
  const Matrix dabar(args.dabar, first, n);
  for (size_t i = 0; i < ds.values.size(); ++i) {
    ds.values[i] = dt * ds.values[i] + 2 * dabar.values[i];
  }
  return {inverse * ds * inverse, inverse * dbbar};
}

// phi'(z), where the closed form cancels by its series.
Wide PhiSlope(Wide z) {
  if (std::abs(z) > 1) return (std::exp(z) - std::expm1(z) / z) / z;
  Wide sum = 0, power = 1, factorial = 2;
  for (int k = 0; k < 25; ++k) {
    sum += (k + 1) * power / factorial;
    power *= z;
    factorial *= k + 3;
  }
  return sum;
}

// abar, bbar / b, their slopes along a, and along dt.
struct EntryRef {
  Wide value, factor, value_a, factor_a, value_dt, factor_dt;
};

EntryRef MakeEntryRef(DiscretizeMethod method, Wide a, Wide dt) {
  const Wide z = dt * a, h = dt / 2, below = 1 - h * a;
  switch (method) {
    case DiscretizeMethod::kZeroOrderHold:
      return {std::exp(z),      dt * (z == 0 ? 1 : std::expm1(z) / z),
              dt * std::exp(z), dt * dt * PhiSlope(z),
              a * std::exp(z),  std::exp(z)};
    case DiscretizeMethod::kBilinear:
      return {(1 + h * a) / below,      dt / below,          dt / (below * below),
              dt * h / (below * below), a / (below * below), 1 / (below * below)};
    case DiscretizeMethod::kEuler:
      break;
  }
  return {1 + z, dt, dt, 0, a, 1};
}

}  // namespace

template <typename T>
void DiscretizeRef(const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t s = 0; s < args.dt.size; ++s) {
    if (args.method == DiscretizeMethod::kZeroOrderHold) {
      HoldRef(args, s);
      continue;
    }
    const Wide dt = args.dt[s];
    const Matrix a(args.a, s * n, n), b(args.b, s * n, n);
    if (args.method == DiscretizeMethod::kEuler) {
      PlusIdentity(a, dt).Put(1, args.abar, s * n);
      b.Put(dt, args.bbar, s * n);
      continue;
    }
    const Matrix inverse = Inverse(PlusIdentity(a, -dt / 2));
    (inverse * PlusIdentity(a, dt / 2)).Put(1, args.abar, s * n);
    (inverse * b).Put(dt, args.bbar, s * n);
  }
}
template void DiscretizeRef(const DiscretizeArgs<float>& args);
template void DiscretizeRef(const DiscretizeArgs<double>& args);

template <typename T>
void DiscretizeGradRef(const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t s = 0; s < args.dt.size; ++s) {
    const Wide dt = args.dt[s];
    const bool bilinear = args.method == DiscretizeMethod::kBilinear;
    const Wide share = bilinear ? 0.5L : 1.0L;
    const auto [x, y] = bilinear ? BilinearGradRef(args, s)
                        : args.method == DiscretizeMethod::kZeroOrderHold
                            ? HoldGradRef(args, s)
                            : std::pair{Matrix(args.dabar, s * n, n), Matrix(args.dbbar, s * n, n)};
    args.ddt[s] =
        static_cast<T>(share * Dot(x, Matrix(args.a, s * n, n)) + Dot(y, Matrix(args.b, s * n, n)));
    x.Put(share * dt, args.da, s * n);
    y.Put(dt, args.db, s * n);
  }
}
template void DiscretizeGradRef(const DiscretizeGradArgs<float>& args);
template void DiscretizeGradRef(const DiscretizeGradArgs<double>& args);

template <typename T>
void DiscretizeDiagonalRef(const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t row = 0; row < args.b.rows; ++row) {
    const EntryRef e = MakeEntryRef(args.method, args.a.Row(row / n)[row % n], args.dt[row / n]);
    args.abar.Row(row / n)[row % n] = static_cast<T>(e.value);
    for (size_t c = 0; c < args.b.cols; ++c) {
      args.bbar.Row(row)[c] = static_cast<T>(e.factor * args.b.Row(row)[c]);
    }
  }
}
template void DiscretizeDiagonalRef(const DiscretizeArgs<float>& args);
template void DiscretizeDiagonalRef(const DiscretizeArgs<double>& args);

template <typename T>
void DiscretizeDiagonalGradRef(const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t s = 0; s < args.dt.size; ++s) {
    Wide ddt = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t row = s * n + i;
      const EntryRef e = MakeEntryRef(args.method, args.a.Row(s)[i], args.dt[s]);
      const Wide dabar = args.dabar.Row(s)[i];
      Wide along_b = 0;
      for (size_t c = 0; c < args.b.cols; ++c) {
        along_b += static_cast<Wide>(args.dbbar.Row(row)[c]) * args.b.Row(row)[c];
        args.db.Row(row)[c] = static_cast<T>(e.factor * args.dbbar.Row(row)[c]);
      }
      args.da.Row(s)[i] = static_cast<T>(dabar * e.value_a + along_b * e.factor_a);
      ddt += dabar * e.value_dt + along_b * e.factor_dt;
    }
    args.ddt[s] = static_cast<T>(ddt);
  }
}
template void DiscretizeDiagonalGradRef(const DiscretizeGradArgs<float>& args);
template void DiscretizeDiagonalGradRef(const DiscretizeGradArgs<double>& args);

}  // namespace hognose::kernels
