// Adapters beside a model and merged into it.
#include "io/adapter.h"

#include <cmath>
#include <map>

#include "codecs/decode.h"
#include "runtime/batch.h"
#include "runtime/merge.h"
#include "runtime/state_file.h"
#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using io::FailsWith;
using testing::CloseToScale;
using testing::SameBits;
using testing::TinyKind;

constexpr size_t kRank = 3;
constexpr double kAlpha = 1.5;  // a scale of 0.5
constexpr core::DType kTypes[] = {core::DType::kF32, core::DType::kBF16, core::DType::kF16};

// Distance of 1 and the next number.
double Eps(core::DType dtype) {
  if (dtype == core::DType::kF32) return 0x1p-23;
  return dtype == core::DType::kBF16 ? 0x1p-7 : 0x1p-10;
}

bool IsTarget(const std::string& name) {
  return name.ends_with("in_proj.weight") || name.ends_with("x_proj.weight") ||
         name.ends_with("dt_proj.weight") || name.ends_with("out_proj.weight");
}

std::string ModuleOf(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string(".weight").size());
}

struct Matrices {
  std::map<std::string, std::vector<float>> memory;
  core::TensorMap tensors;

  void Put(const std::string& name, size_t rows, size_t cols, double size = 2.0) {
    core::Rng rng(std::hash<std::string>()(name));
    auto& floats = memory[name] = testing::RandomValues(rng, rows * cols, -size, size);
    tensors[name] = {floats.data(), core::DType::kF32, 2, {rows, cols}};
  }
  void PutPair(const std::string& module, size_t rows, size_t cols, double size = 2.0) {
    Put(module + std::string(io::kLoraA), kRank, cols, size);
    Put(module + std::string(io::kLoraB), rows, kRank, size);
  }
};

// A tiny model and an adapter of all its products, both in folders.
class AdapterTest : public ::testing::TestWithParam<TinyKind> {
 protected:
  explicit AdapterTest(TinyKind kind = GetParam()) : tiny_(testing::MakeTiny(kind)) {
    for (const auto& [name, tensor] : tiny_.tensors) {
      if (IsTarget(name)) adapter_.PutPair(ModuleOf(name), tensor.shape[0], tensor.shape[1]);
    }
    WriteModelFolder(base_, tiny_);
    WriteFolder(adapter_.tensors);
  }
  void SetType(core::DType dtype) {
    for (auto& [name, tensor] : tiny_.tensors) {
      if (IsTarget(name)) tiny_.Retype(name, dtype);
    }
    WriteModelFolder(base_, tiny_);
  }
  void WriteFolder(const core::TensorMap& tensors, double alpha = kAlpha) const {
    lora_.Put("adapter_config.json", io::AdapterConfig({.rank = kRank, .alpha = alpha}));
    const auto status = io::WriteAdapter(lora_ / "adapter_model.safetensors", tensors);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  core::Result<SharedModel> Open(LoadOptions options = {}) const {
    options.threads = options.threads == 0 ? 2 : options.threads;
    options.adapter = lora_.path();
    return Model::Load(base_.path(), options);
  }
  SharedModel Load(const LoadOptions& options = {}) const {
    auto model = Open(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }
  core::Status Error() const { return Open().status(); }
  static std::vector<float> Logits(const SharedModel& model, SessionOptions options) {
    Session session = NewSession(model, options);
    std::vector<float> all;
    const auto status = session.Score(RandomIds(*model, 20, 3), [&](size_t, auto row) {
      all.insert(all.end(), row.begin(), row.end());
      return true;
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return all;
  }

  testing::TinyCheckpoint tiny_;
  Matrices adapter_;
  const io::TestFolder base_, lora_, out_;
  const std::string file_ = lora_ / "adapter_model.safetensors: ";
};

class AnyAdapterTest : public AdapterTest {
 protected:
  AnyAdapterTest() : AdapterTest(TinyKind::kMamba) {}
};

TEST_P(AdapterTest, MergedWeightsAreThoseOfExactArithmeticRoundedOnce) {
  for (const core::DType dtype : kTypes) {
    SetType(dtype);
    const auto model = Load();
    const auto merged = MergeAdapter(*model);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(merged->tensors.size(), tiny_.tensors.size());
    for (const auto& [name, tensor] : merged->tensors) {
      const core::TensorView& old = model->folder.tensors.at(name);
      ASSERT_EQ(core::ToString(tensor), core::ToString(old)) << name;
      EXPECT_EQ(tensor.data == old.data, !IsTarget(name)) << name;
      if (!IsTarget(name)) continue;
      const auto& a = adapter_.memory.at(ModuleOf(name) + std::string(io::kLoraA));
      const auto& b = adapter_.memory.at(ModuleOf(name) + std::string(io::kLoraB));
      std::vector<float> w(old.elements()), got(old.elements());
      codecs::Decode(old, 0, w);
      codecs::Decode(tensor, 0, got);
      const size_t cols = old.shape[1];
      for (size_t i = 0; i < w.size(); ++i) {
        double want = w[i], sizes = std::abs(w[i]);
        for (size_t r = 0; r < kRank; ++r) {
          const double term = 0.5 * b[i / cols * kRank + r] * a[r * cols + i % cols];
          want += term;
          sizes += std::abs(term);
        }
        // Rounded once to the type; before that a sum of kRank + 1 terms in f32, each product of
        // which is rounded twice: (kRank + 2) halves of an eps of all that is added.
        const double bound =
            0.5 * Eps(dtype) * std::abs(want) + 0.5 * (kRank + 2) * Eps(core::DType::kF32) * sizes;
        // Below the type's normal numbers the steps are as wide as at the least of them.
        ASSERT_NEAR(got[i], want, bound + (dtype == core::DType::kF16 ? 0x1p-25 : 0.0)) << name;
      }
    }
  }
}

// Every one of the 2 layers' up to 4 matrices is off by half an eps of its type (f32: by the
// kRank + 2 halves of the sum), one after the other, each by at most sum |w x|, about sqrt(K), 4,
// of a result: 8 * 4 / 2 = 16 eps of the type, and (kRank + 2) times that in f32.
TEST_P(AdapterTest, MergedComputesWhatTheAdapterDoes) {
  for (const core::DType dtype : kTypes) {
    SetType(dtype);
    const auto model = Load();
    const auto merged = MergeAdapter(*model);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    out_.Put("config.json", io::ToJson(model->folder.config));
    ASSERT_TRUE(io::WriteSafetensors(out_ / "model.safetensors",
                                     {merged->tensors.begin(), merged->tensors.end()}, {})
                    .ok());
    const auto want = Logits(model, {.exact = true});
    const auto got = Logits(LoadModel(out_.path()), {.exact = true});
    const auto base = Logits(LoadModel(base_.path()), {.exact = true});
    const double tolerance = 16 * Eps(dtype) * (dtype == core::DType::kF32 ? kRank + 2 : 1);
    EXPECT_TRUE(CloseToScale(got, want, tolerance)) << core::Name(dtype);
    EXPECT_FALSE(CloseToScale(base, want, 0.25)) << "an adapter that changes nothing";
  }
}

TEST_P(AdapterTest, SplitsAndThreadsHaveTheSameBits) {
  for (const auto encoding : {codecs::Encoding::kPlain, codecs::Encoding::kInt8}) {
    LoadOptions options;
    if (encoding != codecs::Encoding::kPlain) options.quantize = QuantizeOptions{encoding, 64};
    for (const bool exact : {true, false}) {
      const auto want = Logits(Load(options), {.exact = exact});
      for (const size_t threads : {1, 5}) {
        options.threads = threads;
        const auto model = Load(options);
        for (const size_t piece : {1, 3, 256}) {
          EXPECT_TRUE(SameBits(Logits(model, {.piece = piece, .exact = exact}), want));
        }
      }
    }
  }
}

TEST_P(AdapterTest, RowsOfABatchDoNotSeeEachOther) {
  const auto model = Load();
  constexpr size_t kSessions = 4;
  std::vector<Session> sessions;
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < kSessions; ++i) {
    sessions.push_back(NewSession(model));
    ids.push_back(RandomIds(*model, 5 + 3 * i, i + 1));
  }
  auto batch = Batch::Create(model, 7, /*exact=*/false);
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  for (const bool rest : {false, true}) {
    std::vector<Batch::Input> inputs;
    for (size_t i = 0; i < kSessions; ++i) {
      const std::span<const int32_t> all(ids[i]);
      inputs.push_back({&sessions[i], rest ? all.subspan(2 + i) : all.first(2 + i)});
    }
    ASSERT_TRUE(batch->Feed(inputs).ok());
  }
  for (size_t i = 0; i < kSessions; ++i) {
    Session alone = NewSession(model);
    ASSERT_TRUE(alone.Prefill(ids[i]).ok());
    EXPECT_TRUE(SameBits(Memory(sessions[i].state()), Memory(alone.state()))) << i;
  }
}

TEST_P(AdapterTest, AQuantisedMatrixCannotChange) {
  const auto status = MergeAdapter(*Load({.quantize = QuantizeOptions{}})).status();
  EXPECT_TRUE(FailsWith(status, {base_.path() + ": backbone.layers.0.mixer.", "proj.weight: got i8",
                                 "want f32, bf16 or f16"}));
}

// The first state is of the base, the second of another scale.
TEST_P(AdapterTest, StatesBelongToModelAndAdapter) {
  const auto model = Load();
  const auto write = [&](const SharedModel& of, const std::string& name) {
    Session session = NewSession(of);
    EXPECT_TRUE(session.Prefill(RandomIds(*of, 4, 1)).ok());
    EXPECT_TRUE(WriteState(out_ / name, session, {}, "").ok());
  };
  write(LoadModel(base_.path()), "base");
  write(model, "same");
  WriteFolder(adapter_.tensors, 2 * kAlpha);
  write(Load(), "scale");
  const Session session = NewSession(model);
  EXPECT_TRUE(ReadState(out_ / "same", session).ok());
  for (const char* name : {"base", "scale"}) {
    EXPECT_TRUE(FailsWith(ReadState(out_ / name, session).status(), {out_ / name, "model: got"}));
  }
  const Session base = NewSession(LoadModel(base_.path()));
  EXPECT_TRUE(FailsWith(ReadState(out_ / "same", base).status(), {out_ / "same", "model: got"}));
}

TEST_F(AnyAdapterTest, AResultThatItsTypeCannotHoldIsRefused) {
  SetType(core::DType::kF16);
  const std::string module = "backbone.layers.1.mixer.x_proj";
  auto& b = adapter_.memory.at(module + std::string(io::kLoraB));
  for (float& value : b) value = 1e6f;
  WriteFolder(adapter_.tensors);
  EXPECT_TRUE(FailsWith(MergeAdapter(*Load()).status(),
                        {base_.path() + ": " + module + ".weight: element ", "in f16"}));
}

TEST_F(AnyAdapterTest, AnAdapterOfAnotherModelIsRefusedByName) {
  const std::string layer = "backbone.layers.0.mixer.";
  for (const auto& [module, rows, cols] : std::vector<std::tuple<std::string, size_t, size_t>>{
           {"backbone.layers.2.mixer.in_proj", 24, 8},
           {"layers.0.mixer.in_proj", 24, 8},
           {layer + "gate_proj", 24, 8},
           {layer + "conv1d", 12, 3},
           {"backbone.embeddings", 20, 8},
           {"lm_head", 20, 8}}) {
    Matrices all = adapter_;
    all.PutPair(module, rows, cols);
    WriteFolder(all.tensors);
    EXPECT_TRUE(FailsWith(Error(), {file_ + module + ".lora_A.weight: ", base_.path()})) << module;
  }
  // A head of its own: no adapter of it either.
  tiny_.Put("lm_head.weight", {20, 8});
  WriteModelFolder(base_, tiny_);
  Matrices head = adapter_;
  head.PutPair("lm_head", 20, 8);
  WriteFolder(head.tensors);
  EXPECT_TRUE(FailsWith(Error(), {file_ + "lm_head.lora_A.weight: ", base_.path()}));
}

TEST_F(AnyAdapterTest, AnAdapterOfOtherSizesIsRefusedByName) {
  const std::string module = "backbone.layers.0.mixer.in_proj";  // [24, 8]
  Matrices wide = adapter_, high = adapter_;
  wide.Put(module + std::string(io::kLoraA), kRank, 9);
  WriteFolder(wide.tensors);
  const std::string want_a = module + ".lora_A.weight: got f32 [3, 9], want 8 columns";
  EXPECT_TRUE(FailsWith(Error(), {file_ + want_a}));
  EXPECT_TRUE(FailsWith(Open({.quantize = QuantizeOptions{}}).status(), {file_ + want_a}));
  high.Put(module + std::string(io::kLoraB), 23, kRank);
  WriteFolder(high.tensors);
  EXPECT_TRUE(FailsWith(Error(), {file_ + module + ".lora_B.weight: got f32 [23, 3]", "24 rows"}));
}

TEST_F(AnyAdapterTest, NumbersThatAreNotFiniteAreRefusedByName) {
  const std::string name = "backbone.layers.1.mixer.out_proj.lora_B.weight";
  adapter_.memory.at(name)[4] = NAN;
  WriteFolder(adapter_.tensors);
  EXPECT_TRUE(FailsWith(Error(), {file_, name + ": element 4 is not a finite number"}));
}

// Without their scale they can't be used, and left out they would change the model.
TEST_F(AnyAdapterTest, AModelThatHoldsAnAdapterIsRefused) {
  const std::string name = "backbone.layers.1.mixer.in_proj.lora_A.weight";
  tiny_.Put(name, {3, 8});
  WriteModelFolder(base_, tiny_);
  const auto status = Model::Load(base_.path(), {.threads = 1}).status();
  EXPECT_TRUE(FailsWith(status, {base_ / "model.safetensors: " + name, "folder of its own"}));
}

constexpr TinyKind kKinds[] = {TinyKind::kMamba, TinyKind::kMamba2, TinyKind::kFalconMamba,
                               TinyKind::kOriginalMamba2};
INSTANTIATE_TEST_SUITE_P(Kinds, AdapterTest, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(Name(kind.param)); });

}  // namespace
}  // namespace hognose::runtime
