// The two large members of a tokenizer.json, model.vocab and model.merges, read straight from its
// text: as a tree of values they would take ten times as long.
//
// Only the usual form is read. Whatever else the text holds, right or wrong, is left to the tree,
// which gives the same tables (a test compares them) and knows every message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/merge_table.h"
#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

struct ModelTables {
  Vocabulary vocabulary;
  MergeTable merges;
};

struct ModelText {
  ModelTables tables;  // if there is no continuing_subword_prefix
  std::string rest;    // the text with {} and [] in their place; not checked in any way
};

// Nothing if a member isn't found or not of the usual form: no token twice, no id twice, merges
// (after the vocabulary) of its tokens. What is cut out is valid JSON.
std::optional<ModelText> ReadModelText(std::string_view json);

}  // namespace hognose::io::tokenizer
