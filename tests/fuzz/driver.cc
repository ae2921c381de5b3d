// Runs a libFuzzer target where libFuzzer isn't: every file of a corpus folder as it is, then
// mutations of them.
//
//   fuzz_NAME [--cases N] [--seconds S] [--seed S] [--first K] CORPUS
//
// A case is a pure function of the corpus, the seed and its number. When one crashes, its number is
// printed: --seed S --first K --cases 1 runs it again.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using hognose::core::Rng;

constexpr size_t kMaxSize = 4096;

struct Options {
  uint64_t cases = UINT64_MAX;
  double seconds = 0;  // 0: ten, or no limit if the number of cases is given
  uint64_t seed = 1;
  uint64_t first = 0;
  std::string corpus;
};

// What a signal handler prints.
const char* volatile current_file = nullptr;  // of the corpus; null while mutations run
volatile uint64_t current_case = 0;
uint64_t current_seed = 0;

void PrintCase() {
  char line[512];
  const char* file = current_file;
  if (file != nullptr) {
    std::snprintf(line, sizeof(line), "crashed: %s\n", file);
  } else {
    std::snprintf(line, sizeof(line), "crashed: --seed %llu --first %llu --cases 1\n",
                  static_cast<unsigned long long>(current_seed),
                  static_cast<unsigned long long>(current_case));
  }
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, line, std::strlen(line));
}

void OnSignal(int number) {
  PrintCase();
  signal(number, SIG_DFL);
  raise(number);
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, const std::vector<std::string>& tokens)
      : corpus_(corpus), tokens_(tokens) {}

  std::string Make(Rng& rng) const {
    std::string text = Any(rng, corpus_);
    for (uint64_t i = 0, count = 1 + rng.Below(6); i < count; ++i) Mutate(rng, &text);
    if (text.size() > kMaxSize) text.resize(kMaxSize);
    return text;
  }

 private:
  static const std::string& Any(Rng& rng, const std::vector<std::string>& list) {
    return list[rng.Below(list.size())];
  }

  struct Range {
    size_t begin, size;
  };
  // A piece of the text, mostly short.
  static Range Piece(Rng& rng, const std::string& text) {
    const size_t begin = rng.Below(text.size() + 1);
    const size_t most = rng.Below(4) == 0 ? text.size() : 8;
    return {begin, std::min(text.size() - begin, static_cast<size_t>(rng.Below(most + 1)))};
  }

  void Mutate(Rng& rng, std::string* text) const {
    const Range piece = Piece(rng, *text);
    switch (rng.Below(10)) {
      case 0:
        return FlipBit(rng, text);
      case 1:
        return SetByte(rng, text);
      case 2:
        text->insert(piece.begin, 1 + rng.Below(4), static_cast<char>(rng.Next()));
        return;
      case 3:
        text->erase(piece.begin, piece.size);
        return;
      case 4:
        return Repeat(rng, text->substr(piece.begin, piece.size), piece.begin, text);
      case 5: {  // a piece of another one in the place of this piece
        const std::string& other = Any(rng, corpus_);
        const Range source = Piece(rng, other);
        text->replace(piece.begin, piece.size, other, source.begin, source.size);
        return;
      }
      case 6:
        return SetInteger(rng, text);
      case 7:
        if (!tokens_.empty()) text->replace(piece.begin, piece.size, Any(rng, tokens_));
        return;
      case 8:
        return SetNumber(rng, text);
      default:
        text->resize(rng.Below(8) == 0 ? piece.begin : text->size());
        return;
    }
  }

  static void FlipBit(Rng& rng, std::string* text) {
    if (text->empty()) return;
    char& c = (*text)[rng.Below(text->size())];
    c = static_cast<char>(c ^ (1 << rng.Below(8)));
  }

  static void SetByte(Rng& rng, std::string* text) {
    static constexpr uint8_t kBytes[] = {0,   1,    0x7F, 0x80, 0xC2, 0xED, 0xF4, 0xFF,
                                         '"', '\\', '{',  '[',  ']',  '}',  ',',  ':',
                                         '(', ')',  '\'', ' ',  '-',  '0'};
    if (text->empty()) return;
    const uint64_t byte = rng.Below(2) == 0 ? rng.Next() : kBytes[rng.Below(std::size(kBytes))];
    (*text)[rng.Below(text->size())] = static_cast<char>(byte);
  }

  static void Repeat(Rng& rng, const std::string& piece, size_t at, std::string* text) {
    std::string many;
    for (uint64_t i = 0, n = 1 + rng.Below(rng.Below(8) == 0 ? 200 : 3); i < n; ++i) many += piece;
    text->insert(at, many.substr(0, kMaxSize));
  }

  static uint64_t Interesting(Rng& rng) {
    static constexpr uint64_t kValues[] = {0,
                                           1,
                                           2,
                                           3,
                                           4,
                                           7,
                                           8,
                                           15,
                                           16,
                                           63,
                                           64,
                                           65,
                                           100,
                                           127,
                                           128,
                                           255,
                                           256,
                                           1000,
                                           4095,
                                           4096,
                                           65535,
                                           65536,
                                           0x7FFFFFFF,
                                           0x80000000,
                                           0xFFFFFFFF,
                                           0x100000000,
                                           0x3FFFFFFFFFFFFFFF,
                                           0x4000000000000000,
                                           0x7FFFFFFFFFFFFFFF,
                                           0x8000000000000000,
                                           0xFFFFFFFFFFFFFFF8,
                                           UINT64_MAX};
    return kValues[rng.Below(std::size(kValues))] + (rng.Below(4) == 0 ? rng.Below(5) - 2 : 0);
  }

  static void SetInteger(Rng& rng, std::string* text) {
    const uint64_t value = Interesting(rng);
    const size_t size = size_t{1} << rng.Below(4);
    if (text->size() < size) return;
    // At the start as often as elsewhere: there are the lengths.
    const size_t at = rng.Below(2) == 0 ? rng.Below(std::min<size_t>(text->size() - size + 1, 16))
                                        : rng.Below(text->size() - size + 1);
    std::memcpy(text->data() + at, &value, size);
  }

  // Another number in the place of a run of digits.
  static void SetNumber(Rng& rng, std::string* text) {
    static constexpr char kDigits[] = "0123456789";
    const size_t begin = text->find_first_of(kDigits, rng.Below(text->size() + 1));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text->find_first_not_of(kDigits, begin), text->size());
    const uint64_t value = rng.Below(2) == 0 ? rng.Below(20) : Interesting(rng);
    text->replace(begin, end - begin, std::to_string(value));
  }

  const std::vector<std::string>& corpus_;
  const std::vector<std::string>& tokens_;
};

void Run(const std::string& text) {
  // A block of exactly this size, so that a sanitizer sees a read behind its end.
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.shrink_to_fit();
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

bool ParseOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (!flag.starts_with("--")) {
      options->corpus = flag;
      continue;
    }
    if (++i == argc) return false;
    if (flag == "--cases") {
      options->cases = strtoull(argv[i], nullptr, 10);
    } else if (flag == "--seconds") {
      options->seconds = strtod(argv[i], nullptr);
    } else if (flag == "--seed") {
      options->seed = strtoull(argv[i], nullptr, 10);
    } else if (flag == "--first") {
      options->first = strtoull(argv[i], nullptr, 10);
    } else {
      return false;
    }
  }
  while (options->corpus.ends_with('/')) options->corpus.pop_back();
  if (options->seconds == 0) options->seconds = options->cases == UINT64_MAX ? 10 : HUGE_VAL;
  return !options->corpus.empty();
}

// The files of the folder in the order of their names, so that a case is the same everywhere.
std::vector<std::filesystem::path> ListCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, &options)) {
    std::fprintf(stderr, "usage: %s [--cases N] [--seconds S] [--seed S] [--first K] CORPUS\n",
                 argv[0]);
    return 2;
  }
  const std::vector<std::filesystem::path> paths = ListCorpus(options.corpus);
  if (paths.empty()) {
    std::fprintf(stderr, "%s: got no files, want a corpus\n", options.corpus.c_str());
    return 1;
  }
  std::vector<std::string> tokens;
  std::ifstream dictionary(options.corpus + ".dict");
  for (std::string line; std::getline(dictionary, line);) tokens.push_back(line);

  current_seed = options.seed;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(PrintCase);
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL}) {
    // A sanitizer has handlers of its own, which call PrintCase.
    if (__sanitizer_set_death_callback == nullptr || number == SIGABRT) signal(number, OnSignal);
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    current_file = path.c_str();
    Run(corpus.emplace_back(ReadAll(path)));
  }
  current_file = nullptr;
  const Mutator mutator(corpus, tokens);
  uint64_t cases = 0;
  for (; cases < options.cases; ++cases) {
    if (cases % 64 == 0 && SecondsSince(start) > options.seconds) break;
    current_case = options.first + cases;
    Rng rng(options.seed ^ (current_case * 0x9E3779B97F4A7C15u));
    Run(mutator.Make(rng));
  }
  std::printf("%s: %llu cases in %.1f s, %zu corpus files, seed %llu\n", argv[0],
              static_cast<unsigned long long>(cases), SecondsSince(start), corpus.size(),
              static_cast<unsigned long long>(options.seed));
  return 0;
}
