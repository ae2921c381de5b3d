#include "kernels/attention/attention.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"
namespace hognose::kernels { namespace {
using testing::RandomValues;
TEST(Attention, Quick) {
  core::ThreadPool pool(2); core::Exec exec{pool}; core::Rng rng(1);
  for (size_t w : {0, 64, 700}) for (size_t L : {1, 33, 1000}) for (size_t P : {8, 33, 64}) {
  auto q = RandomValues(rng, L*4*P, -1, 1), k = RandomValues(rng, L*2*P, -1, 1), v = RandomValues(rng, L*2*P, -1, 1);
  std::vector<float> y(q.size()), want(q.size());
  AttentionArgs a{.q = {q.data(), L, 4*P, 4*P}, .k = {k.data(), L, 2*P, 2*P}, .v = {v.data(), L, 2*P, 2*P}, .heads = 4, .key_heads = 2, .window = w, .y = {want.data(), L, 4*P, 4*P}};
  AttentionRef(a);
  ForEachTarget([&] { a.y.data = y.data(); Attention(exec, a); ASSERT_TRUE(testing::CloseToScale(y, want, 1e-5)) << w << " " << L << " " << P; });
  }
}
}}
