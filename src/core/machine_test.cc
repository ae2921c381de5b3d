// Rng, FlushDenormals and the facts about the processor.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <cfenv>
#include <cmath>

#include "core/cpu.h"
#include "core/fp_env.h"
#include "core/rng.h"

namespace hognose::core {
namespace {

// Computed by a second program from the two definitions in the paper; the first state word of seed
// 0 is also the published first output of splitmix64. A change would change everybody's samples.
TEST(Rng, SequenceIsPinned) {
  const Rng::State seeded = {0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F,
                             0xF88BB8A8724C81EC};
  EXPECT_EQ(Rng(0).state(), seeded);
  Rng rng(Rng::State{1, 2, 3, 4});
  for (const uint64_t want : std::array<uint64_t, 6>{11520, 0, 1509978240, 1215971899390074240,
                                                     1216172134540287360, 607988272756665600}) {
    EXPECT_EQ(rng.Next(), want);
  }
}

TEST(Rng, AStateContinuesTheSequence) {
  Rng a(42);
  for (int i = 0; i < 10; ++i) a.Next();
  Rng b(a.state());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(Rng(1).Next(), Rng(2).Next());
}

TEST(Rng, UniformStaysInsideAndIsUniform) {
  Rng rng(7);
  constexpr int kDraws = 100000, kBins = 10;
  std::array<int, kBins> bins = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<size_t>(u * kBins)];
    const double v = rng.Uniform(-3.0, 5.0);
    ASSERT_GE(v, -3.0);
    ASSERT_LT(v, 5.0);
    ASSERT_LT(rng.Below(3), 3u);
  }
  // Binomial: mean 10000, standard deviation sqrt(1e5 * 0.1 * 0.9) = 95; six of them.
  for (const int count : bins) EXPECT_NEAR(count, kDraws / kBins, 6 * 95);
}

TEST(Rng, UniformEndsAreExact) {
  // Next() is rotl(5 s[1], 7) * 9: these states give the smallest and the largest word.
  EXPECT_EQ(Rng(Rng::State{1, 0, 0, 0}).Uniform(), 0.0);
  EXPECT_EQ(Rng(Rng::State{1, 0x4fc71c71c71c71c7u, 0, 0}).Uniform(), 1.0 - 0x1.0p-53);
}

// volatile: computed here and now, not by the compiler.
float Halve(float x) {
  const volatile float v = x;
  return v * 0.5f;
}
bool IsZero(float x) {
  const volatile float v = x;
  return v == 0.0f;
}

TEST(FlushDenormals, FlushesInsideAndRestoresOutside) {
  if (kFlushMode == 0) GTEST_SKIP() << "no mode for that here";
  const uint64_t before = FloatMode();
  ASSERT_FALSE(IsZero(Halve(0x1p-126f))) << "a test must begin in the usual mode";
  {
    const FlushDenormals flush;
    EXPECT_EQ(Halve(0x1p-126f), 0.0f) << "results";
    EXPECT_TRUE(IsZero(0x1p-140f)) << "operands";
    EXPECT_EQ(Halve(0x1p-125f), 0x1p-126f) << "normal numbers stay";
    {
      const FlushDenormals nested;
      EXPECT_EQ(Halve(0x1p-126f), 0.0f);
    }
    EXPECT_EQ(Halve(0x1p-126f), 0.0f) << "an inner one restores the outer one's mode";
  }
  EXPECT_NE(Halve(0x1p-126f), 0.0f);
  // The sticky exception flags are not restored by contract; the mode is.
  EXPECT_EQ(FloatMode() & ~kFlagsInMode, before & ~kFlagsInMode);
}

TEST(FlushDenormals, RestoresAModeThatIsNotTheUsualOne) {
  ASSERT_EQ(std::fesetround(FE_TOWARDZERO), 0);
  const uint64_t toward_zero = FloatMode();
  { const FlushDenormals flush; }
  EXPECT_EQ(FloatMode() & ~kFlagsInMode, toward_zero & ~kFlagsInMode);
  EXPECT_EQ(std::fegetround(), FE_TOWARDZERO);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
}

TEST(Cpu, FactsAreSane) {
  const CpuFacts& cpu = Cpu();
  EXPECT_EQ(&cpu, &Cpu()) << "read once";
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(cpu.usable_threads, static_cast<size_t>(CPU_COUNT(&set)));
  EXPECT_GE(cpu.threads_per_core, 1u);
  EXPECT_LE(cpu.threads_per_core, 8u);
  EXPECT_GE(cpu.physical_cores(), 1u);
  EXPECT_LE(cpu.physical_cores(), cpu.usable_threads);
  EXPECT_GE(cpu.l1d_bytes, size_t{4} << 10);
  EXPECT_LE(cpu.l1d_bytes, size_t{1} << 20);
  EXPECT_GE(cpu.l2_bytes, cpu.l1d_bytes);
  EXPECT_TRUE(cpu.l3_bytes == 0 || cpu.l3_bytes >= cpu.l2_bytes / 2);
}

TEST(Cpu, PhysicalCoresNeverFallToZero) {
  CpuFacts facts;
  facts.usable_threads = 1;
  facts.threads_per_core = 2;
  EXPECT_EQ(facts.physical_cores(), 1u);
  facts.usable_threads = 8;
  EXPECT_EQ(facts.physical_cores(), 4u);
}

}  // namespace
}  // namespace hognose::core
