// halftone chat: a conversation with a model, line by line.
#include "halftone/chat.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "command.h"
#include "console.h"
#include "interrupt.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct ChatArguments {
  ModelOptions model;
  SamplingArguments sampling;
  std::optional<int64_t> tokens, length;
  std::optional<std::string> system, chat_template, variables;
  std::vector<std::string> stop;
  bool json = false, quiet = false;
};

// For models without a template of their own.
constexpr const char* kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kPlain = "{% for m in messages %}{{ m.content }}\n{% endfor %}";

ChatTemplate choose_template(const ChatArguments& o) {
  if (!o.chat_template) {
    try {
      return ChatTemplate::load(o.model.model);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      wrong_input(std::string("chat: ") + error.what() +
                  "; give --template FILE, --template chatml or --template plain");
    }
  }
  if (*o.chat_template == "chatml") return ChatTemplate(kChatml, "chatml");
  if (*o.chat_template == "plain") return ChatTemplate(kPlain, "plain");
  return ChatTemplate(read_text("--template", *o.chat_template), *o.chat_template);
}

// Lines of standard input; waiting for one ends when the command is asked to stop.
class Lines {
 public:
  explicit Lines(std::stop_token stop) : stop_(std::move(stop)) {}

  // False at the end of the input or when asked to stop.
  bool next(std::string& line) {
    for (;;) {
      const size_t end = held_.find('\n');
      if (end != std::string::npos || (ended_ && !held_.empty())) {
        line = held_.substr(0, end);
        held_.erase(0, end == std::string::npos ? end : end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return true;
      }
      if (ended_ || stop_.stop_requested()) return false;
      pollfd input{STDIN_FILENO, POLLIN, 0};
      constexpr int kMilliseconds = 50;  // until the next look at the stop token
      if (poll(&input, 1, kMilliseconds) <= 0) continue;
      char buffer[4096];
      const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
      if (count <= 0) {
        ended_ = true;
      } else {
        held_.append(buffer, static_cast<size_t>(count));
      }
    }
  }

 private:
  std::stop_token stop_;
  std::string held_;
  bool ended_ = false;
};

class Conversation {
 public:
  Conversation(const ChatArguments& options, Session& session, Chat& chat,
               GenerateOptions generation)
      : o_(options), session_(session), chat_(chat), generation_(std::move(generation)) {
    interactive_ = isatty(STDIN_FILENO) != 0 && !o_.json;
  }

  int run() {
    Lines lines(generation_.stop_token);
    std::string line, text;
    event({{"event", "start"},
           {"model", o_.model.model},
           {"description", session_.model().describe()},
           {"max_length", session_.max_length()}});
    hint("/reset begins anew, /exit ends; a line that ends with \\ goes on in the next");
    for (prompt("> "); lines.next(line); prompt(text.empty() ? "> " : "  ")) {
      if (line.ends_with('\\')) {
        text += line.substr(0, line.size() - 1) + "\n";
        continue;
      }
      text += line;
      if (text == "/exit" || text == "/quit") break;
      if (!text.empty() && !command(text) && !turn(text)) break;
      text.clear();
    }
    const bool stopped = generation_.stop_token.stop_requested();
    event({{"event", "end"}, {"finish", stopped ? "interrupted" : "exit"}});
    if (interactive_) std::fputc('\n', stderr);
    return stopped ? kInterrupted : kOk;
  }

 private:
  void event(const nlohmann::json& json) const {
    if (!o_.json) return;
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
  }
  void prompt(const char* text) const {
    if (interactive_) fmt::print(stderr, "{}", bold(text, 2));
  }
  void hint(const std::string& text) const {
    if (interactive_ && !o_.quiet) fmt::print(stderr, "{}\n", dim(text, 2));
  }

  // Whether the line was one for the program.
  bool command(const std::string& text) {
    if (text == "/reset") {
      chat_.reset();
      event({{"event", "reset"}});
      hint("a new conversation");
      return true;
    }
    if (!text.starts_with('/') || text.starts_with("//")) return false;
    const std::string sentence =
        fmt::format("{} is not known; /reset and /exit are, and // begins a text with /", text);
    event({{"event", "error"}, {"message", sentence}});
    if (!o_.json) fmt::print(stderr, "{} {}\n", bold("halftone:", 2), sentence);
    return true;
  }

  // False when the conversation ends here.
  bool turn(std::string text) {
    if (text.starts_with("//")) text.erase(0, 1);
    GenerateResult result;
    try {
      result = chat_.say(text, generation_, [&](std::string_view part) {
        if (o_.json) {
          event({{"event", "text"}, {"text", part}});
        } else {
          std::fwrite(part.data(), 1, part.size(), stdout);
          std::fflush(stdout);
        }
      });
    } catch (const Error& error) {
      event({{"event", "error"}, {"message", error.what()}});
      if (!interactive_) throw;  // a script must notice
      fmt::print(stderr, "{} {}\n", bold("halftone:", 2), error.what());
      return true;
    }
    if (!o_.json) std::fputc('\n', stdout);
    std::fflush(stdout);
    const auto rate = [](double count, double seconds) {
      return seconds > 0 ? count / seconds : 0;
    };
    const auto generated = static_cast<double>(result.tokens.size());
    event({{"event", "turn"},
           {"text", result.text},
           {"finish", to_string(result.finish)},
           {"prompt_tokens", result.prompt_tokens},
           {"reused_tokens", chat_.reused_tokens()},
           {"generated_tokens", result.tokens.size()},
           {"session_tokens", session_.length()},
           {"prompt_seconds", result.prompt_seconds},
           {"generate_seconds", result.generate_seconds},
           {"tokens_per_second", rate(generated, result.generate_seconds)}});
    hint(fmt::format("{} tokens from the cache, {} read · {} written, {:.0f} tok/s",
                     chat_.reused_tokens(), result.prompt_tokens, result.tokens.size(),
                     rate(generated, result.generate_seconds)));
    return result.finish != GenerateResult::Finish::stopped;
  }

  const ChatArguments& o_;
  Session& session_;
  Chat& chat_;
  const GenerateOptions generation_;
  bool interactive_;
};

int run_chat(const ChatArguments& o) {
  check_weights("--weights", o.model.weights);
  check_model_path(o.model.model);
  SessionOptions session_settings = session_options(o.model);
  session_settings.max_length = o.length.value_or(0);
  ChatTemplate chat_template = choose_template(o);
  ChatTemplateOptions template_options;
  template_options.variables = o.variables.value_or("");

  const std::shared_ptr<const Model> model =
      load_model(o.model, o.model.weights, !o.quiet && !o.json);
  GenerateOptions generation;
  generation.max_new_tokens = o.tokens.value_or(512);
  generation.sampling = o.sampling.over(*model);
  generation.stop = o.stop;
  generation.stop_token = stop_on_interrupt();
  Session session(model, session_settings);
  Chat chat(session, std::move(chat_template), template_options);
  if (o.system) chat.add({"system", *o.system});
  return Conversation(o, session, chat, generation).run();
}

std::function<int()> declare_chat(CLI::App& app) {
  const auto o = std::make_shared<ChatArguments>();
  add_model_options(app, o->model);
  app.add_option("--system", o->system, "the message that a conversation begins with")
      ->type_name("TEXT");
  app.add_option("--template", o->chat_template,
                 "a Jinja file, chatml or plain, in place of the model's chat template")
      ->type_name("FILE");
  app.add_option("--variables", o->variables,
                 "a JSON object for the template, {\"enable_thinking\": false}")
      ->type_name("JSON");
  add_number(app, "-n,--max-tokens", o->tokens, 0, int64_t{1} << 31,
             "most tokens of an answer (default 512)");
  add_number(app, "--length", o->length, 1, int64_t{1} << 31,
             "most tokens of the conversation; default: the model's");
  add_sampling_options(app, o->sampling);
  app.add_option("--stop", o->stop, "text that ends an answer; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--json", o->json, "events on stdout, one JSON object a line");
  app.add_flag("--quiet", o->quiet, "nothing but the answers");
  return [o] { return run_chat(*o); };
}

}  // namespace

Command chat_command() {
  return {"chat", "talk with a model, line by line",
          "  halftone chat MODEL --system \"You are terse.\"\n"
          "  halftone chat examples/models/bard --template plain --stop \"\\n\\n\"\n"
          "  printf 'Hello\\nAnd then?\\n' | halftone chat MODEL --json\n",
          declare_chat};
}

}  // namespace halftone::app
