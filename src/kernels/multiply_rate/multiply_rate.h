// multiply_rate: multiplies and adds in registers only, for measuring how fast a core can.
//
// Formula    kChains sums in parallel; each round adds to each of them the products of one
//            instruction: sum += x * y, with x and y whole numbers that stay the same
// Operands   x, y in [0, 7] as `type` says; the answer is the total of all sums, exact as long as
//            rounds * x * y * 64 < 2^24 (AMX: each of its sums).
// Scratch    none. Runs on the calling thread: a caller with a pool starts one a thread.
// Errors     none: `instruction` is empty where the target in use has none for the type.
// Cost       MultiplyUnit::operations a round.
// Oracle     MultiplyRateRef.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hognose::kernels {

enum class MultiplyType : uint8_t { kF32, kBF16, kInt8 };
inline constexpr std::array<MultiplyType, 3> kMultiplyTypes = {
    MultiplyType::kF32, MultiplyType::kBF16, MultiplyType::kInt8};
inline constexpr std::array<std::string_view, 3> kMultiplyTypeNames = {"f32", "bf16", "int8"};

// What the target in use multiplies such numbers with.
struct MultiplyUnit {
  std::string_view instruction;  // "VPDPBF16PS"
  double products = 0.0;         // a round, all chains together
  // Multiplications and additions of a round.
  double operations() const { return 2.0 * products; }
};
MultiplyUnit UnitFor(MultiplyType type);

double MultiplyRate(MultiplyType type, uint64_t rounds, int x, int y) noexcept;

double MultiplyRateRef(MultiplyType type, uint64_t rounds, int x, int y);

}  // namespace hognose::kernels
