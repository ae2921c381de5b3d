// HashIndex: where the elements of an array are, by their hash. The array itself is elsewhere.
//
// A slot is four bytes: the index and, above it, as much of the hash as fits. So a table of fifty
// thousand tokens stays in the second cache, and the array is seldom read in vain.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hognose::io::tokenizer {

class HashIndex {
 public:
  // Forgets everything and makes room for `count` elements with indices below `limit`, which is
  // below 2^31.
  void Reset(size_t count, size_t limit) {
    const size_t slots = std::bit_ceil(2 * count + 2);
    slots_.assign(slots, kFree);
    shift_ = 64 - std::countr_zero(slots);
    index_bits_ = (uint32_t{1} << std::bit_width(limit)) - 1;
  }

  // The slot of the element with this hash for which `is_it(index)` holds, else a free one. It may
  // be set to the index of such an element.
  class Slot {
   public:
    bool free() const { return *slot_ == kFree; }
    void Set(size_t index) { *slot_ = tag_ | static_cast<uint32_t>(index); }

   private:
    friend HashIndex;
    Slot(uint32_t* slot, uint32_t tag) : slot_(slot), tag_(tag) {}
    uint32_t* slot_;
    uint32_t tag_;
  };
  template <typename IsIt>
  Slot At(uint64_t hash, IsIt is_it) {
    const size_t i = Place(hash, is_it);
    return {&slots_[i], Tag(hash)};
  }

  // For an At or a Find soon.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }

  static constexpr size_t kNone = SIZE_MAX;
  // The index of that element, or kNone.
  template <typename IsIt>
  size_t Find(uint64_t hash, IsIt is_it) const {
    const uint32_t slot = slots_[Place(hash, is_it)];
    return slot == kFree ? kNone : slot & index_bits_;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;  // no element's: its index would be the limit

  // Of the bits below those that choose the slot.
  uint32_t Tag(uint64_t hash) const { return static_cast<uint32_t>(hash >> 16) & ~index_bits_; }

  template <typename IsIt>
  size_t Place(uint64_t hash, IsIt& is_it) const {
    const uint32_t tag = Tag(hash);
    size_t i = hash >> shift_;
    for (; slots_[i] != kFree; i = (i + 1) & (slots_.size() - 1)) {
      if ((slots_[i] & ~index_bits_) == tag && is_it(slots_[i] & index_bits_)) break;
    }
    return i;
  }

  std::vector<uint32_t> slots_ = {kFree, kFree};  // a power of two, at most half full
  int shift_ = 63;
  uint32_t index_bits_ = 0;
};

}  // namespace hognose::io::tokenizer
