// Which tokens (or rows of a table) row r of step s trains on: a pure function of (seed, step,
// row), so that a resumed run goes on as if it had never stopped, with no state to save.
//
//   sequential: row r of step s reads items (s B + r) L to (s B + r + 1) L; of tokens, the targets
//               are one later.
//   shuffled:   the floor((items - ahead) / L) windows in the order of a permutation for each
//   epoch,
//               which depends on (seed, epoch) only. The rows of all steps follow each other, so
//               one step may hold the end of an epoch and the start of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/status.h"
#include "train/token_data.h"

namespace hognose::train {

enum class Order : uint8_t { kShuffled, kSequential };

struct BatchOptions {
  Order order = Order::kShuffled;
  size_t batch = 1;   // B
  size_t length = 1;  // L
  uint64_t seed = 0;
  size_t steps = 0;  // how many will be asked for
};

// An element of a permutation of 0 .. n-1: a Feistel network over the next power of four, walked
// until it lands below n. No memory, so an epoch of any size costs nothing. index < n.
size_t Permute(uint64_t seed, uint64_t epoch, size_t n, size_t index);

// What windows are cut from.
struct BatchData {
  size_t count = 0;
  size_t ahead =
      0;  // items behind a window that belong to it: 1 for tokens, whose targets they are
  std::string_view unit = "rows";
  std::string_view path = {};
};

class Batches {
 public:
  // Fails if the data holds no window, and, in sequential order, fewer than steps * B of them.
  static core::Result<Batches> Create(const BatchData& data, const BatchOptions& options);
  static core::Result<Batches> Create(const TokenData& data, const BatchOptions& options) {
    return Create({.count = data.size(), .ahead = 1, .unit = "tokens", .path = data.path()},
                  options);
  }

  // The first item of the row's window, which ends at Begin() + L + ahead, inside the data.
  size_t Begin(size_t step, size_t row) const;
  size_t windows() const { return windows_; }

 private:
  BatchOptions options_;
  size_t windows_ = 0;
};

}  // namespace hognose::train
