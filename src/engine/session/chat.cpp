#include <algorithm>

#include "base/message.h"
#include "halftone/chat.h"

namespace halftone {

Chat::Chat(Session& session, ChatTemplate chat_template, ChatTemplateOptions options)
    : session_(session), template_(std::move(chat_template)), options_(std::move(options)) {
  // A template writes the special tokens itself; those that the tokenizer adds would be double.
  const Tokenizer& tokenizer = session.model().tokenizer();
  const std::vector<int32_t> plain = tokenizer.encode("a", false), all = tokenizer.encode("a");
  const auto place = std::search(all.begin(), all.end(), plain.begin(), plain.end());
  if (place != all.end()) {
    before_ = static_cast<size_t>(place - all.begin());
    behind_ = all.size() - plain.size() - before_;
  }
}

std::vector<int32_t> Chat::tokens_of(const std::string& text) const {
  std::vector<int32_t> tokens = session_.model().tokenizer().encode(text);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(before_));
  tokens.resize(tokens.size() - behind_);
  // A model that begins every sequence with a token also does so where its template has none.
  const int32_t bos = session_.model().config().bos;
  if (before_ > 0 && bos >= 0 && (tokens.empty() || tokens.front() != bos)) {
    tokens.insert(tokens.begin(), bos);
  }
  return tokens;
}

GenerateResult Chat::say(std::string_view text, const GenerateOptions& options,
                         const std::function<void(std::string_view)>& on_text) {
  messages_.push_back({"user", std::string(text)});
  try {
    const std::vector<int32_t> tokens = tokens_of(template_.apply(messages_, options_));
    require(!tokens.empty(), "the chat template makes no tokens of the conversation");
    const auto count = static_cast<int64_t>(tokens.size());
    require(count < session_.max_length(), "the conversation has ", count,
            " tokens; the session's max_length is ", session_.max_length(),
            "; begin anew or make a longer session");
    // The last token is computed in any case: its logits choose the first one of the answer.
    const auto held = session_.tokens();
    const auto differs =
        std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end() - 1).first;
    reused_ = differs - held.begin();
    session_.truncate(reused_);
    GenerateResult result = generate(
        session_, std::span(tokens).subspan(static_cast<size_t>(reused_)), options, on_text);
    messages_.push_back({"assistant", result.text});
    return result;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

void Chat::reset() {
  const bool system = !messages_.empty() && messages_.front().role == "system";
  messages_.resize(system ? 1 : 0);
  session_.truncate(0);
  reused_ = 0;
}

}  // namespace halftone
