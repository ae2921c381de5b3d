// Hasher: XXH3, 128 bits, for digests and checksums (damage, not malice).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace hognose::io {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void Add(std::string_view bytes);
  // 32 lower-case hex digits of everything added so far.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hognose::io
