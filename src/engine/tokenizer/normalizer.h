// The normaliser of tokenizer.json: what is done to a text before it is cut into words.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/tokenizer/charsmap.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/unicode.h"

namespace halftone {

void replace_all(std::string& text, const std::string& from, const std::string& to);

// What a Replace takes out (not empty) and puts in (bounded, since steps that each make the text
// longer multiply).
std::string replaced_text(const JsonField& field);
std::string replacement_text(const JsonField& field);
[[noreturn]] void unknown_component(const JsonField& field, const char* what, const char* known);

class Normalizer {
 public:
  // Adds the steps of a component; one that is not implemented is Error::unsupported by its name.
  void read(const JsonField& field);
  bool empty() const { return steps_.empty(); }
  // Bytes that are no UTF-8 stay as they are.
  std::string operator()(std::string_view text) const;

 private:
  struct Step {
    enum class Kind : uint8_t {
      form,           // one of Unicode's normal forms
      prepend,        // `to` before a text that is not empty
      replace,        // `from` by `to`
      pattern,        // what matches by `to`
      charsmap,       // SentencePiece's map of character sequences
      nmt,            // control characters away, kinds of white space to spaces
      lowercase,      // character by character
      strip_accents,  // combining marks away
      strip,          // white space at the ends away
    } kind = Kind::form;
    NormalForm form = NormalForm::nfc;
    std::string from, to;
    bool left = false, right = false;
    std::shared_ptr<const Pattern> pattern;
    std::shared_ptr<const CharsMap> charsmap;
  };
  void read_replace(const JsonField& field);
  void read_charsmap(const JsonField& field);
  static std::string apply(const Step& step, std::string_view text);

  std::vector<Step> steps_;
  std::string file_;
};

}  // namespace halftone
