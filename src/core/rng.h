// A small counter of randomness: xoshiro256**, seeded by splitmix64, with a copyable state.
//
// Source: D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", 2021.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace hognose::core {

// splitmix64: steps of kMixStep, each finished by Mix, whose every bit of the input reaches every
// bit of the result.
inline constexpr uint64_t kMixStep = 0x9E3779B97F4A7C15u;
constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class Rng {
 public:
  using State = std::array<uint64_t, 4>;

  explicit Rng(uint64_t seed) {
    for (auto& word : state_) {
      seed += kMixStep;
      word = Mix(seed);
    }
  }
  explicit Rng(const State& state) : state_(state) {}

  const State& state() const { return state_; }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Uniform in [lo, hi).
  double Uniform(double lo, double hi) { return lo + (hi - lo) * Uniform(); }
  // Uniform in [0, n), n > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }

 private:
  State state_;
};

}  // namespace hognose::core
