#include "core/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace hognose::core {

void Arena::Free::operator()(void* p) const {
  if (!borrowed) std::free(p);
}

Result<Arena> Arena::Allocate(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  if (bytes > PTRDIFF_MAX - alignment) {  // the rounding must not wrap around
    return Status::Failed(fmt::format("memory: could not allocate {} bytes", bytes));
  }
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  Arena arena;
  arena.memory_.reset(std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded));
  if (arena.memory_ == nullptr) {
    return Status::Failed(fmt::format("memory: could not allocate {} bytes", rounded));
  }
  // Huge pages where the system has them; a refusal costs speed only.
  if (bytes >= kHugePage) (void)madvise(arena.memory_.get(), rounded, MADV_HUGEPAGE);
  std::memset(arena.memory_.get(), 0, rounded);
  arena.capacity_ = rounded;
  return arena;
}

Arena Arena::Over(Vec<float> memory) {
  Arena arena;
  arena.memory_ = std::unique_ptr<void, Free>(memory.data, Free(true));
  arena.capacity_ = memory.size * sizeof(float);
  return arena;
}

void* Arena::Take(size_t bytes) {
  const size_t begin = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (memory_ == nullptr) return nullptr;
  HOGNOSE_CHECK(used_ <= capacity_);
  return static_cast<char*>(memory_.get()) + begin;
}

}  // namespace hognose::core
