// Pre-tokenisation: cutting text into the words that byte-pair merging works on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halftone {

// Finds matches of one pattern. Immutable; used from several threads at once.
class Pattern {
 public:
  virtual ~Pattern() = default;
  // The matches in `text`, in order, disjoint and not empty, as [begin, end).
  struct Match {
    size_t begin, end;
  };
  virtual std::vector<Match> matches(std::string_view text) const = 0;
};

// A regular expression of a tokenizer: the well-known ones (GPT-2, Llama 3, Qwen) by a scanner that
// takes time linear in the text, others by PCRE2 with limits on its backtracking (which counts the
// obsolete U+180E as white space, as Unicode did before 6.3). `where` names the file and field in
// errors.
std::unique_ptr<Pattern> make_pattern(const std::string& regex, const std::string& where);
// The same, always by PCRE2: for tests of the scanners.
std::unique_ptr<Pattern> make_pcre_pattern(const std::string& regex, const std::string& where);
std::unique_ptr<Pattern> make_literal_pattern(const std::string& literal);

extern const char* const kGpt2Regex;
extern const char* const kLlama3Regex;
extern const char* const kQwenRegex;

// A step of the pre-tokenizer: cuts every piece further.
struct SplitStep {
  enum class Behavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next };
  std::shared_ptr<const Pattern> pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // what does not match is the delimiter
};
std::vector<std::string_view> split(const std::vector<std::string_view>& pieces, const SplitStep&);

}  // namespace halftone
