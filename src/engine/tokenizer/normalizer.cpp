#include "engine/tokenizer/normalizer.h"

#include <algorithm>
#include <optional>

#include "engine/tokenizer/base64.h"

namespace halftone {

namespace {

std::optional<NormalForm> normal_form(const std::string& type) {
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  return std::nullopt;
}

// Calls visit(codepoint, bytes) for each character; what is no UTF-8 has a negative codepoint.
template <class Visit>
void each_character(std::string_view text, const Visit& visit) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    visit(step.codepoint, text.substr(i, static_cast<size_t>(step.length)));
    i += static_cast<size_t>(step.length);
  }
}

bool is_white_space(int32_t codepoint) {
  const CharClass c = char_class(codepoint);
  return c == CharClass::space || c == CharClass::newline;
}

// The rules of neural machine translation that SentencePiece's "nmt" maps begin with.
std::string nmt(std::string_view text) {
  std::string result;
  each_character(text, [&](int32_t c, std::string_view bytes) {
    const bool removed = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) ||
                         c == 0x7f || c == 0x8f || c == 0x9f;
    const bool space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    if (!removed) result += space ? std::string_view(" ") : bytes;
  });
  return result;
}

// Whole clusters of a base and its marks are looked up where they are short, then characters, and
// of the sequences that the map knows at the beginning the shortest stands for all of it: so does
// the tokenizers library, after which models were converted, and not as SentencePiece itself.
std::string map_characters(std::string_view text, const CharsMap& map) {
  constexpr size_t kLongestCluster = 5;  // bytes
  std::string result;
  each_grapheme(text, [&](std::string_view cluster) {
    std::string_view becomes;
    if (cluster.size() <= kLongestCluster && map.shortest(cluster, becomes)) {
      result += becomes;
      return;
    }
    each_character(cluster, [&](int32_t, std::string_view bytes) {
      result += map.shortest(bytes, becomes) ? becomes : bytes;
    });
  });
  return result;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  size_t begin = text.size(), end = 0;  // of what is no white space
  each_character(text, [&](int32_t c, std::string_view bytes) {
    if (is_white_space(c)) return;
    const auto at = static_cast<size_t>(bytes.data() - text.data());
    begin = std::min(begin, at);
    end = at + bytes.size();
  });
  begin = left ? begin : 0;
  end = right ? end : text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string replace_matches(std::string_view text, const Pattern& pattern, const std::string& to) {
  std::string result;
  size_t at = 0;
  for (const Pattern::Match& match : pattern.matches(text)) {
    result.append(text, at, match.begin - at).append(to);
    at = match.end;
  }
  return result.append(text, at);
}

}  // namespace

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  size_t found = text.find(from);
  if (found == std::string::npos) return;
  std::string result;
  size_t at = 0;
  for (; found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  text = result.append(text, at);
}

std::string replaced_text(const JsonField& field) {
  if (field.text().empty()) field.expected("a string that is not empty");
  return field.text();
}

std::string replacement_text(const JsonField& field) {
  constexpr size_t kLongest = 16;
  if (field.text().size() > kLongest) {
    field.malformed(" has ", field.text().size(), " bytes; at most ", kLongest, " are allowed");
  }
  return field.text();
}

void unknown_component(const JsonField& field, const char* what, const char* known) {
  field["type"].unsupported(" is ", quote(field["type"].text()), "; of ", what, " ", known,
                            " are implemented");
}

void Normalizer::read(const JsonField& field) {
  using Kind = Step::Kind;
  if (!field.present()) return;
  file_ = field.file();
  const std::string type = field["type"].text();
  const auto add = [&](Kind kind) -> Step& {
    steps_.emplace_back().kind = kind;
    return steps_.back();
  };
  if (type == "Sequence") {
    for (const JsonField& item : field["normalizers"].items()) read(item);
  } else if (type == "Prepend") {
    add(Kind::prepend).to = replacement_text(field["prepend"]);
  } else if (type == "Replace") {
    read_replace(field);
  } else if (type == "Precompiled") {
    read_charsmap(field["precompiled_charsmap"]);
  } else if (type == "Strip") {
    Step& step = add(Kind::strip);
    step.left = field["strip_left"].boolean_or(true);
    step.right = field["strip_right"].boolean_or(true);
  } else if (type == "Nmt") {
    add(Kind::nmt);
  } else if (type == "Lowercase") {
    add(Kind::lowercase);
  } else if (type == "StripAccents") {
    add(Kind::strip_accents);
  } else if (const auto form = normal_form(type)) {
    add(Kind::form).form = *form;
  } else {
    unknown_component(field, "normalizers",
                      "NFC, NFD, NFKC, NFKD, Precompiled, Nmt, Lowercase, Strip, StripAccents, "
                      "Prepend, Replace and Sequence");
  }
}

void Normalizer::read_replace(const JsonField& field) {
  Step step;
  step.to = replacement_text(field["content"]);
  if (const JsonField regex = field["pattern"]["Regex"]; regex.present()) {
    step.kind = Step::Kind::pattern;
    step.pattern = make_pattern(regex.text(), concat(file_, ": ", regex.path()));
  } else {
    step.kind = Step::Kind::replace;
    step.from = replaced_text(field["pattern"]["String"]);
  }
  steps_.push_back(std::move(step));
}

void Normalizer::read_charsmap(const JsonField& field) {
  std::string blob;
  if (field.present() && !field.text().empty() && !decode_base64(field.text(), blob)) {
    field.expected("text in base64");
  }
  Step step;
  step.kind = Step::Kind::charsmap;
  step.charsmap = std::make_shared<CharsMap>(blob, concat(file_, ": ", field.path()));
  if (!step.charsmap->empty()) steps_.push_back(std::move(step));
}

std::string Normalizer::apply(const Step& step, std::string_view text) {
  std::string result;
  switch (step.kind) {
    case Step::Kind::form:
      return normalize(text, step.form);
    case Step::Kind::prepend:
      return text.empty() ? result : concat(step.to, text);
    case Step::Kind::replace:
      result = text;
      replace_all(result, step.from, step.to);
      return result;
    case Step::Kind::pattern:
      return replace_matches(text, *step.pattern, step.to);
    case Step::Kind::charsmap:
      return map_characters(text, *step.charsmap);
    case Step::Kind::nmt:
      return nmt(text);
    case Step::Kind::lowercase:
      return lowercase(text);
    case Step::Kind::strip_accents:
      each_character(text, [&](int32_t c, std::string_view bytes) {
        if (!is_mark(c)) result += bytes;
      });
      return result;
    case Step::Kind::strip:
      return std::string(strip(text, step.left, step.right));
  }
  return result;
}

std::string Normalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    result = apply(step, result);
    // A text grows a few times at most; steps that make it explode come from no real tokenizer.
    if (result.size() > 100 * text.size() + 100) {
      fail(ErrorCode::malformed_file, file_, ": the normalizer makes ", result.size(), " bytes of ",
           text.size());
    }
  }
  return result;
}

}  // namespace halftone
