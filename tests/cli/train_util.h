// What the tests of hognose train share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "io/safetensors.h"
#include "tests/cli/quantize_util.h"

namespace hognose::cli_test {

using Arguments = std::vector<std::string>;

inline std::string JoinIds(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += std::to_string(id) + " ";
  return text;
}

inline std::vector<int64_t> SomeIds(size_t count, uint64_t vocab = 48, uint64_t seed = 1) {
  core::Rng rng(seed);
  std::vector<int64_t> ids(count);
  for (int64_t& id : ids) id = static_cast<int64_t>(rng.Below(vocab));
  return ids;
}

// The lines of a log.
inline std::vector<core::Value> ReadLog(const std::string& path) {
  std::vector<core::Value> lines;
  const std::string text = Slurp(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    auto value = io::ParseJson(text.substr(at, end - at), path);
    EXPECT_TRUE(value.ok()) << value.status().message();
    if (value.ok()) lines.push_back(std::move(*value));
    at = end + 1;
  }
  return lines;
}

inline std::vector<double> Losses(const std::string& log) {
  std::vector<double> losses;
  for (const core::Value& line : ReadLog(log)) losses.push_back(Number(line, "loss"));
  return losses;
}

class TrainTest : public ::testing::Test {
 protected:
  // A tiny new model on data_; what `more` says comes last.
  Arguments Tiny(const Arguments& more = {}) const {
    return Args({"--arch", "mamba2", "--d-model", "16", "--layers", "2", "--d-state", "8",
                 "--head-dim", "8", "--vocab", "48"},
                more);
  }
  // An existing model.
  Arguments Init(const std::string& model, const Arguments& more = {}) const {
    return Args({"--init", model}, more);
  }
  Arguments Args(const Arguments& model, const Arguments& more) const {
    Arguments args = {"train", "--data",
                      data_,   "--out",
                      out_,    "--steps",
                      "5",     "--batch-size",
                      "2",     "--sequence-length",
                      "16",    "-t",
                      "1"};
    args.insert(args.end(), model.begin(), model.end());
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  Outcome Train(const Arguments& more = {}) const { return Hognose(Tiny(more)); }
  // The bytes of what a run leaves, its times left out.
  std::vector<std::string> Result() const {
    return {Slurp(out_ + "/config.json"), Slurp(out_ + "/model.safetensors"),
            Slurp(out_ + "/training_state.safetensors")};
  }
  void Remove() const { std::filesystem::remove_all(out_); }

  const TestFolder folder_;
  const std::string data_ = folder_.Put("data", JoinIds(SomeIds(400)));
  const std::string out_ = folder_ / "out", log_ = folder_ / "log";
};

}  // namespace hognose::cli_test
