// Reading the components of tokenizer.json.
#include "engine/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace halftone {

namespace {

// Holes in the numbering cost memory, so numbers are bounded; known vocabularies end below 300000.
constexpr int64_t kMaxToken = (int64_t{1} << 21) - 1;
// No piece in use is near this; a decoder of many Replace steps must not fill the memory.
constexpr size_t kLongestPiece = size_t{1} << 16;
constexpr size_t kLongestUnigramPiece = 1024;  // as in SentencePiece's files; bounds the search

// The printable alphabet that stands for bytes in byte-level vocabularies: printable Latin-1
// characters are themselves, the 68 others are U+0100 and on, in order.
int32_t byte_symbol(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  if (printable(byte)) return byte;
  int32_t symbol = 0x100;
  for (int b = 0; b < byte; ++b) symbol += printable(b) ? 0 : 1;
  return symbol;
}

class ByteAlphabet {
 public:
  ByteAlphabet() {
    std::fill(std::begin(byte_), std::end(byte_), int16_t{-1});
    for (int b = 0; b < 256; ++b) byte_[byte_symbol(b)] = static_cast<int16_t>(b);
  }
  // The bytes that a vocabulary entry stands for; nothing when it uses other characters.
  std::optional<std::string> decode(std::string_view entry) const {
    std::string bytes;
    for (size_t i = 0; i < entry.size();) {
      const Utf8Step step = decode_utf8(entry, i);
      if (step.codepoint < 0 || step.codepoint >= kSymbols || byte_[step.codepoint] < 0) {
        return std::nullopt;
      }
      bytes += static_cast<char>(byte_[step.codepoint]);
      i += static_cast<size_t>(step.length);
    }
    return bytes;
  }

 private:
  static constexpr int kSymbols = 0x100 + 68;
  int16_t byte_[kSymbols];
};

// The "type" of a component.
std::string type_of(const JsonField& field) { return field["type"].text(); }

constexpr const char* kSpaceSign = "\u2581";

void require_empty(const JsonField& field) {
  if (field.present() && !field.text_or("").empty()) {
    field.unsupported(" is ", quote(field.text()), "; byte-level BPE has none");
  }
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(const JsonField& root) : file_(root.file()) {
  std::fill(std::begin(byte_token_), std::end(byte_token_), -1);
  root.members();
  read_model(root["model"]);
  normalizer_.read(root["normalizer"]);
  read_added_tokens(root["added_tokens"]);
  if (root["pre_tokenizer"].present()) read_pre_tokenizer(root["pre_tokenizer"]);
  if (!byte_level_ && !text_pieces_) {
    root["pre_tokenizer"].unsupported(
        " has no ByteLevel step; BPE is implemented over bytes, and over "
        "characters with byte_fallback");
  }
  if (root["post_processor"].present()) read_post_processor(root["post_processor"]);
  if (root["decoder"].present()) read_decoder(root["decoder"]);
  vocabulary_ = {};  // was needed for reading only
}

void PipelineTokenizer::read_model(const JsonField& model) {
  if (!model.is_object()) model.expected("an object");
  const std::string type = model["type"].text_or("BPE");
  if (type == "Unigram") return read_unigram(model);
  if (type != "BPE") {
    model["type"].unsupported(" is ", quote(type), "; \"BPE\" and \"Unigram\" are implemented");
  }
  text_pieces_ = byte_fallback_ = model["byte_fallback"].boolean_or(false);
  fuse_unknown_ = model["fuse_unk"].boolean_or(false);
  if (fuse_unknown_ && !byte_fallback_) {
    model["fuse_unk"].unsupported(" is true; byte-level BPE does not use it");
  }
  if (model["dropout"].number_or(0, 0, 1) != 0) {
    model["dropout"].unsupported(" is not 0; encoding is deterministic here");
  }
  require_empty(model["continuing_subword_prefix"]);
  require_empty(model["end_of_word_suffix"]);
  ignore_merges_ = model["ignore_merges"].boolean_or(false);

  read_vocabulary(model["vocab"]);
  const JsonField unknown = model["unk_token"];
  if (const std::string name = unknown.text_or(""); !name.empty()) {
    const auto place = vocabulary_.find(name);
    if (place == vocabulary_.end()) unknown.expected("a token of model.vocab");
    unknown_ = place->second;
  }
  read_merges(model["merges"]);
}

void PipelineTokenizer::read_vocabulary(const JsonField& vocabulary) {
  const Json::Object& entries = vocabulary.members();
  if (entries.empty()) vocabulary.expected("an object of at least one token");
  vocabulary_.reserve(entries.size());
  for (const Json::Member& entry : entries) {
    const auto* number = entry.value.get<int64_t>();
    if (number == nullptr || *number < 0 || *number > kMaxToken) {
      vocabulary[entry.key].integer(0, kMaxToken);  // fails with the rule
    }
    const auto token = static_cast<size_t>(*number);
    if (token >= pieces_.size()) pieces_.resize(token + 1);
    if (pieces_[token].used) {
      vocabulary[entry.key].malformed(" is ", token, ", which another token has too");
    }
    pieces_[token].used = true;
    vocabulary_.emplace(entry.key, static_cast<int32_t>(token));
    read_piece(entry.key, static_cast<int32_t>(token));
  }
}

// A vocabulary of [piece, score] in the order of their numbers.
void PipelineTokenizer::read_unigram(const JsonField& model) {
  text_pieces_ = true;
  byte_fallback_ = model["byte_fallback"].boolean_or(false);
  unigram_ = std::make_unique<Unigram>();
  const JsonField vocabulary = model["vocab"];
  const Json::Array& items = vocabulary.elements();
  const auto count = static_cast<int64_t>(items.size());
  if (count == 0 || count > kMaxToken) {
    vocabulary.malformed(" has ", count, " pieces; it must have 1 to ", kMaxToken);
  }
  pieces_.resize(items.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t token = 0; token < items.size(); ++token) {
    const auto complain = [&](const char* rule) {  // a field with its path only to complain
      JsonField(&items[token], file_, concat(vocabulary.path(), "[", token, "]")).expected(rule);
    };
    const auto* pair = items[token].get<Json::Array>();
    const bool two = pair != nullptr && pair->size() == 2;
    const auto* piece = two ? (*pair)[0].get<std::string>() : nullptr;
    const auto* real = two ? (*pair)[1].get<double>() : nullptr;
    const auto* whole = two ? (*pair)[1].get<int64_t>() : nullptr;
    if (piece == nullptr || (real == nullptr && whole == nullptr))
      complain("a piece and its score");
    if (piece->size() > kLongestUnigramPiece) complain("a piece of at most 1024 bytes");
    const double score = real != nullptr ? *real : static_cast<double>(*whole);
    unigram_->scores.push_back(score);
    lowest = std::min(lowest, score);
    const auto id = static_cast<int32_t>(token);
    if (!vocabulary_.emplace(*piece, id).second) complain("a piece that no other token has");
    pieces_[token].used = true;
    read_piece(*piece, id);
    if (!piece->empty()) unigram_->pieces.add(*piece, id);
  }
  unigram_->unknown_score = lowest - kUnknownPenalty;
  const JsonField unknown = model["unk_id"];
  unknown_ = static_cast<int32_t>(unknown.integer_or(-1, 0, count - 1));
}

void PipelineTokenizer::read_piece(const std::string& entry, int32_t token) {
  std::string& bytes = pieces_[static_cast<size_t>(token)].bytes;
  if (text_pieces_) {
    bytes = entry;
    if (const int byte = byte_of_piece(entry); byte >= 0 && byte_fallback_) {
      byte_token_[byte] = token;
      bytes.assign(1, static_cast<char>(byte));
    } else if (unigram_ == nullptr && !entry.empty() &&
               decode_utf8(entry, 0).length == static_cast<int>(entry.size())) {
      characters_.emplace(entry, token);
    }
    if (ignore_merges_) whole_words_.emplace(entry, token);
    return;
  }
  static const ByteAlphabet alphabet;
  const std::optional<std::string> decoded = alphabet.decode(entry);
  // Entries in other characters can only be added tokens, which stand for themselves.
  bytes = decoded ? *decoded : entry;
  if (!decoded) return;
  if (bytes.size() == 1) byte_token_[static_cast<unsigned char>(bytes[0])] = token;
  if (ignore_merges_) whole_words_.emplace(bytes, token);
}

void PipelineTokenizer::read_merges(const JsonField& merges) {
  const Json::Array& items = merges.elements();
  merges_ = MergeTable(items.size());
  std::string left, right;
  for (size_t rank = 0; rank < items.size(); ++rank) {
    // Hundreds of thousands of items: a field with its path is made only to complain.
    const auto complain = [&](const std::string& rule) {
      JsonField(&items[rank], file_, concat(merges.path(), "[", rank, "]")).expected(rule);
    };
    if (const auto* line = items[rank].get<std::string>()) {  // "left right"
      const size_t space = line->find(' ');
      if (space == std::string::npos || line->find(' ', space + 1) != std::string::npos) {
        complain("two symbols with one space between them");
      }
      left.assign(*line, 0, space);
      right.assign(*line, space + 1);
    } else {  // ["left", "right"]
      const auto* pair = items[rank].get<Json::Array>();
      const bool two = pair != nullptr && pair->size() == 2;
      const auto* first = two ? (*pair)[0].get<std::string>() : nullptr;
      const auto* second = two ? (*pair)[1].get<std::string>() : nullptr;
      if (first == nullptr || second == nullptr) complain("a pair of symbols");
      left = *first;
      right = *second;
    }
    const auto token = [&](const std::string& name) {
      const auto place = vocabulary_.find(name);
      if (place == vocabulary_.end()) {
        complain(concat("two symbols that model.vocab holds, joined too; ", quote(name),
                        " is not in it"));
      }
      return place->second;
    };
    const int32_t from = token(left), with = token(right);
    merges_.insert(from, with, {static_cast<int32_t>(rank), token(left += right)});
  }
}

void PipelineTokenizer::read_added_tokens(const JsonField& list) {
  for (const JsonField& item : list.items()) {
    AddedToken token;
    token.content = item["content"].text();
    if (token.content.empty()) item["content"].expected("a string that is not empty");
    token.id = static_cast<int32_t>(item["id"].integer(0, kMaxToken));
    token.special = item["special"].boolean_or(false);
    token.single_word = item["single_word"].boolean_or(false);
    token.lstrip = item["lstrip"].boolean_or(false);
    token.rstrip = item["rstrip"].boolean_or(false);
    token.normalized = item["normalized"].boolean_or(!token.special);

    const auto known = vocabulary_.find(token.content);
    if (known != vocabulary_.end() && known->second != token.id) {
      item["id"].malformed(" is ", token.id, "; model.vocab gives ", quote(token.content),
                           " the number ", known->second);
    }
    const auto index = static_cast<size_t>(token.id);
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    Piece& piece = pieces_[index];
    if (known == vocabulary_.end() && piece.used) {
      item["id"].malformed(" is ", token.id, ", which another token has too");
    }
    piece = {token.content, token.special, true, true};
    vocabulary_.emplace(token.content, token.id);
    if (token.normalized) token.content = normalizer_(token.content);
    (token.normalized ? normalized_tokens_ : raw_tokens_).add(token);
  }
}

void PipelineTokenizer::read_pre_tokenizer(const JsonField& field) {
  if (byte_level_) {
    field.unsupported(" has a step behind ByteLevel; ByteLevel must be the last");
  }
  const std::string type = type_of(field);
  if (type == "Sequence") {
    for (const JsonField& item : field["pretokenizers"].items()) read_pre_tokenizer(item);
  } else if (type == "Metaspace" && text_pieces_) {
    read_metaspace(field);
  } else if (type == "ByteLevel" && !text_pieces_) {
    read_byte_level(field);
  } else if (type == "Split") {
    read_split(field);
  } else if (type == "Digits") {
    const bool each = field["individual_digits"].boolean_or(false);
    const char* regex = each ? R"(\p{N})" : R"(\p{N}+)";
    const std::string where = file_ + ": the digits of pre_tokenizer";
    steps_.push_back({.split = {make_pcre_pattern(regex, where)}});
  } else if (type == "WhitespaceSplit") {
    const std::string where = file_ + ": the white space of pre_tokenizer";
    steps_.push_back({.split = {make_pcre_pattern(R"(\s+)", where), SplitStep::Behavior::removed}});
  } else {
    unknown_component(field, "pre-tokenizers",
                      text_pieces_
                          ? "of text Metaspace, Split, Digits, WhitespaceSplit and Sequence"
                          : "of bytes ByteLevel, Split, Digits, WhitespaceSplit and "
                            "Sequence");
  }
}

void PipelineTokenizer::read_metaspace(const JsonField& field) {
  using Prefix = PreTokenizeStep::Prefix;
  PreTokenizeStep step;
  const JsonField sign = field["replacement"];
  step.space_sign = sign.present() ? replacement_text(sign) : kSpaceSign;
  if (step.space_sign.empty() || step.space_sign == " ") sign.expected("a sign for the space");
  // Files of old have add_prefix_space alone.
  const bool prefix = field["add_prefix_space"].boolean_or(true);
  const std::string scheme = field["prepend_scheme"].text_or(prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    field["prepend_scheme"].expected("\"always\", \"first\" or \"never\"");
  }
  step.prefix = scheme == "always"  ? Prefix::always
                : scheme == "first" ? Prefix::first
                                    : Prefix::never;
  if (field["split"].boolean_or(true)) {
    // A cut before every space sign.
    step.split = {make_literal_pattern(step.space_sign), SplitStep::Behavior::merged_with_next};
  }
  steps_.push_back(std::move(step));
}

void PipelineTokenizer::read_byte_level(const JsonField& field) {
  byte_level_ = true;
  add_prefix_space_ = field["add_prefix_space"].boolean_or(true);
  if (add_prefix_space_ && !steps_.empty()) {
    field["add_prefix_space"].unsupported(
        " is true behind another step; it is implemented where ByteLevel stands alone");
  }
  if (field["use_regex"].boolean_or(true)) {
    steps_.push_back({.split = {make_pattern(kGpt2Regex, file_ + ": the pattern of ByteLevel")}});
  }
}

void PipelineTokenizer::read_split(const JsonField& field) {
  SplitStep step;
  const JsonField pattern = field["pattern"];
  if (pattern["Regex"].present()) {
    step.pattern =
        make_pattern(pattern["Regex"].text(), concat(file_, ": ", pattern["Regex"].path()));
  } else if (pattern["String"].present()) {
    step.pattern = make_literal_pattern(pattern["String"].text());
  } else {
    pattern.expected("{\"Regex\": ...} or {\"String\": ...}");
  }
  using Behavior = SplitStep::Behavior;
  const JsonField behavior = field["behavior"];
  const std::string name = behavior.text();
  if (name == "Isolated") {
    step.behavior = Behavior::isolated;
  } else if (name == "Removed") {
    step.behavior = Behavior::removed;
  } else if (name == "MergedWithPrevious") {
    step.behavior = Behavior::merged_with_previous;
  } else if (name == "MergedWithNext") {
    step.behavior = Behavior::merged_with_next;
  } else {
    behavior.unsupported(" is ", quote(name),
                         "; Isolated, Removed, MergedWithPrevious and "
                         "MergedWithNext are implemented");
  }
  step.invert = field["invert"].boolean_or(false);
  steps_.push_back({.split = std::move(step)});
}

void PipelineTokenizer::read_post_processor(const JsonField& field) {
  const std::string type = type_of(field);
  if (type == "Sequence") {
    for (const JsonField& item : field["processors"].items()) read_post_processor(item);
    return;
  }
  if (type == "ByteLevel") return;  // changes offsets only
  if (type != "TemplateProcessing") {
    unknown_component(field, "post-processors", "ByteLevel, TemplateProcessing and Sequence");
  }
  std::vector<int32_t> before, behind;
  bool seen = false;
  for (const JsonField& item : field["single"].items()) {
    if (item["Sequence"].present()) {
      const JsonField id = item["Sequence"]["id"];
      if (seen || id.text() != "A") id.expected("\"A\", once, in the template of a single text");
      seen = true;
      continue;
    }
    const JsonField name = item["SpecialToken"]["id"];
    const JsonField ids = field["special_tokens"][name.text()]["ids"];
    if (!ids.is_array()) ids.expected("an array of tokens");
    for (const JsonField& id : ids.items()) {
      const auto token = static_cast<int32_t>(id.integer(0, size() - 1));
      (seen ? behind : before).push_back(token);
    }
  }
  if (!seen) field["single"].malformed(" has no Sequence \"A\": the text would be lost");
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
}

void PipelineTokenizer::read_decoder(const JsonField& field) {
  const std::string type = type_of(field);
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (Piece& piece : pieces_) {
      if (piece.added || piece.bytes.find(from) == std::string::npos) continue;
      replace_all(piece.bytes, from, to);
      if (piece.bytes.size() > kLongestPiece) {
        field.malformed(" makes a piece longer than ", kLongestPiece, " bytes");
      }
    }
  };
  if (type == "Sequence") {
    for (const JsonField& item : field["decoders"].items()) read_decoder(item);
  } else if (type == "Replace" && text_pieces_) {
    replace(replaced_text(field["pattern"]["String"]), replacement_text(field["content"]));
  } else if (type == "Metaspace" && text_pieces_) {
    const JsonField sign = field["replacement"];
    replace(sign.present() ? replaced_text(sign) : kSpaceSign, " ");
    const bool prefix = field["add_prefix_space"].boolean_or(true);
    const bool never = field["prepend_scheme"].text_or(prefix ? "always" : "never") == "never";
    strip_start_ = never ? Strip::none : Strip::piece;
  } else if (type == "Strip" && text_pieces_) {
    const bool known = field["content"].text() == " " && field["stop"].integer_or(0, 0, 1) == 0;
    if (!known) field.unsupported(" strips something else than one space at the start");
    strip_start_ = field["start"].integer_or(0, 0, 1) == 1 ? Strip::one : Strip::none;
  } else if ((type == "ByteFallback" || type == "Fuse") && text_pieces_) {
    // Pieces are joined as bytes anyway.
  } else if (type != "ByteLevel" || text_pieces_) {
    unknown_component(field, "decoders",
                      text_pieces_ ? "Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence"
                                   : "ByteLevel and Sequence");
  }
}

}  // namespace halftone
