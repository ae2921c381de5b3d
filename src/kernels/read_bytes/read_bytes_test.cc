#include "kernels/read_bytes/read_bytes.h"

#include <vector>

#include "core/rng.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

TEST(ReadBytes, EqualsTheOracleAtAnySizeAndAlignment) {
  ForEachTarget([&] {
    core::Rng rng(1);
    std::vector<uint8_t> bytes((size_t{3} << 20) + 77);
    for (auto& b : bytes) b = static_cast<uint8_t>(rng.Next());
    for (const size_t threads : {1, 3}) {
      core::ThreadPool pool(threads);
      core::Exec exec{pool};
      for (const size_t begin : {0, 1, 7}) {
        for (const size_t size : {0, 1, 7, 8, 9, 63, 64, 129, 1000, (3 << 20) + 70}) {
          const std::span<const uint8_t> part(bytes.data() + begin, size);
          ASSERT_EQ(ReadBytes(exec, part), ReadBytesRef(part)) << begin << " " << size;
        }
      }
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
