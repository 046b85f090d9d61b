// Splits the source of a template into text and the tokens of its tags.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halftone::jinja {

struct Token {
  enum class Kind : uint8_t {
    text,         // outside tags
    block_begin,  // {%
    block_end,
    print_begin,  // {{
    print_end,
    name,
    string,  // decoded
    integer,
    real,
    sign,  // operators and brackets
    end,   // of the template
  };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

// With trim_blocks and lstrip_blocks, as Transformers sets them: the newline behind a block or
// comment goes, and so does the white space before one that begins its line. `where` names the
// template in errors.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

}  // namespace halftone::jinja
