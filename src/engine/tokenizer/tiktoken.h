// tiktoken files: one line "BASE64 RANK" a token. The pattern and the special tokens are not in
// the file; they belong to the known vocabularies, which the number of ranks tells apart.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halftone/engine.h"

namespace halftone {

struct TiktokenVocabulary {
  std::string regex;
  std::vector<std::pair<int32_t, std::string>> special;
  int32_t bos = -1;  // put before a text
};

// Whether the bytes begin like a tiktoken file.
bool is_tiktoken(std::string_view bytes);

// The vocabulary with this many ranks: GPT-2 and Whisper, cl100k, Qwen, Llama 3 and 4, o200k.
// `model_vocabulary` (0: not known) tells apart the models that share one.
TiktokenVocabulary tiktoken_vocabulary(int64_t ranks, int64_t model_vocabulary,
                                       const std::string& file);

std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::string& file,
                                         int64_t model_vocabulary = 0);

}  // namespace halftone
