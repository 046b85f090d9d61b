#include <algorithm>
#include <chrono>

#include "base/message.h"
#include "halftone/engine.h"

namespace halftone {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Prompt tokens between two looks at the stop token.
constexpr size_t kPromptChunk = 512;

// Passes text on but holds back whatever may turn out to be the beginning of a stop text.
class StopFilter {
 public:
  StopFilter(const std::vector<std::string>& stops,
             const std::function<void(std::string_view)>& on_text, std::string& text)
      : stops_(stops), on_text_(on_text), text_(text) {}

  // True when a stop text is complete: what stands before it has been passed on.
  bool push(std::string_view piece) {
    held_ += piece;
    size_t found = std::string::npos;
    for (const std::string& stop : stops_) found = std::min(found, held_.find(stop));
    if (found != std::string::npos) {
      pass(found);
      held_.clear();
      return true;
    }
    pass(held_.size() - longest_beginning());
    return false;
  }
  // At the end of generation nothing can follow: the beginning was none.
  void flush() { pass(held_.size()); }

 private:
  // Length of the longest end of the held text that begins a stop text.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) longest = n;
      }
    }
    return longest;
  }
  void pass(size_t count) {
    if (count == 0) return;
    // Stop texts may be any bytes, but what goes out is whole UTF-8: never cut inside a sequence.
    while (count < held_.size() && (static_cast<unsigned char>(held_[count]) & 0xc0) == 0x80) {
      --count;
      if (count == 0) return;
    }
    text_.append(held_, 0, count);
    if (on_text_) on_text_(std::string_view(held_).substr(0, count));
    held_.erase(0, count);
  }

  const std::vector<std::string>& stops_;
  const std::function<void(std::string_view)>& on_text_;
  std::string& text_;
  std::string held_;
};

void validate(const GenerateOptions& options) {
  require(options.max_new_tokens >= 0, "max_new_tokens is ", options.max_new_tokens,
          "; it must be 0 or more");
  for (const std::string& stop : options.stop) {
    require(!stop.empty(), "stop holds an empty text, which would end every generation at once");
  }
  validate(options.sampling);
}

std::vector<int32_t> encode_prompt(const Session& session, std::string_view prompt, bool special) {
  std::vector<int32_t> tokens = session.model().tokenizer().encode(prompt, special);
  const int32_t bos = session.model().config().bos;
  // A sequence begins once.
  if (session.length() > 0 && special && bos >= 0 && !tokens.empty() && tokens.front() == bos) {
    tokens.erase(tokens.begin());
  }
  if (tokens.empty() && session.length() == 0 && special && bos >= 0) tokens.push_back(bos);
  require(!tokens.empty(), "prompt has no tokens, and ",
          session.length() > 0 ? "the session has begun already" : "the model adds none itself",
          "; give at least one character");
  const auto count = static_cast<int64_t>(tokens.size());
  require(session.length() + count <= session.max_length(), "prompt has ", count,
          " tokens behind the ", session.length(), " of the session, whose max_length is ",
          session.max_length(), "; shorten it or make a longer session");
  return tokens;
}

}  // namespace

GenerateResult generate(Session& session, std::string_view prompt, const GenerateOptions& options,
                        const std::function<void(std::string_view)>& on_text) {
  validate(options);
  const std::vector<int32_t> tokens = encode_prompt(session, prompt, options.special);
  return generate(session, std::span<const int32_t>(tokens), options, on_text);
}

GenerateResult generate(Session& session, std::span<const int32_t> prompt_tokens,
                        const GenerateOptions& options,
                        const std::function<void(std::string_view)>& on_text) {
  using Finish = GenerateResult::Finish;
  validate(options);
  require(!prompt_tokens.empty(), "prompt has no tokens; give at least one");
  require(session.sequences() == 1, "generate writes one sequence; the session has ",
          session.sequences());
  const Tokenizer& tokenizer = session.model().tokenizer();
  const std::vector<int32_t>& eos = session.model().config().eos;

  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt_tokens.size());
  Clock::time_point start = Clock::now();
  std::span<const float> logits;
  for (size_t begin = 0; begin < prompt_tokens.size(); begin += kPromptChunk) {
    if (options.stop_token.stop_requested()) {
      result.prompt_seconds = seconds_since(start);
      result.finish = Finish::stopped;
      return result;
    }
    const size_t count = std::min(kPromptChunk, prompt_tokens.size() - begin);
    logits = session.forward(prompt_tokens.subspan(begin, count));
  }
  result.prompt_seconds = seconds_since(start);

  Sampler sampler(options.sampling);
  Utf8Stream utf8;
  StopFilter filter(options.stop, on_text, result.text);
  const int64_t limit = std::min(options.max_new_tokens, session.max_length() - session.length());
  int32_t previous = prompt_tokens.back();
  bool stopped = false;  // by a text, whose last token still belongs to the session
  // Takes the next token into the result, or says why generation ends before it.
  const auto take = [&](int32_t token) {
    if (stopped || static_cast<int64_t>(result.tokens.size()) == limit) return false;
    if (options.stop_token.stop_requested()) {
      result.finish = Finish::stopped;
      return false;
    }
    if (!options.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end()) {
      result.finish = Finish::eos;
      return false;
    }
    result.tokens.push_back(token);
    stopped = filter.push(utf8.push(tokenizer.piece(token, previous)));
    if (stopped) result.finish = Finish::stop_text;
    previous = token;
    return true;
  };
  start = Clock::now();
  if (limit > 0) {
    int32_t token = sampler.sample(logits, session.tokens());
    if (take(token)) {
      session.decode({&token, 1}, limit, {&sampler, 1},
                     [&](std::span<const int32_t> next) { return take(next[0]); });
    }
  }
  if (!stopped && !filter.push(utf8.flush())) filter.flush();
  result.generate_seconds = seconds_since(start);
  return result;
}

}  // namespace halftone
