// Patterns that no scanner knows, by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "engine/json.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/unicode.h"

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

// A pattern from a file must not hang. A match may backtrack kSteps times, which is far more than
// known patterns need; those that need more, in strange texts, share a budget.
constexpr uint32_t kSteps = 10'000;
constexpr uint64_t kBudget = 100'000'000;
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
    // Anchored: the search goes from character to character here, so that the limit is one of the
    // whole and not of each place at which a match may begin.
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(), options,
                              &error, &offset, nullptr));
    if (!code_) {
      fail(ErrorCode::malformed_file, where, " is ", quote(regex), ": ", pcre_message(error),
           " at byte ", offset);
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // slower without, never wrong
  }

  // Bytes that are not UTF-8 match nothing; the text between them is matched.
  std::vector<Match> matches(std::string_view text) const override {
    Search search{
        Owned<pcre2_match_data>(pcre2_match_data_create_from_pattern(code_.get(), nullptr)),
        Owned<pcre2_match_context>(pcre2_match_context_create(nullptr)), kBudget};
    if (!search.data || !search.limits) {
      fail(ErrorCode::out_of_memory, where_, ": no memory for a match");
    }
    pcre2_set_heap_limit(search.limits.get(), kHeapLimitKiB);
    pcre2_set_match_limit(search.limits.get(), kSteps);
    std::vector<Match> result;
    size_t begin = 0;  // of the valid stretch that ends at `at`
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = decode_utf8(text, at);
      if (step.codepoint < 0) {
        match_valid(text.substr(begin, at - begin), begin, search, result);
        begin = at + static_cast<size_t>(step.length);
      }
      at += static_cast<size_t>(step.length);
    }
    match_valid(text.substr(begin), begin, search, result);
    return result;
  }

 private:
  struct Search {
    Owned<pcre2_match_data> data;
    Owned<pcre2_match_context> limits;
    uint64_t budget;
  };

  void match_valid(std::string_view text, size_t offset, Search& search,
                   std::vector<Match>& result) const {
    for (size_t at = 0; at < text.size();) {
      const size_t end = match_at(text, at, search);
      if (end > at) {
        result.push_back({offset + at, offset + end});
        at = end;
      } else {
        at += static_cast<size_t>(decode_utf8(text, at).length);
      }
    }
  }

  // The end of the match at `at`, or `at`.
  size_t match_at(std::string_view text, size_t at, Search& search) const {
    uint64_t steps = kSteps;
    for (uint32_t options = PCRE2_NO_UTF_CHECK;;) {
      if (steps > kSteps) pcre2_set_match_limit(search.limits.get(), static_cast<uint32_t>(steps));
      const int count =
          pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                      options, search.data.get(), search.limits.get());
      if (steps > kSteps) pcre2_set_match_limit(search.limits.get(), kSteps);
      if (count >= 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(search.data.get());
        // \K in a look-ahead can move the begin.
        return ends[0] == at && ends[1] <= text.size() ? ends[1] : at;
      }
      if (count == PCRE2_ERROR_NOMATCH) return at;
      if (count == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter's stack is on the heap
        options |= PCRE2_NO_JIT;
        continue;
      }
      if (count != PCRE2_ERROR_MATCHLIMIT || steps > search.budget) {
        fail(ErrorCode::malformed_file, where_, " is ", quote(regex_),
             ": matching it was given up (", pcre_message(count), ")");
      }
      search.budget -= steps;
      steps *= 10;
    }
  }

  std::string regex_, where_;
  Owned<pcre2_code> code_;
};

}  // namespace

std::unique_ptr<Pattern> make_pcre_pattern(const std::string& regex, const std::string& where) {
  return std::make_unique<PcrePattern>(regex, where);
}

}  // namespace halftone
