// Broken model folders: always one line that names the file, never a crash.
#include <algorithm>
#include <filesystem>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

class BrokenModelTest : public ::testing::Test {
 protected:
  BrokenModelTest()
      : config_(Slurp(Fixture("mamba_basic") + "/config.json")),
        weights_(Slurp(Fixture("mamba_basic") + "/model.safetensors")) {
    std::copy_n(weights_.data(), sizeof(header_), reinterpret_cast<char*>(&header_));
    folder_.Put("config.json", config_);
    folder_.Put("model.safetensors", weights_);
  }
  Outcome Inspect() const { return Hognose({"inspect", folder_.path()}); }

  TestFolder folder_;
  std::string config_, weights_;
  uint64_t header_ = 0;
};

TEST_F(BrokenModelTest, TheWholeOneIsFine) { EXPECT_TRUE(Done(Inspect())); }

TEST_F(BrokenModelTest, CutAnywhere) {
  for (size_t i = 0; i < 60; ++i) {
    // Every byte of the beginning, then all over the file, then its last bytes.
    const size_t size = i < 12   ? i
                        : i < 50 ? weights_.size() * (i - 11) / 40
                                 : weights_.size() - (60 - i);
    const std::string path = folder_.Put("model.safetensors", weights_.substr(0, size));
    EXPECT_TRUE(Fails(Inspect(), 1, path + ": ")) << size;
  }
  const std::string path = folder_.Put("model.safetensors", weights_ + "x");
  EXPECT_TRUE(Fails(Inspect(), 1, path + ": "));
}

// A changed byte of the header may still be a header; whatever it is, nothing crashes.
TEST_F(BrokenModelTest, BytesOfTheHeader) {
  size_t refused = 0;
  for (size_t at = 0; at < 8 + header_; at += at < 12 ? 1 : 13) {
    std::string broken = weights_;
    broken[at] ^= static_cast<char>(1 << (at % 8));
    const std::string path = folder_.Put("model.safetensors", broken);
    const Outcome o = Inspect();
    if (o.code == 0) continue;
    // A tensor that is missing by its name is missed by the configuration's path, too.
    EXPECT_TRUE(Fails(o, 1, folder_.path())) << at;
    ++refused;
  }
  EXPECT_GT(refused, 50u);
}

TEST_F(BrokenModelTest, NumbersThatAreNone) {
  std::string broken = weights_;
  const size_t last = weights_.size() - 4;
  for (const std::string_view bits :
       {std::string_view("\0\0\xC0\x7F", 4), std::string_view("\0\0\x80\x7F", 4)}) {
    broken.replace(last, 4, bits);
    folder_.Put("model.safetensors", broken);
    EXPECT_TRUE(Fails(Inspect(), 1, folder_.path(), "is not a finite number"));
  }
}

TEST_F(BrokenModelTest, WrongConfigurations) {
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string config = config_;
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return config.replace(at, from.size(), to);
  };
  const std::string configs[] = {
      "",
      "{",
      "[]",
      "null",
      "{}",
      "{} {}",
      "\xFF",
      std::string(100000, '['),
      change("\"hidden_size\": 20", "\"hidden_size\": \"20\""),
      change("\"hidden_size\": 20", "\"hidden_size\": -20"),
      change("\"hidden_size\": 20", "\"hidden_size\": 21"),
      change("\"hidden_size\": 20", "\"hidden_size\": 2e99"),
      change("\"hidden_size\": 20", "\"hidden_size\": 18446744073709551636"),
      change("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
      change("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2000000000"),
      change("\"state_size\": 8", "\"state_size\": 9"),
      change("\"conv_kernel\": 4", "\"conv_kernel\": 0"),
      change("\"time_step_rank\": 3", "\"time_step_rank\": 4"),
      change("\"vocab_size\": 50", "\"vocab_size\": 51"),
      change("\"use_conv_bias\": true", "\"use_conv_bias\": 1"),
      change("\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": \"small\""),
      change("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""),
      change("\"eos_token_id\": 0", "\"eos_token_id\": 50"),
      change("\"eos_token_id\": 0", "\"eos_token_id\": \"0\""),
      change("\"eos_token_id\": 0", "\"eos_token_id\": 0, \"eos_token_id\": 0"),
      change("MambaForCausalLM", "LlamaForCausalLM"),
  };
  for (const auto& config : configs) {
    folder_.Put("config.json", config);
    EXPECT_TRUE(Fails(Inspect(), 1, folder_.path())) << config.substr(0, 2000);
  }
}

TEST_F(BrokenModelTest, CutConfigurations) {
  const size_t end = config_.rfind('}');
  for (size_t size = 0; size < end; size += 17) {
    const std::string path = folder_.Put("config.json", config_.substr(0, size));
    EXPECT_TRUE(Fails(Inspect(), 1, path + ": ")) << size;
  }
}

TEST(BrokenTokenizerTest, Cut) {
  const TestFolder folder;
  const std::string json = Slurp(kDemo + "/tokenizer.json");
  const size_t end = json.rfind('}');
  for (size_t i = 0; i < 20; ++i) {
    const std::string path = folder.Put("tokenizer.json", json.substr(0, end * i / 20));
    EXPECT_TRUE(Fails(Hognose({"tokenize", path}, "x"), 1, path + ": ")) << i;
  }
}

}  // namespace
}  // namespace hognose::cli_test
