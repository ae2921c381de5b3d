#include "tests/support/alloc_guard.h"

#include <errno.h>
#include <stdlib.h>

#include <atomic>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOGNOSE_SANITIZER_OWNS_MALLOC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HOGNOSE_SANITIZER_OWNS_MALLOC
#endif
#endif

namespace {

// Constant-initialised: malloc is called before any constructor runs.
constinit std::atomic<bool> counting{false};
constinit std::atomic<size_t> allocations{0};

void Count() {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

#ifdef HOGNOSE_SANITIZER_OWNS_MALLOC

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             size_t),
                                                         void (*free_hook)(const volatile void*));

namespace {

void OnMalloc(const volatile void*, size_t) { Count(); }
void OnFree(const volatile void*) {}
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);

}  // namespace

#else

extern "C" {

// glibc's own names of what is replaced here.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  Count();
  return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** out, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"

#endif

namespace hognose::testing {

AllocGuard::AllocGuard() {
  allocations.store(0);
  counting.store(true);
}
AllocGuard::~AllocGuard() { counting.store(false); }

size_t AllocGuard::count() const { return allocations.load(); }

}  // namespace hognose::testing
