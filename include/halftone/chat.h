// Conversations: the chat template of a model, which turns messages into the text that it reads.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halftone/engine.h"

namespace halftone {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatTemplateOptions {
  bool add_generation_prompt = true;  // end where the assistant begins to speak
  std::string tools;                  // JSON array of functions; empty: none
  std::string variables;  // JSON object of further variables, {"enable_thinking": false}
  // What `strftime_now` tells, in seconds of Unix time, as UTC; without it the local time.
  std::optional<int64_t> clock;
};

// A Jinja template as Transformers runs it. The part of Jinja that chat templates use is
// implemented; anything else is an Error (unsupported) that names the line and the feature, and
// limits on steps, nesting and bytes stop a hostile template.
class ChatTemplate {
 public:
  // The template beside a model: chat_template.jinja, else chat_template of tokenizer_config.json
  // (a text, or a list of named ones: `name`). A model without one is an Error (io).
  static ChatTemplate load(const std::string& directory, const std::string& name = "default");
  // `where` names the template in errors. Special tokens are variables of the template.
  explicit ChatTemplate(std::string_view source, const std::string& where = "chat template",
                        const std::string& bos = "", const std::string& eos = "");
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  std::string apply(std::span<const ChatMessage> messages, const ChatTemplateOptions& = {}) const;
  // Messages with more members than role and content (tool_calls, parts): a JSON array.
  std::string apply_json(std::string_view messages, const ChatTemplateOptions& = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A conversation in a session: each turn renders all messages anew, and what the cache holds of
// them already is not computed again. The session is its own until it ends.
class Chat {
 public:
  Chat(Session& session, ChatTemplate chat_template, ChatTemplateOptions options = {});
  // Behind the last message: "system" at the beginning, or answers that another gave.
  void add(ChatMessage message) { messages_.push_back(std::move(message)); }
  // The answer to `text`. An Error (a conversation too long for the session) leaves the messages as
  // they were.
  GenerateResult say(std::string_view text, const GenerateOptions& = {},
                     const std::function<void(std::string_view)>& on_text = {});
  // Forgets the conversation, but not the system message it began with.
  void reset();

  const std::vector<ChatMessage>& messages() const { return messages_; }
  int64_t reused_tokens() const { return reused_; }  // of the last turn, from the cache

 private:
  std::vector<int32_t> tokens_of(const std::string& text) const;

  Session& session_;
  ChatTemplate template_;
  ChatTemplateOptions options_;
  std::vector<ChatMessage> messages_;
  size_t before_ = 0, behind_ = 0;  // tokens that the tokenizer puts around any text
  int64_t reused_ = 0;
};

}  // namespace halftone
