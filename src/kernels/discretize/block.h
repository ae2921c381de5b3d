// The blocks [[a, b], [0, 0]] of a batch of systems, and how systems are split into tasks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

// Calls body(i) for every system; one task takes so many that it is worth its while.
template <typename Body>
void RunSystems(core::Exec& exec, size_t batch, size_t numbers, const Body& body) {
  constexpr size_t kNumbersPerTask = 8192;
  const size_t per_task = std::max<size_t>(1, kNumbersPerTask / numbers);
  exec.pool.Run((batch + per_task - 1) / per_task, [&](size_t task) {
    for (size_t i = task * per_task; i < std::min(batch, (task + 1) * per_task); ++i) body(i);
  });
}

// Batches of (n + m) x (n + m) matrices at the head of a scratch array.
template <typename T>
struct BlockSystems {
  size_t n, m, batch;
  T* data;

  BlockSystems(size_t n_size, size_t m_size, size_t batch_size, T* scratch)
      : n(n_size), m(m_size), batch(batch_size), data(scratch) {}
  // Numbers of one batch.
  static size_t Size(size_t n, size_t m, size_t batch) { return batch * (n + m) * (n + m); }

  core::Mat<T> First() const { return {data, batch * (n + m), n + m, n + m}; }
  core::Mat<T> Second() const { return {data + Size(n, m, batch), batch * (n + m), n + m, n + m}; }
  core::Vec<T> Rest(size_t batches, core::Vec<T> scratch) const {
    const size_t used = batches * Size(n, m, batch);
    return {scratch.data + used, scratch.size - used};
  }

  // Matrix i = factor [[left, right], [0, 0]].
  void Put(const core::Mat<T>& to, size_t i, const core::Mat<const T>& left,
           const core::Mat<const T>& right, T factor) const {
    for (size_t r = 0; r < n; ++r) {
      T* row = to.Row(i * (n + m) + r);
      for (size_t c = 0; c < n; ++c) row[c] = factor * left.Row(i * n + r)[c];
      for (size_t c = 0; c < m; ++c) row[n + c] = factor * right.Row(i * n + r)[c];
    }
    for (size_t r = n; r < n + m; ++r) std::fill_n(to.Row(i * (n + m) + r), n + m, T{0});
  }
  // The upper blocks of matrix i.
  void Take(const core::Mat<T>& from, size_t i, const core::Mat<T>& left,
            const core::Mat<T>& right) const {
    for (size_t r = 0; r < n; ++r) {
      const T* row = from.Row(i * (n + m) + r);
      std::copy_n(row, n, left.Row(i * n + r));
      std::copy_n(row + n, m, right.Row(i * n + r));
    }
  }
};

}  // namespace hognose::kernels
