#include "kernels/scan/scan_piece.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scan/scan_piece.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/scan/scan_ops-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::ScanPieceArgs;

// Channels [c, c + count) in kVectors registers; kFull: all of them are used whole.
template <ScanOp kOp, size_t kVectors, bool kFull>
void ScanTile(const ScanPieceArgs& piece, size_t c, size_t count, float* state) {
  const ScanPieceArgs p = piece;  // a copy, which no store through y can change
  const Part<kFull> part(count);
  VF h[kVectors];
  for (size_t v = 0; v < kVectors; ++v) h[v] = part.Load(state + c + v * kLanes);
  const float *a = p.a + c, *x = p.x + c;
  float* y = p.y + c;
  for (size_t i = 0; i < p.steps; ++i, a += p.a_step, x += p.x_step, y += p.y_step) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = v * kLanes;
      const VF next = Apply<kOp>(h[v], part.template LoadStep<kOp>(a + at, x + at));
      if (p.exclusive) {  // a choice of the value instead would go through memory
        part.Store(h[v], y + at);
      } else {
        part.Store(next, y + at);
      }
      h[v] = next;
    }
  }
  for (size_t v = 0; v < kVectors; ++v) part.Store(h[v], state + c + v * kLanes);
}

// Adds the piece to the total, or with `first` starts it.
template <ScanOp kOp, size_t kVectors, bool kFull>
void TotalTile(const ScanPieceArgs& piece, size_t c, size_t count, bool first, float* total_a,
               float* total_x) {
  const ScanPieceArgs p = piece;
  const Part<kFull> part(count);
  const float *a = p.a + c, *x = p.x + c;
  float *to_a = total_a + c, *to_x = total_x + c;
  Step total[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t at = v * kLanes;
    total[v] = first ? part.template LoadStep<kOp>(a + at, x + at)
                     : part.template LoadStep<kOp>(to_a + at, to_x + at);
  }
  for (size_t i = first ? 1 : 0; i < p.steps; ++i) {
    const auto row = static_cast<ptrdiff_t>(i);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = v * kLanes;
      const Step step =
          part.template LoadStep<kOp>(a + row * p.a_step + at, x + row * p.x_step + at);
      total[v] = Combine<kOp>(total[v], step);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    if constexpr (kOp == ScanOp::kLinear) part.Store(total[v].a, to_a + v * kLanes);
    part.Store(total[v].x, to_x + v * kLanes);
  }
}

// A piece of many channels is walked in bands of this many steps, each from channel to channel, so
// that memory is read row by row; the state is loaded and stored once a band.
constexpr size_t kBand = 4;
// From here on: as many as a tile keeps in registers from step to step.
constexpr size_t kManyChannels = 4 * kLanes + 1;

// Calls body(band of the piece, whether it is the first one).
template <class Body>
HWY_INLINE void ForBands(const ScanPieceArgs& piece, const Body& body) {
  for (size_t i = 0; i < piece.steps; i += kBand) {
    const auto row = static_cast<ptrdiff_t>(i);
    ScanPieceArgs band = piece;
    band.steps = std::min(kBand, piece.steps - i);
    band.a += row * piece.a_step;
    band.x += row * piece.x_step;
    band.y += row * piece.y_step;
    body(band, i == 0);
  }
}

#if HWY_TARGET != HWY_SCALAR  // whose register holds one step at most

// kGroup channels without gaps: a register holds several steps of time, the earliest in the lowest
// lanes, or with kReverse in the highest ones.
template <ScanOp kOp, size_t kGroup, bool kReverse>
class RegisterScan {
 public:
  static constexpr size_t kSteps = kLanes / kGroup;

  RegisterScan() : last_(Table(kLastTable)), before_(Table(kShiftTables[0])) {}

  void Scan(const ScanPieceArgs& piece, float* state) const {
    const DF d;
    const ScanPieceArgs p = piece;  // a copy, which no store through y can change
    VF h = LoadState(state);
    size_t i = 0;
    for (; i + kSteps <= p.steps; i += kSteps) {
      const Step s = Prefixes(LoadSteps(p.a + Offset(i), p.x + Offset(i)));
      hn::StoreU(Outputs(p, s, h), d, p.y + Offset(i));
      h = Apply<kOp>(h, Last(s));
    }
    if (i < p.steps) {
      const size_t rest = p.steps - i;
      const Step s = Prefixes(LoadRest(p, i, rest));
      HWY_ALIGN float lanes[kLanes];
      hn::Store(Outputs(p, s, h), d, lanes);
      std::copy_n(lanes + RestLane(rest), rest * kGroup, p.y + Offset(i, rest));
      h = Apply<kOp>(h, Last(s));
    }
    StoreState(h, state);
  }

  void Total(const ScanPieceArgs& p, float* total_a, float* total_x) const {
    Step total = {hn::Set(DF(), 1.0f), hn::Set(DF(), internal::Identity(kOp))};
    bool first = true;  // no step is combined with an identity: infinity times its 0 is a NaN
    const auto add = [&](Step s) HWY_ATTR {
      total = first ? s : Combine<kOp>(total, s);
      first = false;
    };
    size_t i = 0;
    constexpr size_t kBlock = kSteps << kLevels;
    for (; i + kBlock <= p.steps; i += kBlock) {
      const size_t offset = Offset(i, kBlock);
      add(Last(Prefixes(Reduce<kLevels>(p.a + offset, p.x + offset))));
    }
    for (; i + kSteps <= p.steps; i += kSteps) {
      add(Last(Prefixes(LoadSteps(p.a + Offset(i), p.x + Offset(i)))));
    }
    if (i < p.steps) add(Last(Prefixes(LoadRest(p, i, p.steps - i))));
    if constexpr (kOp == ScanOp::kLinear) StoreState(total.a, total_a);
    StoreState(total.x, total_x);
  }

 private:
  using Indices = decltype(hn::SetTableIndices(DF(), static_cast<const int32_t*>(nullptr)));
  using Lanes32 = std::array<int32_t, kLanes>;
  static constexpr size_t kShifts = 4;  // log2 of at most 16 lanes
  // Levels of the tree of Reduce: a block of 2^kLevels registers.
  static constexpr size_t kLevels = kOp == ScanOp::kLinear && kGroup != 1 ? 0 : 4;

  // Lane i takes lane i - shift, or + shift with kReverse.
  static constexpr Lanes32 ShiftTable(size_t shift) {
    Lanes32 table = {};
    for (size_t i = 0; i < kLanes; ++i) {
      const size_t from = kReverse ? i + shift : i + kLanes - shift;
      table[i] = static_cast<int32_t>(from % kLanes);
    }
    return table;
  }
  static constexpr Lanes32 MakeLastTable() {
    Lanes32 table = {};
    for (size_t i = 0; i < kLanes; ++i) {
      table[i] = static_cast<int32_t>(i % kGroup + (kReverse ? 0 : kLanes - kGroup));
    }
    return table;
  }
  static constexpr std::array<Lanes32, kShifts> kShiftTables = {
      ShiftTable(kGroup), ShiftTable(kGroup * 2 % kLanes), ShiftTable(kGroup * 4 % kLanes),
      ShiftTable(kGroup * 8 % kLanes)};
  static constexpr Lanes32 kLastTable = MakeLastTable();

  static HWY_INLINE Indices Table(const Lanes32& t) { return hn::SetTableIndices(DF(), t.data()); }
  // All lanes but those of the first `lanes` elements in the order of the scan.
  static HWY_INLINE hn::Mask<DF> Later(size_t lanes) {
    return kReverse ? hn::FirstN(DF(), kLanes - lanes) : hn::Not(hn::FirstN(DF(), lanes));
  }
  // Where the register or block of `steps` steps from step i on begins in memory.
  static HWY_INLINE ptrdiff_t Offset(size_t i, size_t steps = kSteps) {
    const auto step = static_cast<ptrdiff_t>(kGroup);
    return kReverse ? -static_cast<ptrdiff_t>(i + steps - 1) * step
                    : static_cast<ptrdiff_t>(i) * step;
  }
  static HWY_INLINE size_t RestLane(size_t rest) { return kReverse ? kLanes - rest * kGroup : 0; }

  static HWY_INLINE Step LoadSteps(const float* a, const float* x) {
    return Part<true>(kLanes).template LoadStep<kOp>(a, x);
  }
  // `rest` steps from step i on, then identities, which come after them and change no state.
  static Step LoadRest(const ScanPieceArgs& p, size_t i, size_t rest) {
    HWY_ALIGN float a[kLanes], x[kLanes];
    std::fill_n(a, kLanes, 1.0f);
    std::fill_n(x, kLanes, internal::Identity(kOp));
    const ptrdiff_t offset = Offset(i, rest);
    if (kOp == ScanOp::kLinear) std::copy_n(p.a + offset, rest * kGroup, a + RestLane(rest));
    std::copy_n(p.x + offset, rest * kGroup, x + RestLane(rest));
    return LoadSteps(a, x);
  }
  // Every step of the register sees the state.
  static VF LoadState(const float* state) {
    HWY_ALIGN float lanes[kLanes];
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = state[i % kGroup];
    return hn::Load(DF(), lanes);
  }
  static void StoreState(VF v, float* state) {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, DF(), lanes);
    std::copy_n(lanes, kGroup, state);
  }

  // Each step combined with all before it in the register: the span doubles each time.
  HWY_INLINE Step Prefixes(Step s) const {
    size_t level = 0;
    for (size_t shift = kGroup; shift < kLanes; shift *= 2, ++level) {
      const Step before = Permute(s, Table(kShiftTables[level]));
      s = CombineIf<kOp>(Later(shift), before, s);
    }
    return s;
  }
  static HWY_INLINE Step Permute(Step s, Indices table) {
    const VF x = hn::TableLookupLanes(s.x, table);
    return {kOp == ScanOp::kLinear ? hn::TableLookupLanes(s.a, table) : x, x};
  }
  HWY_INLINE Step Last(Step prefixes) const { return Permute(prefixes, last_); }
  HWY_INLINE VF Outputs(const ScanPieceArgs& p, Step prefixes, VF h) const {
    const VF now = Apply<kOp>(h, prefixes);
    if (!p.exclusive) return now;
    return hn::IfThenElse(Later(kGroup), hn::TableLookupLanes(now, before_), h);
  }

  // 2^kLevel registers in one. With kLinear lane i holds elements [i, i + 1) 2^kLevel; the others
  // commute, so their lanes stay where they are.
  template <size_t kLevel>
  static HWY_INLINE Step Reduce(const float* a, const float* x) {
    if constexpr (kLevel == 0) {
      return LoadSteps(a, x);
    } else {
      constexpr size_t kHalf = kLanes << (kLevel - 1);
      const Step low = Reduce<kLevel - 1>(a, x);
      const Step high = Reduce<kLevel - 1>(a + kHalf, x + kHalf);
      if constexpr (kOp != ScanOp::kLinear) {
        return Combine<kOp>(kReverse ? high : low, kReverse ? low : high);
      } else {
        const DF d;
        const Step even = {hn::ConcatEven(d, high.a, low.a), hn::ConcatEven(d, high.x, low.x)};
        const Step odd = {hn::ConcatOdd(d, high.a, low.a), hn::ConcatOdd(d, high.x, low.x)};
        return Combine<kOp>(kReverse ? odd : even, kReverse ? even : odd);
      }
    }
  }

  Indices last_, before_;
};

#endif

// Calls body(RegisterScan) and returns true where there is one for this piece.
template <ScanOp kOp, class Body>
bool InRegister(const ScanPieceArgs& p, const Body& body) {
#if HWY_TARGET == HWY_SCALAR
  (void)p, (void)body;
#else
  const auto step = static_cast<ptrdiff_t>(p.channels);
  const bool reverse = p.x_step < 0;
  const auto dense = [&](ptrdiff_t s) { return s == (reverse ? -step : step); };
  if (!dense(p.x_step) || (p.y != nullptr && !dense(p.y_step))) return false;
  if (kOp == ScanOp::kLinear && !dense(p.a_step)) return false;
  const auto call = [&](auto group) {
    constexpr size_t kGroup = group();
    if constexpr (kGroup < kLanes) {
      if (p.channels != kGroup) return false;
      if (reverse) {
        body(RegisterScan<kOp, kGroup, true>());
      } else {
        body(RegisterScan<kOp, kGroup, false>());
      }
      return true;
    }
    return false;
  };
  if (call(std::integral_constant<size_t, 1>()) || call(std::integral_constant<size_t, 2>()) ||
      call(std::integral_constant<size_t, 4>()) || call(std::integral_constant<size_t, 8>())) {
    return true;
  }
#endif
  return false;
}

template <ScanOp kOp>
void ScanPieceOp(const ScanPieceArgs& p, float* state) {
  if (InRegister<kOp>(p, [&](const auto& scan) { scan.Scan(p, state); })) return;
  const auto scan = [&](const ScanPieceArgs& part, bool) {
    ForTiles(part.channels, [&](size_t c, size_t count, auto vectors, auto full) {
      ScanTile<kOp, vectors(), full()>(part, c, count, state);
    });
  };
  if (p.channels < kManyChannels) return scan(p, true);
  ForBands(p, scan);
}

template <ScanOp kOp>
void TotalPieceOp(const ScanPieceArgs& p, float* total_a, float* total_x) {
  if (InRegister<kOp>(p, [&](const auto& scan) { scan.Total(p, total_a, total_x); })) return;
  const auto add = [&](const ScanPieceArgs& part, bool first) {
    ForTiles(part.channels, [&](size_t c, size_t count, auto vectors, auto full) {
      TotalTile<kOp, vectors(), full()>(part, c, count, first, total_a, total_x);
    });
  };
  if (p.channels < kManyChannels) return add(p, true);
  ForBands(p, add);
}

template <ScanOp kOp>
void AdvanceStateOp(size_t channels, const float* total_a, const float* total_x,
                    const float* before, float* after) {
  ForTiles(channels, [&](size_t begin, size_t count, auto vectors, auto full) {
    const Part<full()> part(count);
    for (size_t c = begin; c < begin + vectors() * kLanes; c += kLanes) {
      const Step step = part.template LoadStep<kOp>(total_a + c, total_x + c);
      part.Store(Apply<kOp>(part.Load(before + c), step), after + c);
    }
  });
}

void DoScanPiece(const ScanPieceArgs& p, float* state) {
  ForOp(p.op, [&](auto op) { ScanPieceOp<op()>(p, state); });
}
void DoTotalPiece(const ScanPieceArgs& p, float* total_a, float* total_x) {
  ForOp(p.op, [&](auto op) { TotalPieceOp<op()>(p, total_a, total_x); });
}
void DoAdvanceState(ScanOp op, size_t channels, const float* total_a, const float* total_x,
                    const float* before, float* after) {
  ForOp(op, [&](auto o) { AdvanceStateOp<o()>(channels, total_a, total_x, before, after); });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(DoScanPiece);
HWY_EXPORT(DoTotalPiece);
HWY_EXPORT(DoAdvanceState);

namespace internal {

void ScanPiece(const ScanPieceArgs& piece, float* state) noexcept {
  HWY_DYNAMIC_DISPATCH(DoScanPiece)(piece, state);
}

void TotalPiece(const ScanPieceArgs& piece, float* total_a, float* total_x) noexcept {
  HWY_DYNAMIC_DISPATCH(DoTotalPiece)(piece, total_a, total_x);
}

void AdvanceState(ScanOp op, size_t channels, const float* total_a, const float* total_x,
                  const float* before, float* after) noexcept {
  HWY_DYNAMIC_DISPATCH(DoAdvanceState)(op, channels, total_a, total_x, before, after);
}

}  // namespace internal
}  // namespace hognose::kernels
#endif
