// Offsets are 64 bits wide: an embedding of more than 2^32 elements, of which only a few pages
// exist.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "codecs/decode.h"
#include "models/test_util.h"

namespace hognose::models {
namespace {

using testing::MakeTiny;
using testing::TinyKind;

class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

TEST(Large, EmbeddingRowsBehind32BitsOfElementsAreRead) {
  auto tiny = MakeTiny(TinyKind::kMamba2);
  tiny.Put("lm_head.weight", {20, 8});
  tiny.Retype("backbone.embeddings.weight", core::DType::kBF16);
  core::TensorMap views = tiny.views();
  core::TensorView& embedding = views.find("backbone.embeddings.weight")->second;
  constexpr size_t kRows = (size_t{1} << 29) + 4, kRowBytes = 8 * 2;  // 2^32 + 32 elements, 8 GiB
  const SparseMemory memory(kRows * kRowBytes);
  ASSERT_TRUE(memory.ok());
  const auto* small = static_cast<const uint8_t*>(embedding.data);
  std::memcpy(memory.data(), small, 20 * kRowBytes);
  std::memcpy(memory.data() + (kRows - 1) * kRowBytes, small + 7 * kRowBytes, kRowBytes);
  embedding.data = memory.data();
  embedding.shape[0] = kRows;
  const auto model = Build({tiny.config, "config.json", views, "model.safetensors"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->input_ids(), kRows);
  const auto far = RunModel(*model, {1, 2, static_cast<int32_t>(kRows - 1)});
  EXPECT_EQ(far, RunModel(*model, {1, 2, 7}));
  EXPECT_NE(far, RunModel(*model, {1, 2, 3}));  // row 3 is what 32 bits would have found
}

TEST(Large, DecodeReadsBehind32BitsOfElements) {
  constexpr size_t kElements = (size_t{1} << 32) + 3;
  const SparseMemory memory(kElements * 2);
  ASSERT_TRUE(memory.ok());
  const uint16_t one = 0x3F80;
  std::memcpy(memory.data() + (kElements - 1) * 2, &one, 2);
  const core::TensorView tensor{memory.data(), core::DType::kBF16, 1, {kElements}};
  std::vector<float> out(2);
  codecs::Decode(tensor, kElements - 2, out);
  EXPECT_EQ(out, (std::vector<float>{0.0f, 1.0f}));
}

}  // namespace
}  // namespace hognose::models
