// Profile: where the time of forward passes goes, by group of kernels. A context without a profile
// costs one comparison a kernel call.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hognose::nn {

enum class Group : uint8_t {
  kEmbedding,
  kNorm,  // before a block, before the head, and Mamba-2's gated one
  kInProj,
  kConv,  // with its activation
  kXProj,
  kDtProj,
  kScan,  // with discretisation, skip and Mamba-1's gate
  kOutProj,
  kHead,
};
inline constexpr std::array<std::string_view, 9> kGroupNames = {
    "embedding", "norm", "in_proj", "conv", "x_proj", "dt_proj", "scan", "out_proj", "head"};

struct Profile {
  struct Entry {
    uint64_t calls = 0;
    double seconds = 0.0;
    double weight_bytes = 0.0;  // read
    double state_bytes = 0.0;   // read and written
    double operations = 0.0;    // of matrix products: 2 L K M
  };
  std::array<Entry, kGroupNames.size()> entries = {};
};

// Adds the time between construction and destruction to a group. `profile` may be null.
class Timed {
 public:
  using Work = Profile::Entry;  // what was done meanwhile; its calls and seconds are not read

  Timed(Profile* profile, Group group, const Work& work = {}) : profile_(profile), group_(group) {
    if (profile_ == nullptr) return;
    work_ = work;
    start_ = Clock::now();
  }
  ~Timed() {
    if (profile_ == nullptr) return;
    Profile::Entry& entry = profile_->entries[static_cast<size_t>(group_)];
    entry.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    ++entry.calls;
    entry.weight_bytes += work_.weight_bytes;
    entry.state_bytes += work_.state_bytes;
    entry.operations += work_.operations;
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Profile* profile_;
  Group group_;
  Work work_;
  Clock::time_point start_;
};

}  // namespace hognose::nn
