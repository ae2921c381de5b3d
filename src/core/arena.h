// Arena: one allocation, carved once. A plan is the carving itself, run first on an Arena that only
// measures:
//
//   Arena measure;                       // hands out null pointers and counts
//   Buffers::Carve(measure, shape);
//   Result<Arena> arena = Arena::Allocate(measure.used());
//   buffers = Buffers::Carve(*arena, shape);
#pragma once

#include <cstddef>
#include <memory>

#include "core/status.h"
#include "core/tensor.h"

namespace hognose::core {

class Arena {
 public:
  static constexpr size_t kAlignment = 128;  // two cache lines: the adjacent-line prefetcher's unit

  Arena() = default;  // measures only
  // Zeroed memory. Fails only when the system has no memory left.
  static Result<Arena> Allocate(size_t bytes);
  // Carves memory of the caller, who keeps it; it must begin at a multiple of a float's size.
  static Arena Over(Vec<float> memory);

  // `rows` rows of `cols` elements. Each row begins on a cache line.
  template <typename T>
  Mat<T> NewMat(size_t rows, size_t cols) {
    const size_t per_line = kAlignment / sizeof(T);
    const size_t stride = (cols + per_line - 1) / per_line * per_line;
    return {static_cast<T*>(Take(rows * stride * sizeof(T))), rows, cols, stride};
  }
  template <typename T>
  Vec<T> NewVec(size_t size) {
    return {static_cast<T*>(Take(size * sizeof(T))), size};
  }

  size_t used() const { return used_; }
  // Forgets everything handed out; the memory stays and is not zeroed again.
  void Rewind() { used_ = 0; }

 private:
  struct Free {
    bool borrowed;  // of the caller
    Free() : borrowed(false) {}
    explicit Free(bool b) : borrowed(b) {}
    void operator()(void* p) const;
  };

  void* Take(size_t bytes);

  std::unique_ptr<void, Free> memory_;
  size_t capacity_ = 0;
  size_t used_ = 0;
};

}  // namespace hognose::core
