#include "io/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "io/json.h"
#include "io/tokenizer/added_tokens.h"
#include "io/tokenizer/bpe.h"
#include "io/tokenizer/decoder.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/model_text.h"
#include "io/tokenizer/normalizer.h"
#include "io/tokenizer/post_processor.h"
#include "io/tokenizer/pre_tokenizer.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io {
namespace {

constexpr size_t kFileLimit = size_t{1} << 30;
// Positions in a word are 32-bit.
constexpr size_t kTextLimit = size_t{1} << 30;

}  // namespace

struct Tokenizer::Impl {
  std::string where;
  tokenizer::Normalizer normalizer;
  tokenizer::PreTokenizer pre_tokenizer;
  tokenizer::Bpe model;
  tokenizer::AddedTokens added;
  tokenizer::PostProcessor post_processor;
  tokenizer::Decoder decoder;

  // What decoders get for `id`. Fails if no token has it.
  core::Result<std::string_view> TokenOf(int32_t id) const {
    if (const auto* token = added.FindId(id)) return std::string_view(token->decoded);
    if (model.vocabulary().Has(id)) return model.vocabulary().Token(id);
    return core::Status::Failed(where + ": got id " + std::to_string(id) +
                                ", want one that names a token");
  }

  core::Status Push(int32_t id, bool skip_special, tokenizer::DecodeChain& chain) const {
    HOGNOSE_ASSIGN(const std::string_view token, TokenOf(id));
    if (skip_special && added.IsSpecial(token)) return {};
    return chain.Push(token);
  }
};

core::Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    const auto file = MappedFile::Open(path);
    if (file.ok() && !file->bytes().empty() && file->bytes().size() <= kFileLimit) {
      return Parse({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()},
                   path);
    }
  }
  HOGNOSE_ASSIGN(const std::string json, ReadFile(path, kFileLimit));
  return Parse(json, path);
}

core::Result<Tokenizer> Tokenizer::Parse(std::string_view json, std::string_view where) {
  if (auto text = tokenizer::ReadModelText(json)) {
    auto result = ParseTree(text->rest, where, &text->tables);
    if (result.ok()) return result;
  }
  return ParseTree(json, where, nullptr);  // whose errors are those of the text itself
}

core::Result<Tokenizer> Tokenizer::ParseTree(std::string_view json, std::string_view where,
                                             tokenizer::ModelTables* tables) {
  HOGNOSE_ASSIGN(const core::Value value, ParseJson(json, where));
  const tokenizer::Field root{&value, std::string(where) + ": "};
  if (value.AsObject() == nullptr) {
    return core::Status::Failed(std::string(where) + ": got " + std::string(value.TypeName()) +
                                ", want an object");
  }
  static constexpr std::string_view kVersions[] = {"1.0"};
  HOGNOSE_TRY(tokenizer::ReadChoice(root, "version", kVersions, size_t{0}).status());

  const tokenizer::Field model_field = root.Member("model");
  if (!model_field.Has()) return tokenizer::Wrong(model_field, "an object");
  // Files of before 2021 name no type; only BPE has merges.
  if (model_field.Member("type").Has() || !model_field.Member("merges").Has()) {
    static constexpr std::string_view kModels[] = {"BPE"};
    HOGNOSE_TRY(tokenizer::ReadChoice(model_field, "type", kModels).status());
  }
  HOGNOSE_ASSIGN(auto normalizer, tokenizer::Normalizer::Parse(root.Member("normalizer")));
  HOGNOSE_ASSIGN(auto pre_tokenizer, tokenizer::PreTokenizer::Parse(root.Member("pre_tokenizer")));
  HOGNOSE_ASSIGN(auto post_processor,
                 tokenizer::PostProcessor::Parse(root.Member("post_processor")));
  HOGNOSE_ASSIGN(auto decoder, tokenizer::Decoder::Parse(root.Member("decoder")));
  HOGNOSE_ASSIGN(auto model, tokenizer::Bpe::Parse(model_field, tables));
  HOGNOSE_ASSIGN(auto added, tokenizer::AddedTokens::Parse(root.Member("added_tokens"),
                                                           model.vocabulary(), normalizer));
  Tokenizer result(std::make_unique<Impl>(Impl{.where = std::string(where),
                                               .normalizer = std::move(normalizer),
                                               .pre_tokenizer = std::move(pre_tokenizer),
                                               .model = std::move(model),
                                               .added = std::move(added),
                                               .post_processor = std::move(post_processor),
                                               .decoder = std::move(decoder)}));
  for (const int32_t id : result.impl_->post_processor.added_ids()) {
    if (result.Has(id)) continue;
    return core::Status::Failed(root.Member("post_processor").path + ": got the id " +
                                std::to_string(id) + ", want one that names a token");
  }
  return result;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

core::Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, bool special) const {
  if (text.size() > kTextLimit) {
    return core::Status::Failed("text: got " + std::to_string(text.size()) +
                                " bytes, want at most " + std::to_string(kTextLimit));
  }
  if (const size_t bad = tokenizer::FindInvalidUtf8(text); bad != std::string_view::npos) {
    return core::Status::Failed("text: byte " + std::to_string(bad) + ": got invalid UTF-8");
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 16);
  tokenizer::TextStore store;
  tokenizer::Bpe::Scratch scratch;
  const auto encode = [&](const tokenizer::Piece& word) {
    return impl_->model.Encode(word.text, word.byte_level, scratch, &ids);
  };
  tokenizer::Pieces raw, normalized;
  impl_->added.Extract(tokenizer::Piece::Whole(text), false, &raw);
  for (tokenizer::Piece& piece : raw) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    HOGNOSE_TRY(impl_->normalizer.Apply(&piece, store));
    normalized.clear();
    impl_->added.Extract(piece.Slice(0, piece.text.size()), true, &normalized);
    for (const tokenizer::Piece& part : normalized) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        HOGNOSE_TRY(impl_->pre_tokenizer.Apply(part, store, encode));
      }
    }
  }
  return impl_->post_processor.Apply(std::move(ids), special);
}

core::Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  tokenizer::DecodeChain chain(impl_->decoder);
  for (const int32_t id : ids) HOGNOSE_TRY(impl_->Push(id, skip_special, chain));
  HOGNOSE_TRY(chain.Finish());
  return chain.Take();
}

size_t Tokenizer::vocab_size() const {
  return std::max(impl_->model.vocabulary().id_end(), impl_->added.id_end());
}

bool Tokenizer::Has(int32_t id) const {
  return impl_->added.FindId(id) != nullptr || impl_->model.vocabulary().Has(id);
}

std::optional<int32_t> Tokenizer::Find(std::string_view token) const {
  if (const auto id = impl_->added.Find(token)) return id;
  return impl_->model.vocabulary().Find(token);
}

struct Tokenizer::Stream::Impl {
  const Tokenizer::Impl* tokenizer;
  bool skip_special;
  tokenizer::DecodeChain chain;
};

Tokenizer::Stream::Stream(const Tokenizer& tokenizer, bool skip_special)
    : impl_(new Impl{tokenizer.impl_.get(), skip_special,
                     tokenizer::DecodeChain(tokenizer.impl_->decoder)}) {}
Tokenizer::Stream::Stream(Stream&&) noexcept = default;
Tokenizer::Stream& Tokenizer::Stream::operator=(Stream&&) noexcept = default;
Tokenizer::Stream::~Stream() = default;

core::Result<std::string> Tokenizer::Stream::Push(int32_t id) {
  HOGNOSE_TRY(impl_->tokenizer->Push(id, impl_->skip_special, impl_->chain));
  return impl_->chain.Take();
}

core::Result<std::string> Tokenizer::Stream::Finish() {
  HOGNOSE_TRY(impl_->chain.Finish());
  return impl_->chain.Take();
}

std::string Tokenizer::Stream::Save() const { return impl_->chain.Save(); }

core::Status Tokenizer::Stream::Restore(std::string_view saved) { return impl_->chain.Load(saved); }

}  // namespace hognose::io
