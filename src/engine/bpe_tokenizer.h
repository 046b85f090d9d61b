// Byte-pair encoding: tokenizer.json as Hugging Face's fast tokenizers define it, over bytes
// (GPT-2, Llama 3, Qwen) or over characters with byte fallback (Llama 2); and tiktoken files.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/added_tokens.h"
#include "engine/bpe.h"
#include "engine/json.h"
#include "engine/splitter.h"
#include "engine/tiktoken.h"
#include "engine/unicode.h"
#include "halftone/engine.h"

namespace halftone {

// A step of the normaliser.
struct NormalizeStep {
  enum class Kind : uint8_t { form, prepend, replace } kind = Kind::form;
  NormalForm form = NormalForm::nfc;
  std::string from, to;  // prepend: `to` before a text that is not empty
};

void replace_all(std::string& text, const std::string& from, const std::string& to);

class BpeTokenizer : public Tokenizer {
 public:
  // tokenizer.json. A component that is not implemented is Error::unsupported with its name.
  explicit BpeTokenizer(const JsonField& root);
  // A tiktoken file, which holds the ranks alone.
  BpeTokenizer(std::string_view ranks, const TiktokenVocabulary& vocabulary,
               const std::string& file);

  std::vector<int32_t> encode(std::string_view text, bool special) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override;
  std::string piece(int32_t token, int32_t previous) const override;
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }

 private:
  struct Piece {
    std::string bytes;
    bool special = false, used = false, added = false;
  };
  struct Words;  // the words of one call that are already merged

  void read_model(const JsonField& model);
  void read_piece(const std::string& entry, int32_t token);
  void read_merges(const JsonField& merges);
  void read_ranks(std::string_view lines);
  void merge_all_splits();
  void read_added_tokens(const JsonField& list);
  void read_normalizer(const JsonField& field);
  void read_pre_tokenizer(const JsonField& field);
  void read_byte_level(const JsonField& field);
  void read_split(const JsonField& field);
  void read_metaspace(const JsonField& field);
  void read_post_processor(const JsonField& field);
  void read_decoder(const JsonField& field);

  std::string normalized(std::string_view text) const;
  // `first`: the stretch begins the text.
  void encode_stretch(std::string_view text, bool first, Words& words,
                      std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, Words& words, std::vector<int32_t>& out) const;
  void push_character(std::string_view character, std::vector<int32_t>& symbols) const;
  const Piece& at(int32_t token) const;

  std::string file_;
  std::vector<Piece> pieces_;                             // by token
  std::unordered_map<std::string, int32_t> vocabulary_;   // as written in the file
  std::unordered_map<std::string, int32_t> whole_words_;  // raw bytes; only for ignore_merges
  MergeTable merges_;
  int32_t byte_token_[256];
  int32_t unknown_ = -1;
  bool ignore_merges_ = false;
  bool add_prefix_space_ = false;
  bool byte_level_ = false;
  std::vector<NormalizeStep> normalizers_;
  std::vector<SplitStep> steps_;
  AddedTokenMatcher raw_tokens_, normalized_tokens_;
  std::vector<int32_t> before_, behind_;  // around a text

  // Only with byte fallback, where pieces are text and a sign stands for the space:
  bool byte_fallback_ = false, fuse_unknown_ = false;
  std::unordered_map<std::string, int32_t> characters_;  // pieces of one character
  std::string space_sign_;                               // of Metaspace; empty without
  enum class Prefix : uint8_t { never, first, always } prefix_ = Prefix::never;
  bool strip_start_ = false;  // decoding drops one space at the start
};

}  // namespace halftone
