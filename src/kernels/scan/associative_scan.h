// Scans over any type and any associative operation, in plain C++: for what kernels/scan/scan.h has
// no operator for, such as matrices, pairs or strings.
//
// Formula    h_{-1} = initial;  h_i = combine(h_{i-1}, in_i);  out_i = h_i, or h_{i-1} with
//            kExclusive. Returns the last h. combine(earlier, later) must be associative; it need
//            not commute.
// Operands   in, out of the same length, 0 too; out may be in.
// Scratch    AssociativeScanParallel: `totals`, at least AssociativeScanSegments(length) elements.
//            Threads: segments of time. Their number comes from the length alone, so a result does
//            not depend on the number of threads.
// Errors     what T's copies and combine throw from AssociativeScan leaves out partly written; in
//            AssociativeScanParallel neither may throw.
// Cost       length calls of combine; AssociativeScanParallel nearly twice that, in two passes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/check.h"
#include "core/exec.h"

namespace hognose::kernels {

enum class ScanKind { kInclusive, kExclusive };

template <typename T, typename Combine>
T AssociativeScan(std::span<const T> in, std::span<T> out, T initial, const Combine& combine,
                  ScanKind kind = ScanKind::kInclusive) {
  HOGNOSE_DCHECK(in.size() == out.size());
  T h = initial;
  for (size_t i = 0; i < in.size(); ++i) {
    T next = combine(h, in[i]);
    out[i] = kind == ScanKind::kExclusive ? h : next;
    h = next;
  }
  return h;
}

inline constexpr size_t kAssociativeScanSegment = 1024;  // elements, at least
inline constexpr size_t kAssociativeScanSegments = 33;   // at most

constexpr size_t AssociativeScanSegments(size_t length) {
  return std::min(kAssociativeScanSegments,
                  (length + kAssociativeScanSegment - 1) / kAssociativeScanSegment);
}

template <typename T, typename Combine>
T AssociativeScanParallel(core::Exec& exec, std::span<const T> in, std::span<T> out, T initial,
                          const Combine& combine, std::span<T> totals,
                          ScanKind kind = ScanKind::kInclusive) {
  const size_t segments = AssociativeScanSegments(in.size());
  HOGNOSE_DCHECK(in.size() == out.size() && totals.size() >= segments);
  const auto begin = [&](size_t s) { return in.size() * s / segments; };
  const auto scan = [&](size_t s, const T& state) {
    const size_t size = begin(s + 1) - begin(s);
    return AssociativeScan<T>(in.subspan(begin(s), size), out.subspan(begin(s), size), state,
                              combine, kind);
  };
  if (segments < 2) return segments == 0 ? initial : scan(0, initial);
  // The first segment needs no total, it can be scanned at once; nobody needs the last one's.
  exec.pool.Run(segments - 1, [&](size_t s) {
    if (s == 0) {
      totals[0] = scan(0, initial);
      return;
    }
    T total = in[begin(s)];
    for (size_t i = begin(s) + 1; i < begin(s + 1); ++i) total = combine(total, in[i]);
    totals[s] = total;
  });
  for (size_t s = 1; s + 1 < segments; ++s) totals[s] = combine(totals[s - 1], totals[s]);
  exec.pool.Run(segments - 1, [&](size_t task) {
    T last = scan(task + 1, totals[task]);
    if (task + 2 == segments) totals[segments - 1] = last;
  });
  return totals[segments - 1];
}

}  // namespace hognose::kernels
