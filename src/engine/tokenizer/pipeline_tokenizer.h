// tokenizer.json as Hugging Face's fast tokenizers define it: a pipeline of normaliser,
// pre-tokenizer, model, post-processor and decoder. Models: byte-pair encoding over bytes (GPT-2,
// Llama 3, Qwen) or over characters with byte fallback (Llama 2), and Unigram. tiktoken files, too.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/json.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/tiktoken.h"
#include "engine/tokenizer/unigram.h"
#include "halftone/engine.h"

namespace halftone {

// A step of the pre-tokenizer: cuts every piece of a text further.
struct PreTokenizeStep {
  SplitStep split = {};  // without a pattern: none
  // Metaspace, before its cut: `space_sign` for each space, and one in front.
  std::string space_sign = {};  // empty: not Metaspace
  enum class Prefix : uint8_t { never, first, always } prefix = Prefix::never;
};

class PipelineTokenizer : public Tokenizer {
 public:
  // tokenizer.json. A component that is not implemented is Error::unsupported with its name.
  explicit PipelineTokenizer(const JsonField& root);
  // A tiktoken file, which holds the ranks alone.
  PipelineTokenizer(std::string_view ranks, const TiktokenVocabulary& vocabulary,
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
  void read_vocabulary(const JsonField& vocabulary);
  void read_unigram(const JsonField& model);
  void read_piece(const std::string& entry, int32_t token);
  void read_merges(const JsonField& merges);
  void read_ranks(std::string_view lines);
  void merge_all_splits();
  void read_added_tokens(const JsonField& list);
  void read_pre_tokenizer(const JsonField& field);
  void read_byte_level(const JsonField& field);
  void read_split(const JsonField& field);
  void read_metaspace(const JsonField& field);
  void read_post_processor(const JsonField& field);
  void read_decoder(const JsonField& field);

  // `first`: the stretch begins the text.
  void encode_stretch(std::string_view text, bool first, Words& words,
                      std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, Words& words, std::vector<int32_t>& out) const;
  void encode_unigram(std::string_view word, std::vector<int32_t>& symbols) const;
  void push_character(std::string_view character, std::vector<int32_t>& symbols) const;
  const Piece& at(int32_t token) const;
  size_t stripped(std::string_view first) const;  // bytes that decoding drops of a first piece

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
  Normalizer normalizer_;
  std::vector<PreTokenizeStep> steps_;
  AddedTokenMatcher raw_tokens_, normalized_tokens_;
  std::vector<int32_t> before_, behind_;  // around a text

  // Pieces that are text, not byte-level symbols; characters without one fall back to bytes.
  bool text_pieces_ = false, byte_fallback_ = false, fuse_unknown_ = false;
  std::unordered_map<std::string, int32_t> characters_;  // BPE: pieces of one character
  struct Unigram {
    PieceTrie pieces;
    std::vector<double> scores;  // by token
    double unknown_score = 0;
  };
  std::unique_ptr<Unigram> unigram_;  // null: BPE
  // What decoding drops at the start: one space, or all spaces of the first piece (Metaspace).
  enum class Strip : uint8_t { none, one, piece } strip_start_ = Strip::none;
};

}  // namespace halftone
