// Patterns that no scanner knows, by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "engine/json.h"
#include "engine/splitter.h"
#include "engine/unicode.h"

namespace halftone {

namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// A pattern from a file must not hang: backtracking steps of one match, far more than any pattern
// in use needs, and the memory of its stack.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr size_t kLongestPattern = 64 * 1024;

std::string pcre_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

class PcrePattern : public Pattern {
 public:
  PcrePattern(const std::string& regex, const std::string& where) : regex_(regex), where_(where) {
    if (regex.size() > kLongestPattern) {
      fail(ErrorCode::malformed_file, where, " has ", regex.size(), " bytes; at most ",
           kLongestPattern, " are allowed");
    }
    int error = 0;
    PCRE2_SIZE offset = 0;
    // Text that is not UTF-8 matches nothing and is cut out as a piece of its own.
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(), options,
                              &error, &offset, nullptr));
    if (!code_) {
      fail(ErrorCode::malformed_file, where, " is ", quote(regex), ": ", pcre_message(error),
           " at byte ", offset);
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // slower without, never wrong
    limits_.reset(pcre2_match_context_create(nullptr));
    if (!limits_) fail(ErrorCode::out_of_memory, where, ": no memory for the pattern");
    pcre2_set_match_limit(limits_.get(), kMatchLimit);
    pcre2_set_heap_limit(limits_.get(), kHeapLimitKiB);
  }

  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> result;
    const Owned<pcre2_match_data> data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (!data) fail(ErrorCode::out_of_memory, where_, ": no memory for a match");
    size_t at = 0, reached = 0;
    while (at < text.size()) {
      const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), at, 0, data.get(), limits_.get());
      if (count == PCRE2_ERROR_NOMATCH) break;
      if (count < 0) {
        fail(ErrorCode::malformed_file, where_, " is ", quote(regex_),
             ": matching it was given up (", pcre_message(count), ")");
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      const size_t begin = ends[0], end = ends[1];
      if (begin >= reached && end > begin) {
        result.push_back({begin, end});
        at = reached = end;
      } else {  // empty: the next character
        const size_t from = std::max(at, std::min(end, text.size()));
        if (from >= text.size()) break;
        at = from + static_cast<size_t>(decode_utf8(text, from).length);
      }
    }
    return result;
  }

 private:
  std::string regex_, where_;
  Owned<pcre2_code> code_;
  Owned<pcre2_match_context> limits_;
};

}  // namespace

std::unique_ptr<Pattern> make_pcre_pattern(const std::string& regex, const std::string& where) {
  return std::make_unique<PcrePattern>(regex, where);
}

}  // namespace halftone
