#include "kernels/expm/expm.h"

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {
template <typename T> void Quick(size_t n, size_t batch, double range) {
  core::Rng rng(n*7+batch);
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  std::vector<T> a(batch*n*n); for (auto& v : a) v = rng.Uniform(-range, range);
  std::vector<T> e(a); for (auto& v : e) v = rng.Uniform(-1, 1);
  std::vector<T> ref(a.size()), dref(a.size());
  auto mat=[&](auto& v){ return core::Mat<T>{v.data(), batch*n, n, n}; };
  ExpmFrechetRef<T>({.a = mat(a), .e = mat(e), .y = mat(ref), .dy=mat(dref)});
  std::vector<std::vector<T>> keep;
  for (auto layout : {ExpmLayout::kLanes, ExpmLayout::kRows}) {
    if (n > 32 && layout == ExpmLayout::kLanes) continue;
    std::vector<T> y(a.size()), y2(a.size()), dy(a.size()), s(ExpmScratch<T>(n,batch)), s2(ExpmGradScratch<T>(n,batch));
    Expm(exec, ExpmArgs<T>{.a=mat(a), .y=mat(y), .scratch={s.data(),s.size()}, .layout=layout});
    ExpmFrechet(exec, ExpmFrechetArgs<T>{.a=mat(a), .e=mat(e), .y=mat(y2), .dy=mat(dy), .scratch={s2.data(),s2.size()}, .layout=layout});
    double m=0, r=0, md=0, rd=0, m2=0;
    for (size_t i=0;i<a.size();++i) { m=std::max<double>(m,std::abs(y[i]-ref[i])); m2=std::max<double>(m2,std::abs(y2[i]-ref[i])); r=std::max<double>(r,std::abs(ref[i]));
     md=std::max<double>(md,std::abs(dy[i]-dref[i])); rd=std::max<double>(rd,std::abs(dref[i])); }
    printf("%s n=%zu B=%zu layout=%d rel %.2e %.2e d %.2e\n", std::string(CurrentTarget()).c_str(), n, batch, (int)layout, m/r, m2/r, md/rd);
    keep.push_back(y); keep.push_back(dy);
  }
  if (keep.size()==4) printf("same %d %d\n", keep[0]==keep[2], keep[1]==keep[3]);
}
TEST(Expm, Quick) {
  ForEachTarget([&] {
    for (size_t n : {1, 2, 3, 5, 8, 16, 17, 31, 64}) for (double r : {0.5, 3.0}) { Quick<double>(n, 11, r/n); Quick<float>(n, 19, r/n);Quick<double>(n, 3, 4*r); }
  });
}
}  // namespace
}  // namespace hognose::kernels
