#include "runtime/state_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "io/hash.h"
#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using testing::FailsAt;
using testing::MakeTiny;
using testing::SameBits;
using testing::TinyKind;

const Sampler::State kSampler = {{1, UINT64_MAX, 3, 4}, {5, 0, 7, 7}};
const std::string kText = std::string("3:abc\0\xFF", 7);

Session FedSession(const SharedModel& model, size_t tokens = 11) {
  Session session = NewSession(model);
  EXPECT_TRUE(session.Prefill(RandomIds(*model, tokens, 4)).ok());
  return session;
}

class EveryFixture : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFixture, RoundTripIsExact) {
  const auto model = LoadFixture(GetParam());
  const io::TestFolder folder;
  const std::string path = folder / "state";
  Session session = FedSession(model);
  ASSERT_TRUE(WriteState(path, session, kSampler, kText).ok());
  Session other = NewSession(model);
  auto saved = ReadState(path, other);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(other.position(), 0u) << "reading changes no session";
  EXPECT_TRUE(SameBits(Memory(saved->session), Memory(session.state())));
  EXPECT_EQ(saved->session.position, 11u);
  EXPECT_EQ(saved->sampler.rng, kSampler.rng);
  EXPECT_EQ(saved->sampler.recent, kSampler.recent);
  EXPECT_EQ(saved->text, kText);
  // Both go on with the same bits, and the logits serve without a new token (fault C2).
  other.Restore(saved->session);
  EXPECT_TRUE(SameBits(other.logits(), Copy(session.logits())));
  const auto more = RandomIds(*model, 9, 8);
  ASSERT_TRUE(session.Prefill(more).ok());
  ASSERT_TRUE(other.Prefill(more).ok());
  EXPECT_TRUE(SameBits(Memory(other.state()), Memory(session.state())));
  // The same session writes the same file.
  other.Restore(saved->session);
  ASSERT_TRUE(WriteState(folder / "again", other, kSampler, kText).ok());
  EXPECT_EQ(io::Slurp(folder / "again"), io::Slurp(path));
}

// Any safetensors reader sees the field's layout: conv [C, K] oldest first, ssm [E, N] or [H, P,
// N].
TEST_P(EveryFixture, IsPlainSafetensorsInTheFieldsLayout) {
  const auto model = LoadFixture(GetParam());
  const io::TestFolder folder;
  Session session = FedSession(model);
  ASSERT_TRUE(WriteState(folder / "state", session, kSampler, kText).ok());
  const auto file = io::SafetensorsFile::Open(folder / "state");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().find("format")->second, "hognose-state");
  EXPECT_EQ(file->metadata().find("position")->second, "11");
  EXPECT_EQ(file->metadata().find("model")->second, model->Digest());
  const auto find = [&](const std::string& name) { return file->tensors().find(name)->second; };
  const auto& state = session.state();
  ASSERT_EQ(file->tensors().size(), 2 * state.state.layers() + 1);
  EXPECT_TRUE(SameBits({find("logits").As<float>(), state.logits.size()}, state.logits));
  for (size_t i = 0; i < state.state.layers(); ++i) {
    const nn::StateShape& s = state.state.shape(i);
    const nn::LayerState& layer = state.state.layer(i);
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const core::TensorView conv = find(prefix + "conv"), ssm = find(prefix + "ssm");
    ASSERT_EQ(core::ToString(conv), "f32 " + core::ShapeToString(std::vector{s.channels, s.taps}));
    for (size_t c = 0; c < s.channels; ++c) {
      for (size_t k = 0; k < s.taps; ++k) {
        ASSERT_EQ(conv.As<float>()[c * s.taps + k], layer.conv.Row(k)[c]);
      }
    }
    const size_t heads = std::max<size_t>(s.heads, 1);
    const auto shape =
        s.heads == 0 ? std::vector{s.width, s.states} : std::vector{s.heads, s.width, s.states};
    ASSERT_EQ(core::ToString(ssm), "f32 " + core::ShapeToString(shape));
    for (size_t h = 0; h < heads; ++h) {
      for (size_t p = 0; p < s.width; ++p) {
        for (size_t n = 0; n < s.states; ++n) {
          ASSERT_EQ(ssm.As<float>()[(h * s.width + p) * s.states + n],
                    layer.ssm.Row(h * s.states + n)[p]);
        }
      }
    }
  }
  const auto summary = InspectState(folder / "state");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->position, 11u);
  EXPECT_EQ(summary->layers, state.state.layers());
  EXPECT_EQ(summary->model, model->Digest());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EveryFixture, ::testing::ValuesIn(AllFixtures()),
                         [](const auto& info) { return info.param; });

// A state file of about a kilobyte, small enough to break in every way.
class StateFile : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteModelFolder(model_folder_, MakeTiny(TinyKind::kMamba2));
    model_ = LoadModel(model_folder_.path());
    session_.emplace(FedSession(model_));
    before_ = Memory(session_->state());
    ASSERT_TRUE(WriteState(path_, *session_, kSampler, kText).ok());
    bytes_ = io::Slurp(path_);
  }
  core::Status Read(const std::string& bytes) {
    folder_.Put("state", bytes);
    return ReadState(path_, *session_).status();
  }
  // The same file with other metadata and a right checksum.
  core::Status ReadWith(std::string_view key, const std::string& value) {
    const auto file = io::SafetensorsFile::Parse({Data(bytes_), bytes_.size()}, "file");
    EXPECT_TRUE(file.ok());
    io::Metadata metadata = file->metadata();
    metadata[std::string(key)] = value;
    if (value == kAbsent) metadata.erase(metadata.find(key));
    return Read(Sealed(*file, metadata));
  }
  static const uint8_t* Data(const std::string& s) {
    return reinterpret_cast<const uint8_t*>(s.data());
  }
  // Header and bodies, with a checksum as the format says: over all bytes, its own digits as zeros.
  static std::string Sealed(const io::SafetensorsFile& file, io::Metadata metadata) {
    std::vector<std::pair<std::string, core::TensorView>> tensors(file.tensors().begin(),
                                                                  file.tensors().end());
    const bool sealed = metadata.contains("checksum");
    if (sealed) metadata["checksum"] = std::string(32, '0');
    std::string all = io::SafetensorsHeader(tensors, metadata);
    for (const auto& [name, tensor] : tensors) {
      all.append(static_cast<const char*>(tensor.data), tensor.bytes());
    }
    if (!sealed) return all;
    io::Hasher hasher;
    hasher.Add(all);
    const size_t at = all.find("\"checksum\":\"");
    EXPECT_NE(at, std::string::npos);
    return all.replace(at + 12, 32, hasher.Hex());
  }

  static constexpr std::string_view kAbsent = "(absent)";
  const io::TestFolder model_folder_, folder_;
  const std::string path_ = folder_ / "state";
  SharedModel model_;
  std::optional<Session> session_;
  std::vector<float> before_;
  std::string bytes_;
};

TEST_F(StateFile, EveryFlippedBitIsRefused) {
  for (size_t byte = 0; byte < bytes_.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string broken = bytes_;
      broken[byte] = static_cast<char>(broken[byte] ^ (1 << bit));
      const std::span<const uint8_t> bytes(Data(broken), broken.size());
      ASSERT_TRUE(FailsAt(ReadState(bytes, "state", *session_).status(), "state: ", {}))
          << byte << " bit " << bit;
      ASSERT_FALSE(ParseState(bytes, "state").ok());
    }
  }
  EXPECT_TRUE(SameBits(Memory(session_->state()), before_));
  EXPECT_TRUE(Read(bytes_).ok());
}

TEST_F(StateFile, EveryTruncationAndExtensionIsRefused) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    // A block of exactly this size, so that a sanitizer sees a read behind its end.
    const std::vector<uint8_t> part(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(ParseState(part, "state").ok()) << size;
  }
  EXPECT_FALSE(Read(bytes_ + '\0').ok());
  EXPECT_FALSE(Read(bytes_ + bytes_).ok());
  EXPECT_FALSE(Read("").ok());
  EXPECT_TRUE(FailsAt(ReadState(folder_ / "none", *session_).status(), folder_ / "none", {}));
  EXPECT_FALSE(ReadState(folder_.path(), *session_).ok());
}

TEST_F(StateFile, WrongMetadataIsNamed) {
  const auto fails = [&](std::string_view key, const std::string& value, std::string_view what) {
    return FailsAt(ReadWith(key, value), path_ + ": " + std::string(key), {what});
  };
  EXPECT_TRUE(ReadWith("extra", "1").ok()) << "sealing works";
  EXPECT_TRUE(fails("version", "2", "got 2, want 1"));
  EXPECT_TRUE(fails("format", "pt", "got pt, want hognose-state"));
  EXPECT_TRUE(fails("model", std::string(32, 'a'), "want " + model_->Digest()));
  for (const std::string key :
       {"format", "version", "model", "position", "sampler_rng", "sampler_recent", "text"}) {
    EXPECT_TRUE(fails(key, std::string(kAbsent), "missing"));
  }
  EXPECT_TRUE(fails("checksum", std::string(kAbsent), "damaged"));
  for (const std::string bad :
       {"", "-1", "1 2", "x", "1.5", "18446744073709551616", "9223372036854775808"}) {
    EXPECT_TRUE(fails("position", bad, "damaged")) << bad;
  }
  for (const std::string bad : {"", "1 2 3", "1 2 3 4 5", "1 2 3 x", "1 2 3 -4", "1,2,3,4"}) {
    EXPECT_TRUE(fails("sampler_rng", bad, "damaged")) << bad;
  }
  for (const std::string bad : {"20", "-1", "1 x", "1.0", "4294967296"}) {
    EXPECT_TRUE(fails("sampler_recent", bad, "damaged")) << bad;
  }
  std::string many = "1";
  for (size_t i = 0; i < Sampler::kRecent; ++i) many += " 1";
  EXPECT_TRUE(fails("sampler_recent", many, "damaged"));
  for (const std::string bad : {"0", "zz", "0g", "+1"}) {
    EXPECT_TRUE(fails("text", bad, "damaged")) << bad;
  }
  EXPECT_TRUE(SameBits(Memory(session_->state()), before_));
}

// Tensors that don't fit the model, under a right checksum and the model's digest.
TEST_F(StateFile, WrongTensorsAreNamed) {
  const auto file = io::SafetensorsFile::Parse({Data(bytes_), bytes_.size()}, "file");
  ASSERT_TRUE(file.ok());
  const std::vector<float> zeros(4096, 0.0f);
  for (const auto& [name, tensor] : file->tensors()) {
    for (const size_t rank : {tensor.rank, tensor.rank - 1}) {
      std::vector<std::pair<std::string, core::TensorView>> tensors;
      for (const auto& [other, view] : file->tensors()) {
        tensors.emplace_back(other, view);
        if (other == name) {
          tensors.back().second.data = zeros.data();
          tensors.back().second.rank = rank;
          tensors.back().second.shape[0] += rank == tensor.rank;
        }
      }
      const std::string path = folder_ / "tensors";
      ASSERT_TRUE(io::WriteSafetensors(path, tensors, file->metadata()).ok());
      const std::string unsealed = io::Slurp(path);
      const auto changed = io::SafetensorsFile::Parse({Data(unsealed), unsealed.size()}, "x");
      ASSERT_TRUE(changed.ok());
      EXPECT_TRUE(FailsAt(Read(Sealed(*changed, file->metadata())), path_,
                          {name + ": got f32 [", "want f32 ["}));
    }
  }
}

TEST_F(StateFile, AFailedWriteLeavesTheOldFile) {
  ASSERT_TRUE(session_->Step(1).ok());
  const io::TestFolder other;
  // A folder stands where the file should go: the rename fails.
  const std::string occupied = other / "occupied";
  std::filesystem::create_directory(occupied);
  EXPECT_FALSE(WriteState(occupied, *session_, kSampler, kText).ok());
  EXPECT_FALSE(WriteState(other / "no/such/folder", *session_, kSampler, kText).ok());
  EXPECT_EQ(other.CountFiles(), 1u) << "no temporary file is left";
  EXPECT_EQ(io::Slurp(path_), bytes_);
  EXPECT_TRUE(WriteState(path_, *session_, kSampler, kText).ok());
  EXPECT_NE(io::Slurp(path_), bytes_);
}

TEST_F(StateFile, AStateOfNoTokensIsThatOfANewSession) {
  session_->Reset();
  Session fresh = NewSession(model_);
  ASSERT_TRUE(WriteState(folder_ / "reset", *session_, kSampler, "").ok());
  ASSERT_TRUE(WriteState(folder_ / "fresh", fresh, kSampler, "").ok());
  EXPECT_EQ(io::Slurp(folder_ / "reset"), io::Slurp(folder_ / "fresh"));
  auto saved = ReadState(folder_ / "fresh", *session_);
  ASSERT_TRUE(saved.ok());
  session_->Restore(saved->session);
  EXPECT_TRUE(session_->logits().empty());
}

// Padded inputs: a prompt may hold ids behind the head's rows, which the penalty remembers.
TEST_F(StateFile, RecentTokensMayBeAnyInputId) {
  auto tiny = MakeTiny(TinyKind::kMamba);
  tiny.Put("lm_head.weight", {10, 8});
  tiny.Set("vocab_size", 10);
  const io::TestFolder folder;
  WriteModelFolder(folder, tiny);
  const auto model = LoadModel(folder.path());
  Session session = NewSession(model);
  ASSERT_TRUE(session.Step(15).ok());
  ASSERT_TRUE(WriteState(folder / "state", session, {{1, 2, 3, 4}, {15}}, "").ok());
  const auto saved = ReadState(folder / "state", session);
  EXPECT_TRUE(saved.ok()) << saved.status().message();
}

// A state belongs to its weights: not to another model, not to the same one in another type.
TEST(StateFiles, OfAnotherModelAreRefused) {
  const io::TestFolder folder;
  const std::string_view names[] = {"mamba2_bf16", "mamba2_f16", "mamba2_basic",
                                    "mamba_bf16",  "mamba_f16",  "mamba_basic"};
  for (const auto writer_name : names) {
    const auto writer = LoadFixture(writer_name);
    Session from = FedSession(writer);
    ASSERT_TRUE(WriteState(folder / "state", from, kSampler, kText).ok());
    for (const auto reader_name : names) {
      if (reader_name == writer_name) continue;
      const auto reader = LoadFixture(reader_name);
      Session to = FedSession(reader, 5);
      const auto before = Memory(to.state());
      EXPECT_TRUE(FailsAt(ReadState(folder / "state", to).status(),
                          folder / "state: model: got " + writer->Digest(), {reader->Digest()}));
      EXPECT_TRUE(SameBits(Memory(to.state()), before));
    }
  }
}

}  // namespace
}  // namespace hognose::runtime
