// SentencePiece: the .model file (a protocol buffer), its normaliser, and both of its models.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/charsmap.h"
#include "halftone/engine.h"

namespace halftone {

// What the .model file holds.
struct SentencePieceModel {
  enum class Kind : uint8_t { unigram = 1, bpe = 2 };
  enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte, added };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  // Errors name `file`.
  static SentencePieceModel parse(std::string_view bytes, const std::string& file);

  Kind kind = Kind::unigram;
  std::vector<Piece> pieces;
  int32_t unknown = -1, bos = 1, eos = 2;  // -1: none
  std::string unknown_text = " \u2047 ";   // what the unknown piece is decoded to
  bool byte_fallback = false;
  bool space_as_suffix = false;
  CharsMap normalizer;
  bool add_dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  CharsMap denormalizer;
};

// Whether the bytes begin like a .model file.
bool is_sentencepiece(std::string_view bytes);

// What tokenizer_config.json says beside the model.
struct SentencePieceOptions {
  bool add_bos = true, add_eos = false;  // where the model has such a piece
  std::vector<AddedToken> added;         // behind the pieces of the model; ids in order
};
std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view bytes, const std::string& file,
                                              const SentencePieceOptions& = {});

}  // namespace halftone
