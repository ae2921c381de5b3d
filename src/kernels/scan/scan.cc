#include "kernels/scan/scan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "core/arena.h"
#include "kernels/scan/scan_piece.h"

namespace hognose::kernels {
namespace internal {

float Identity(ScanOp op) {
  if (op == ScanOp::kProduct) return 1.0f;
  return op == ScanOp::kMax ? -std::numeric_limits<float>::infinity() : 0.0f;
}

ScanPieceArgs PieceOf(const ScanArgs& args, size_t b, size_t begin, size_t steps, size_t c,
                      size_t channels) {
  const size_t t = args.reverse ? args.x.steps - 1 - begin : begin;
  const auto signed_step = [&](const auto& s) {
    const auto step = static_cast<ptrdiff_t>(s.step_stride);
    return args.reverse ? -step : step;
  };
  ScanPieceArgs p;
  p.op = args.op;
  p.exclusive = args.exclusive;
  p.x = args.x.At(b, t) + c;
  p.y = args.y.At(b, t) + c;
  p.x_step = signed_step(args.x);
  p.y_step = signed_step(args.y);
  p.steps = steps;
  p.channels = channels;
  if (args.op == ScanOp::kLinear) {
    p.a = args.a.At(b, t) + c;
    p.a_step = signed_step(args.a);
  } else {  // never read, but pointers and offsets of it are formed
    p.a = p.x;
    p.a_step = p.x_step;
  }
  return p;
}

// Work that comes from memory is read best in wide rows; what is in the cache is better shared out,
// but a task has to be worth its start.
SequentialTasks SequentialTasksOf(const ScanShape& shape) {
  constexpr size_t kCached = 65536, kMinElements = 8192, kRegister = 16, kManyTasks = 2048;
  const size_t size = shape.steps * shape.channels;
  const bool narrow = size <= kCached && shape.sequences * shape.channels < kManyTasks;
  const size_t least = CeilDiv(kMinElements, kRegister * std::max<size_t>(1, shape.steps));
  SequentialTasks tasks;
  tasks.sequences = std::max<size_t>(1, kMinElements / (size + 1));
  tasks.channels = std::max(least * kRegister, narrow ? 2 * kRegister : 16 * kRegister);
  return tasks;
}

namespace {

// Whole registers, whatever their size, and enough steps that a piece's state is little of it.
TimePieces PiecesOf(const ScanShape& shape, size_t steps) {
  constexpr size_t kMultiple = 16;
  steps = CeilDiv(std::max(steps, kMultiple), kMultiple) * kMultiple;
  return {steps, CeilDiv(shape.steps, steps)};
}

}  // namespace

// One more than a multiple of most numbers of threads: either pass has one segment less to do.
TimePieces SegmentsOf(const ScanShape& shape) {
  constexpr size_t kMaxSegments = 33, kElements = 2048;
  return PiecesOf(shape,
                  std::max(CeilDiv(shape.steps, kMaxSegments), CeilDiv(kElements, shape.channels)));
}

// A chunk's operands, 64 KiB each, stay in the second-level cache between its two passes.
TimePieces ChunksOf(const ScanShape& shape) {
  constexpr size_t kElements = 16384;
  return PiecesOf(shape, CeilDiv(kElements, shape.channels));
}

}  // namespace internal

namespace {

using internal::AdvanceState;
using internal::PieceOf;
using internal::ScanPiece;
using internal::TotalPiece;

using internal::CeilDiv;
using internal::ChunksOf;
using internal::SegmentsOf;
using internal::TimePieces;

void LoadInitial(const ScanArgs& args, size_t b, size_t c, size_t channels, float* state) {
  if (args.initial.rows == 0) {
    std::fill_n(state, channels, internal::Identity(args.op));
  } else {
    std::copy_n(args.initial.Row(b) + c, channels, state);
  }
}

void StoreLast(const ScanArgs& args, size_t b, size_t c, size_t channels, const float* state) {
  if (args.last.rows != 0) std::copy_n(state, channels, args.last.Row(b) + c);
}

ScanShape ShapeOf(const ScanArgs& args) {
  return {args.op, args.x.sequences, args.x.steps, args.x.channels};
}

void Sequential(core::Exec& exec, const ScanArgs& args) {
  const size_t channels = args.x.channels, steps = args.x.steps;
  const auto tasks = internal::SequentialTasksOf(ShapeOf(args));
  const size_t blocks = CeilDiv(channels, tasks.channels);
  constexpr size_t kTogether = 256;  // whose state is on the stack
  exec.pool.Run(CeilDiv(args.x.sequences, tasks.sequences) * blocks, [&](size_t task) {
    const size_t begin = task % blocks * tasks.channels, first = task / blocks * tasks.sequences;
    const size_t end = std::min(begin + tasks.channels, channels);
    for (size_t b = first; b < std::min(first + tasks.sequences, args.x.sequences); ++b) {
      for (size_t c = begin; c < end; c += kTogether) {
        const size_t count = std::min(kTogether, end - c);
        float state[kTogether];
        LoadInitial(args, b, c, count, state);
        if (steps > 0) ScanPiece(PieceOf(args, b, 0, steps, c, count), state);
        StoreLast(args, b, c, count, state);
      }
    }
  });
}

// One row [C] for each piece of each sequence.
struct PieceRows {
  core::Mat<float> a, x;   // the piece's total, a for kLinear only
  core::Mat<float> state;  // before the piece; the piece's scan leaves the state after it

  static PieceRows Carve(core::Arena& arena, const ScanShape& shape, size_t pieces) {
    const size_t rows = shape.sequences * pieces;
    PieceRows r;
    if (shape.op == ScanOp::kLinear) r.a = arena.NewMat<float>(rows, shape.channels);
    r.x = arena.NewMat<float>(rows, shape.channels);
    r.state = arena.NewMat<float>(rows, shape.channels);
    return r;
  }
};

// Work on one piece of all channels.
struct PieceWork {
  const ScanArgs& args;
  const TimePieces& pieces;
  const PieceRows& rows;

  size_t Row(size_t b, size_t k) const { return b * pieces.count + k; }
  internal::ScanPieceArgs Piece(size_t b, size_t k) const {
    const size_t begin = k * pieces.steps;
    return PieceOf(args, b, begin, std::min(pieces.steps, args.x.steps - begin), 0,
                   args.x.channels);
  }
  // Never touched where rows.a is empty.
  float* TotalA(size_t row) const { return (rows.a.rows == 0 ? rows.x : rows.a).Row(row); }
  void Total(size_t b, size_t k) const {
    TotalPiece(Piece(b, k), TotalA(Row(b, k)), rows.x.Row(Row(b, k)));
  }
  // The state before piece k + 1, of the one before piece k and its total.
  void Advance(size_t b, size_t k) const {
    const size_t row = Row(b, k);
    AdvanceState(args.op, args.x.channels, TotalA(row), rows.x.Row(row), rows.state.Row(row),
                 rows.state.Row(row + 1));
  }
  void ScanFromState(size_t b, size_t k) const {
    if (k == 0) LoadInitial(args, b, 0, args.x.channels, rows.state.Row(Row(b, 0)));
    float* state = rows.state.Row(Row(b, k));
    ScanPiece(Piece(b, k), state);
    if (k + 1 == pieces.count) StoreLast(args, b, 0, args.x.channels, state);
  }
  // After the scan of the first piece, whose total nobody needs.
  void HandOn(size_t b) const {
    std::copy_n(rows.state.Row(Row(b, 0)), args.x.channels, rows.state.Row(Row(b, 1)));
  }
};

// The first segment is scanned at once in the first pass, and nobody asks for the last one's total.
void Segmented(core::Exec& exec, const ScanArgs& args) {
  const TimePieces pieces = SegmentsOf(ShapeOf(args));
  core::Arena arena = core::Arena::Over(args.scratch);
  const auto rows = PieceRows::Carve(arena, ShapeOf(args), pieces.count);
  const PieceWork work{args, pieces, rows};
  const size_t tasks = std::max<size_t>(1, pieces.count - 1);
  exec.pool.Run(args.x.sequences * tasks, [&](size_t task) {
    if (task % tasks > 0) return work.Total(task / tasks, task % tasks);
    work.ScanFromState(task / tasks, 0);
  });
  if (pieces.count == 1) return;
  exec.pool.Run(args.x.sequences, [&](size_t b) {
    work.HandOn(b);
    for (size_t k = 1; k + 1 < pieces.count; ++k) work.Advance(b, k);
  });
  exec.pool.Run(args.x.sequences * tasks,
                [&](size_t task) { work.ScanFromState(task / tasks, task % tasks + 1); });
}

// Any thread may run any chunk, but chunks are taken in their order: whoever waits for the state
// before a chunk waits for one that a thread already works on.
void Chunked(core::Exec& exec, const ScanArgs& args) {
  const TimePieces pieces = ChunksOf(ShapeOf(args));
  core::Arena arena = core::Arena::Over(args.scratch);
  const auto rows = PieceRows::Carve(arena, ShapeOf(args), pieces.count);
  const PieceWork work{args, pieces, rows};
  alignas(64) std::atomic<size_t> taken{0};
  alignas(64) std::atomic<size_t> passed{0};  // chunks that have left the state after them
  const auto wait_for_state = [&](size_t chunk) {
    constexpr int kLooksBeforeYield = 1000;
    for (int looks = 0; passed.load(std::memory_order_acquire) < chunk; ++looks) {
      if (looks >= kLooksBeforeYield) std::this_thread::yield();
    }
  };
  exec.pool.Run(args.x.sequences * pieces.count, [&](size_t) {
    const size_t chunk = taken.fetch_add(1, std::memory_order_relaxed);
    const size_t b = chunk / pieces.count, k = chunk % pieces.count;
    const bool first = k == 0, end = k + 1 == pieces.count;
    if (first) {
      work.ScanFromState(b, 0);
      if (!end) work.HandOn(b);
    } else if (!end) {
      work.Total(b, k);
    }
    wait_for_state(chunk);
    if (!first && !end) work.Advance(b, k);
    passed.store(chunk + 1, std::memory_order_release);
    if (!first) work.ScanFromState(b, k);
  });
}

}  // namespace

size_t ScanScratch(const ScanShape& shape, ScanMethod method) noexcept {
  if (shape.sequences == 0 || shape.steps == 0 || shape.channels == 0) return 0;
  if (method == ScanMethod::kAuto) method = PickScan(shape);
  if (method == ScanMethod::kSequential) return 0;
  if (method == ScanMethod::kBlelloch) return internal::BlellochScratch(shape);
  core::Arena measure;
  const bool segmented = method == ScanMethod::kSegmented;
  PieceRows::Carve(measure, shape, (segmented ? SegmentsOf(shape) : ChunksOf(shape)).count);
  return measure.used() / sizeof(float);
}

void Scan(core::Exec& exec, const ScanArgs& args) noexcept {
  const size_t sequences = args.x.sequences, steps = args.x.steps, channels = args.x.channels;
  const auto same_shape = [&](const auto& s) {
    return s.sequences == sequences && s.steps == steps && s.channels == channels;
  };
  const auto states = [&](const auto& m) {
    return m.rows == 0 || (m.rows == sequences && m.cols == channels);
  };
  HOGNOSE_DCHECK(same_shape(args.y) && (args.op != ScanOp::kLinear || same_shape(args.a)));
  HOGNOSE_DCHECK(states(args.initial) && states(args.last));
  HOGNOSE_DCHECK(args.scratch.size >= ScanScratch(ShapeOf(args), args.method));
  if (sequences == 0 || channels == 0) return;
  ScanMethod method = args.method == ScanMethod::kAuto ? PickScan(ShapeOf(args)) : args.method;
  if (steps == 0) method = ScanMethod::kSequential;
  switch (method) {
    case ScanMethod::kAuto:
    case ScanMethod::kSequential:
      return Sequential(exec, args);
    case ScanMethod::kChunked:
      return Chunked(exec, args);
    case ScanMethod::kSegmented:
      return Segmented(exec, args);
    case ScanMethod::kBlelloch:
      return internal::ScanBlelloch(exec, args);
  }
}

void ScanRef(const ScanArgs& args) {
  for (size_t b = 0; b < args.x.sequences; ++b) {
    for (size_t c = 0; c < args.x.channels; ++c) {
      double h = args.initial.rows != 0 ? args.initial.Row(b)[c] : internal::Identity(args.op);
      for (size_t i = 0; i < args.x.steps; ++i) {
        const size_t t = args.reverse ? args.x.steps - 1 - i : i;
        const double x = args.x.At(b, t)[c], before = h;
        switch (args.op) {
          case ScanOp::kLinear:
            h = args.a.At(b, t)[c] * h + x;
            break;
          case ScanOp::kSum:
            h += x;
            break;
          case ScanOp::kProduct:
            h *= x;
            break;
          case ScanOp::kMax:
            if (!std::isnan(h) && (std::isnan(x) || x > h)) h = x;
            break;
        }
        args.y.At(b, t)[c] = static_cast<float>(args.exclusive ? before : h);
      }
      if (args.last.rows != 0) args.last.Row(b)[c] = static_cast<float>(h);
    }
  }
}

}  // namespace hognose::kernels
