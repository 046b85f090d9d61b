// Encoding and decoding with a SentencePiece model.
#include "engine/tokenizer/sentencepiece.h"

#include <algorithm>
#include <cfloat>
#include <queue>
#include <utility>

#include "base/message.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/unigram.h"

namespace halftone {

namespace {

constexpr std::string_view kSpaceSign = "\u2581";
constexpr std::string_view kReplacement = "\ufffd";

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, const SentencePieceOptions& options);

  std::vector<int32_t> encode(std::string_view text, bool special) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override;
  std::string piece(int32_t token, int32_t previous) const override;
  int64_t size() const override { return static_cast<int64_t>(model_.pieces.size()); }

 private:
  using Type = SentencePieceModel::Type;
  using Ids = std::vector<int32_t>;

  // What the beginning of `text` is normalised to, and how much of it that takes.
  size_t normalize_front(std::string_view text, std::string_view& becomes) const;
  std::string normalized(std::string_view text) const;
  std::vector<Segment> unigram(std::string_view text) const;
  std::vector<Segment> bpe(std::string_view text) const;
  void split_unused(std::string_view text, const Segment& part,
                    const std::unordered_map<std::string_view, size_t>& cuts,
                    std::vector<Segment>& out) const;
  void encode_stretch(std::string_view text, Ids& out) const;
  int32_t find(std::string_view text) const {
    const auto place = pieces_.find(text);
    return place == pieces_.end() ? -1 : place->second;
  }
  const SentencePieceModel::Piece& at(int32_t token) const;
  bool strips_first_space() const { return model_.add_dummy_prefix || model_.remove_extra_spaces; }
  // A piece as text, without what stands for the beginning of a text.
  std::string surface(const SentencePieceModel::Piece& piece, bool strip) const;

  SentencePieceModel model_;
  Ids before_, behind_;
  std::unordered_map<std::string_view, int32_t> pieces_;  // normal, user-defined and unused
  PieceTrie trie_, user_defined_;                         // of pieces_; of the user-defined
  bool has_user_defined_ = false;
  AddedTokenMatcher matched_;
  float lowest_score_ = FLT_MAX, highest_score_ = FLT_MIN;
  int32_t byte_token_[256];
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model,
                                               const SentencePieceOptions& options)
    : model_(std::move(model)) {
  for (const AddedToken& token : options.added) {
    const auto index = static_cast<size_t>(token.id);
    if (index < model_.pieces.size()) continue;  // the model has it already
    while (model_.pieces.size() <= index) model_.pieces.emplace_back().type = Type::unused;
    model_.pieces[index].text = token.content;
    model_.pieces[index].type = token.special ? Type::control : Type::added;
  }
  if (options.add_bos && model_.bos >= 0) before_.push_back(model_.bos);
  if (options.add_eos && model_.eos >= 0) behind_.push_back(model_.eos);
  std::fill(std::begin(byte_token_), std::end(byte_token_), model_.unknown);
  pieces_.reserve(model_.pieces.size());
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model_.pieces[i];
    const auto id = static_cast<int32_t>(i);
    switch (piece.type) {
      case Type::normal:
        lowest_score_ = std::min(lowest_score_, piece.score);
        highest_score_ = std::max(highest_score_, piece.score);
        break;
      case Type::control:
      case Type::added:
        matched_.add({id, piece.text, piece.type == Type::control});
        continue;
      case Type::unknown:
        continue;
      case Type::byte:
        byte_token_[byte_of_piece(piece.text)] = id;
        continue;
      case Type::user_defined:
        user_defined_.add(piece.text, id);
        has_user_defined_ = true;
        break;
      case Type::unused:
        if (piece.text.empty()) continue;  // a hole before an added token
        break;
    }
    pieces_.emplace(piece.text, id);
    if (model_.kind == SentencePieceModel::Kind::unigram) trie_.add(piece.text, id);
  }
}

size_t SentencePieceTokenizer::normalize_front(std::string_view text,
                                               std::string_view& becomes) const {
  if (has_user_defined_) {  // stays as it is
    if (const size_t length = user_defined_.longest(text); length > 0) {
      becomes = text.substr(0, length);
      return length;
    }
  }
  if (const size_t length = model_.normalizer.longest(text, becomes); length > 0) return length;
  const Utf8Step step = decode_utf8(text, 0);
  if (step.codepoint < 0) {
    becomes = kReplacement;
    return 1;
  }
  becomes = text.substr(0, static_cast<size_t>(step.length));
  return becomes.size();
}

std::string SentencePieceTokenizer::normalized(std::string_view text) const {
  const std::string_view space = model_.escape_spaces ? kSpaceSign : " ";
  std::string_view part;
  if (model_.remove_extra_spaces) {
    while (!text.empty()) {
      const size_t length = normalize_front(text, part);
      if (part != " ") break;
      text.remove_prefix(length);
    }
  }
  std::string result;
  if (text.empty()) return result;
  if (model_.add_dummy_prefix && !model_.space_as_suffix) result += space;
  bool behind_space = model_.remove_extra_spaces;
  while (!text.empty()) {
    text.remove_prefix(normalize_front(text, part));
    while (behind_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) {
      if (c == ' ') {
        result += space;
      } else {
        result += c;
      }
    }
    if (!part.empty()) behind_space = part.ends_with(' ');
    if (!model_.remove_extra_spaces) behind_space = false;
  }
  if (model_.remove_extra_spaces) {
    while (result.ends_with(space)) result.erase(result.size() - space.size());
  }
  if (model_.add_dummy_prefix && model_.space_as_suffix) result += space;
  return result;
}

std::vector<Segment> SentencePieceTokenizer::unigram(std::string_view text) const {
  const auto score = [&](int32_t id, size_t length) -> std::optional<double> {
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == Type::unused) return std::nullopt;
    if (piece.type != Type::user_defined) return piece.score;
    // Always wins: the longer, the more.
    return static_cast<double>(static_cast<float>(length) * highest_score_) - 0.1;
  };
  return likeliest_segments<float>(text, trie_, score, model_.unknown,
                                   lowest_score_ - kUnknownPenalty);
}

// Joins the neighbours whose union is the piece of highest score, the leftmost of equals.
std::vector<Segment> SentencePieceTokenizer::bpe(std::string_view text) const {
  constexpr size_t kNone = SIZE_MAX;
  struct Symbol {
    size_t begin, length, previous, next;
    bool frozen;  // user-defined: never joined
  };
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t fixed = has_user_defined_ ? user_defined_.longest(rest) : 0;
    const size_t length = fixed > 0 ? fixed : character_length(rest);
    const size_t index = symbols.size();
    symbols.push_back({at, length, index == 0 ? kNone : index - 1, index + 1, fixed > 0});
    at += length;
  }
  if (symbols.empty()) return {};
  symbols.back().next = kNone;

  struct Candidate {
    float score;
    size_t left, right, length;
    bool operator<(const Candidate& other) const {  // the queue's top is its largest
      return score < other.score || (score == other.score && left > other.left);
    }
  };
  std::priority_queue<Candidate> queue;
  std::unordered_map<std::string_view, size_t> cuts;  // where unused pieces were joined
  const auto consider = [&](size_t left, size_t right) {
    if (left == kNone || right == kNone || symbols[left].frozen || symbols[right].frozen) return;
    const size_t length = symbols[left].length + symbols[right].length;
    const std::string_view joined = text.substr(symbols[left].begin, length);
    const int32_t id = find(joined);
    if (id < 0) return;
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    queue.push({piece.score, left, right, length});
    if (piece.type == Type::unused) cuts[joined] = symbols[left].length;
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol &left = symbols[c.left], &right = symbols[c.right];
    // Either side has been joined with another since.
    if (left.length == 0 || right.length == 0 || left.length + right.length != c.length) continue;
    left.length = c.length;
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].previous = c.left;
    right.length = 0;
    consider(left.previous, c.left);
    consider(c.left, left.next);
  }
  std::vector<Segment> parts;
  for (size_t i = 0; i != kNone; i = symbols[i].next) {
    const std::string_view piece = text.substr(symbols[i].begin, symbols[i].length);
    split_unused(text, {symbols[i].begin, symbols[i].length, find(piece)}, cuts, parts);
  }
  for (Segment& part : parts) {
    if (part.id < 0) part.id = model_.unknown;
  }
  return parts;
}

// Unused pieces help to join others but are no tokens: they fall apart again.
void SentencePieceTokenizer::split_unused(std::string_view text, const Segment& part,
                                          const std::unordered_map<std::string_view, size_t>& cuts,
                                          std::vector<Segment>& out) const {
  // A stack, not recursion: damaged files could nest as deep as a text is long.
  std::vector<Segment> stack = {part};
  while (!stack.empty()) {
    const Segment p = stack.back();
    stack.pop_back();
    const std::string_view piece = text.substr(p.begin, p.length);
    const bool unused = p.id >= 0 && model_.pieces[static_cast<size_t>(p.id)].type == Type::unused;
    const auto cut = unused ? cuts.find(piece) : cuts.end();
    if (cut == cuts.end()) {
      out.push_back(p);
      continue;
    }
    const size_t n = cut->second;
    stack.push_back({p.begin + n, p.length - n, find(piece.substr(n))});
    stack.push_back({p.begin, n, find(piece.substr(0, n))});
  }
}

void SentencePieceTokenizer::encode_stretch(std::string_view stretch, Ids& out) const {
  const std::string text = normalized(stretch);
  const std::vector<Segment> parts =
      model_.kind == SentencePieceModel::Kind::unigram ? unigram(text) : bpe(text);
  bool unknown_before = false;
  for (const Segment& part : parts) {
    const bool unknown = part.id == model_.unknown;
    if (unknown && model_.byte_fallback) {
      for (const char c : std::string_view(text).substr(part.begin, part.length)) {
        out.push_back(byte_token_[static_cast<unsigned char>(c)]);
      }
    } else if (!unknown || !unknown_before) {  // a run of unknown characters is one token
      out.push_back(part.id);
    }
    unknown_before = unknown;
  }
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text, bool special) const {
  Ids out;
  if (special) out = before_;
  std::vector<AddedTokenMatcher::Part> parts;
  matched_.split(text, special, parts);
  for (const AddedTokenMatcher::Part& part : parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
    } else {
      encode_stretch(part.text, out);
    }
  }
  if (special) out.insert(out.end(), behind_.begin(), behind_.end());
  return out;
}

const SentencePieceModel::Piece& SentencePieceTokenizer::at(int32_t token) const {
  require(token >= 0 && token < size(), "token ", token, " is outside the vocabulary of ", size());
  return model_.pieces[static_cast<size_t>(token)];
}

std::string SentencePieceTokenizer::surface(const SentencePieceModel::Piece& piece,
                                            bool strip) const {
  std::string_view text = piece.text;
  if (strip && strips_first_space() && text.starts_with(kSpaceSign)) {
    text.remove_prefix(kSpaceSign.size());
  }
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const bool space = text.substr(i).starts_with(kSpaceSign);
    result += space ? ' ' : text[i];
    i += space ? kSpaceSign.size() : 1;
  }
  return result;
}

std::string SentencePieceTokenizer::piece(int32_t token, int32_t previous) const {
  const SentencePieceModel::Piece& piece = at(token);
  switch (piece.type) {
    case Type::control:
      return "";
    case Type::unknown:
      return model_.unknown_text;
    case Type::added:
      return piece.text;
    case Type::byte:
      return std::string(1, static_cast<char>(byte_of_piece(piece.text)));
    default:
      return surface(piece, previous >= 0 && at(previous).type == Type::control);
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens,
                                           bool skip_special) const {
  std::string text, bytes;
  // Bytes are characters only together; each byte that belongs to none is replaced alone.
  const auto flush_bytes = [&] {
    for (size_t i = 0; i < bytes.size();) {
      const Utf8Step step = decode_utf8(bytes, i);
      const auto length = step.codepoint < 0 ? size_t{1} : static_cast<size_t>(step.length);
      text += step.codepoint < 0 ? kReplacement : std::string_view(bytes).substr(i, length);
      i += length;
    }
    bytes.clear();
  };
  bool first = true, stripped = false;
  for (const int32_t token : tokens) {
    const SentencePieceModel::Piece& piece = at(token);
    if (piece.type == Type::byte) {
      bytes += static_cast<char>(byte_of_piece(piece.text));
      continue;
    }
    flush_bytes();
    if (stripped || !text.empty()) first = false;
    stripped = false;
    if (piece.type == Type::control) {
      if (!skip_special) text += piece.text;
    } else if (piece.type == Type::added) {
      text += piece.text;
    } else if (piece.type == Type::unknown) {
      text += model_.unknown_text;
    } else {
      const bool dummy = first && strips_first_space() && piece.text.starts_with(kSpaceSign);
      text += surface(piece, first);
      // Where extra spaces were removed, all at the beginning go.
      stripped = dummy && !model_.remove_extra_spaces;
    }
  }
  flush_bytes();
  if (model_.denormalizer.empty()) return valid_utf8(text);
  std::string result;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view becomes;
    size_t length = model_.denormalizer.longest(rest, becomes);
    if (length == 0) {
      length = 1;
      becomes = rest.substr(0, 1);
    }
    result += becomes;
    rest.remove_prefix(length);
  }
  return valid_utf8(result);
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view bytes, const std::string& file,
                                              const SentencePieceOptions& options) {
  return std::make_unique<SentencePieceTokenizer>(SentencePieceModel::parse(bytes, file), options);
}

}  // namespace halftone
