// What the tests of hognose quantize share.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "tests/cli/cli_test.h"

namespace hognose::cli_test {

// hognose quantize MODEL OUT --to TO ...
inline std::vector<std::string> QuantizeArgs(const std::string& model, const std::string& out,
                                             const std::string& to,
                                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"quantize", model, out, "--to", to};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}
inline Outcome Quantize(const std::string& model, const std::string& out, const std::string& to,
                        const std::vector<std::string>& more = {}) {
  return Hognose(QuantizeArgs(model, out, to, more));
}

// Names and bytes of all files of a folder, to see that nothing changed.
inline std::vector<std::pair<std::string, std::string>> Contents(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const bool file = entry.is_regular_file();
    files.emplace_back(entry.path().filename(), file ? Slurp(entry.path()) : "not a file");
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline void WriteTensors(const std::string& path, const core::TensorMap& tensors) {
  const auto status = io::WriteSafetensors(path, {tensors.begin(), tensors.end()}, {});
  EXPECT_TRUE(status.ok()) << status.message();
}

// Plain English, about 500 tokens of the bundled model.
inline const std::string kEnglish =
    "The rain had stopped before they reached the village, and the road shone under the lamps like "
    "a river. Nobody was about. A dog barked once behind a wall and was quiet again. \"We are too "
    "late,\" said Martha, and she set down the heavy bag which she had carried all the way from "
    "the "
    "station. Her brother did not answer. He was looking at the house on the corner, where a light "
    "moved slowly from one window to the next, as if somebody walked there with a candle in his "
    "hand.\n\n"
    "\"Do you see it?\" he asked at last.\n\n"
    "\"I see a candle,\" she said, \"and I see that you are cold and tired, and that we have had "
    "nothing to eat since the morning. Let us knock at the door of the inn. Tomorrow you may look "
    "at as many windows as you like.\"\n\n"
    "But he had already crossed the street. The gate was open, and the path behind it was covered "
    "with wet leaves, so that his steps made no sound at all. He thought of the letter in his "
    "pocket, and of the old man who had written it; he had known him only for a few weeks, many "
    "years ago, and yet there was no one in the world whom he had wished so much to see again. "
    "When he came to the steps the light went out.\n\n"
    "He waited for some time in the dark. Then the door was opened a little, and a voice which he "
    "did not know asked him what he wanted at such an hour. He gave his name. There was a silence, "
    "and a chain fell, and a small woman in a black dress stood before him and held up her hand to "
    "her eyes, although there was nothing that could have hurt them.\n\n"
    "\"You have come too late, sir,\" she said. \"He talked of you to the end. He said that you "
    "would come when it rained.\" She was not weeping, and it seemed to him that she had said "
    "these "
    "words to herself many times before, in the empty rooms, walking from one window to the "
    "next.\n";

}  // namespace hognose::cli_test
