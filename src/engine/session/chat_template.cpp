#include <unistd.h>

#include <filesystem>

#include "engine/checkpoint/mapped_file.h"
#include "engine/jinja/template.h"
#include "engine/json.h"
#include "halftone/chat.h"

namespace halftone {

namespace {

using jinja::Members;
using jinja::Value;

// bos_token and the like: a text, or {"content": ...}.
std::string token_text(const JsonField& field) {
  return field.is_object() ? field["content"].text_or("") : field.text_or("");
}

// `name` of a list of templates; "" when there is none.
std::string named_template(const JsonField& list, const std::string& name) {
  std::string known;
  for (const JsonField& item : list.items()) {
    const std::string& found = item["name"].text();
    if (found == name) return item["template"].text();
    known += (known.empty() ? "" : ", ") + found;
  }
  list.malformed(" has no template ", quote(name), "; it has ", known.empty() ? "none" : known);
}

}  // namespace

struct ChatTemplate::State {
  jinja::Template jinja;
  std::string bos, eos;

  std::string render(Value messages, const ChatTemplateOptions& o) const {
    Members context = {{"messages", std::move(messages)},
                       {"add_generation_prompt", o.add_generation_prompt},
                       {"bos_token", bos},
                       {"eos_token", eos}};
    if (!o.tools.empty()) {
      Value tools = Value::from_json(o.tools, "tools");
      require(tools.is_sequence(), "tools is a ", tools.type(), "; it must be a JSON array");
      context.emplace_back("tools", std::move(tools));
    }
    if (!o.variables.empty()) {
      const Value variables = Value::from_json(o.variables, "variables");
      require(variables.is_dict(), "variables is a ", variables.type(),
              "; it must be a JSON object");
      for (const auto& member : variables.members()) context.push_back(member);
    }
    return jinja.render(context, o.clock);
  }
};

ChatTemplate::ChatTemplate(std::string_view source, const std::string& where,
                           const std::string& bos, const std::string& eos)
    : state_(std::make_unique<State>(State{jinja::Template(source, where), bos, eos})) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::load(const std::string& path, const std::string& name) {
  const std::filesystem::path given(path);
  const std::string directory = std::filesystem::is_directory(given) ? path
                                : given.has_parent_path()            ? given.parent_path().string()
                                                                     : ".";
  const std::string config_path = directory + "/tokenizer_config.json";
  Json json;
  if (access(config_path.c_str(), F_OK) == 0) json = Json::read(config_path);
  const JsonField config(&json, config_path);
  const std::string bos = token_text(config["bos_token"]), eos = token_text(config["eos_token"]);

  const std::string file = directory + "/chat_template.jinja";
  if (access(file.c_str(), F_OK) == 0) {
    return ChatTemplate(MappedFile::open(file)->bytes(), file, bos, eos);
  }
  const JsonField field = config["chat_template"];
  if (!field.present()) {
    fail(ErrorCode::io, directory, " holds no chat template: neither chat_template.jinja nor ",
         "chat_template in tokenizer_config.json");
  }
  const std::string source = field.is_text() ? field.text() : named_template(field, name);
  return ChatTemplate(source, config_path + ": chat_template", bos, eos);
}

std::string ChatTemplate::apply(std::span<const ChatMessage> messages,
                                const ChatTemplateOptions& options) const {
  jinja::Values list;
  for (const ChatMessage& m : messages) {
    list.push_back(Value::dict({{"role", m.role}, {"content", m.content}}));
  }
  return state_->render(Value::list(std::move(list)), options);
}

std::string ChatTemplate::apply_json(std::string_view messages,
                                     const ChatTemplateOptions& options) const {
  Value list = Value::from_json(messages, "messages");
  require(list.is_sequence(), "messages is a ", list.type(), "; it must be a JSON array");
  return state_->render(std::move(list), options);
}

}  // namespace halftone
