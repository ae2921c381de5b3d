#include "io/hash.h"

#include <fmt/format.h>

#define XXH_STATIC_LINKING_ONLY  // the state's size
#include <xxhash.h>

namespace hognose::io {

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::Add(std::string_view bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Hasher::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace hognose::io
