// exp of matrices, its derivative and spectral radii against 80-digit arithmetic, scipy and LAPACK:
// tests/fixtures/expm.safetensors, made by tests/oracle/expm_fixture.py.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "kernels/expm/dense_testing.h"
#include "kernels/expm/expm.h"
#include "kernels/spectral_radius/spectral_radius.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

class ExpmFixture : public ::testing::Test {
 protected:
  ExpmFixture()
      : file_(io::SafetensorsFile::Open(HOGNOSE_SOURCE_DIR "/tests/fixtures/expm.safetensors")) {
    for (const auto& [name, tensor] : file_.value().tensors()) {
      if (name.ends_with(".a")) names_.push_back(name.substr(0, name.size() - 2));
    }
  }
  TestMat<double> Matrix(const std::string& name) {
    const core::TensorView& tensor = file_.value().tensors().at(name);
    TestMat<double> m(tensor.shape[0], tensor.shape[1]);
    for (size_t i = 0; i < tensor.elements(); ++i) {
      m(i / m.cols, i % m.cols) = tensor.As<double>()[i];
    }
    return m;
  }
  double Number(const std::string& name) { return *file_.value().tensors().at(name).As<double>(); }

  core::Result<io::SafetensorsFile> file_;
  std::vector<std::string> names_;
  core::ThreadPool pool_{1};
  core::Exec exec_{pool_};
};

// A backward error of n eps, which the condition of exp at a makes a forward one, and n eps for the
// rounding of the result.
double Allowed(size_t n, double eps, double condition) { return n * eps * (1.0 + condition); }

template <typename T>
struct Results {
  TestMat<T> y, y_too, dy;

  Results(core::Exec exec, const TestMat<T>& a, const TestMat<T>& e)
      : y(a.rows, a.cols), y_too(y), dy(y) {
    std::vector<T> scratch(ExpmGradScratch<T>(a.cols, 1));
    const core::Vec<T> all = {scratch.data(), scratch.size()};
    Expm(exec, ExpmArgs<T>{.a = a.Mat(), .y = y.Mat(), .scratch = all});
    ExpmFrechet(exec,
                ExpmFrechetArgs<T>{
                    .a = a.Mat(), .e = e.Mat(), .y = y_too.Mat(), .dy = dy.Mat(), .scratch = all});
  }
};

TEST_F(ExpmFixture, ErrorsAreThoseOfTheCondition) {
  ASSERT_GE(names_.size(), 20u);
  ForEachTarget([&] {
    size_t well = 0;
    for (const std::string& name : names_) {
      const TestMat<double> a = Matrix(name + ".a"), e = Matrix(name + ".e");
      const TestMat<double> y = Matrix(name + ".y"), dy = Matrix(name + ".dy");
      const Results<double> got(exec_, a, e);
      const double condition = Number(name + ".condition");
      const double allowed = Allowed(a.cols, kEpsOf<double>, condition);
      const size_t n = a.cols;
      EXPECT_LE(NormOf(got.y, 0, n, &y), allowed * NormOf(y, 0, n)) << name;
      EXPECT_LE(NormOf(got.y_too, 0, n, &y), allowed * NormOf(y, 0, n)) << name;
      // Twice that: the derivative is part of exp of [[a, e], [0, a]], where sums are twice as
      // long.
      EXPECT_LE(NormOf(got.dy, 0, n, &dy), 2 * allowed * NormOf(dy, 0, n)) << name;
      if (condition > 100.0) continue;
      EXPECT_LE(NormOf(got.y, 0, n, &y), 1e-13 * NormOf(y, 0, n)) << name;
      ++well;
    }
    EXPECT_GE(well, 15u);
  });
}

TEST_F(ExpmFixture, FloatsToo) {
  ForEachTarget([&] {
    for (const std::string& name : names_) {
      const double condition = Number(name + ".condition");
      // What a rounded to f32 has lost is the condition's affair too, but to first order only.
      if (condition * kEpsOf < float >> 1e-3) continue;
      const TestMat<double> a = Matrix(name + ".a"), y = Matrix(name + ".y");
      const Results<float> results(exec_, Convert<float>(a), Convert<float>(Matrix(name + ".e")));
      const TestMat<double> got = Convert<double>(results.y);
      EXPECT_LE(NormOf(got, 0, a.cols, &y),
                Allowed(a.cols, kEpsOf<float>, condition) * NormOf(y, 0, a.cols))
          << name;
    }
  });
}

TEST_F(ExpmFixture, RadiiAreLapacks) {
  ForEachTarget([&] {
    for (const std::string& name : names_) {
      const TestMat<double> a = Matrix(name + ".a");
      const size_t n = a.cols;
      double rho = -1.0;
      std::vector<double> scratch(SpectralRadiusScratch(n, 1));
      SpectralRadius(
          exec_, SpectralRadiusArgs<double>{
                     .a = a.Mat(), .rho = {&rho, 1}, .scratch = {scratch.data(), scratch.size()}});
      const double want = Number(name + ".radius");
      // An eigenvalue of multiplicity 8 that rounding moves by the eighth root of n eps ||a||.
      const bool multiple = name == "nilpotent_rotated";
      const double moved = multiple ? std::pow(n * kEpsOf<double> * NormOf(a, 0, n), 1.0 / 8) : 0.0;
      EXPECT_GE(rho, want * (1.0 - 1e-12) - moved) << name;
      // (n k)^(2^-32) with k up to 1e12; a Jordan block's powers grow as k^5, hence 5 * 32 ln 2.
      EXPECT_LE(rho, want * (1.0 + 160 * 0x1p-32) + moved) << name;
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
