// The chat template of a model's directory.
#include <gtest/gtest.h>

#include "engine_files/temp_directory.h"
#include "halftone/chat.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::TempDirectory;

const ChatMessage kMessages[] = {{"system", "Be terse."}, {"user", "Hi"}};

TEST(ChatTemplate, FromTheConfigurationOfTheTokenizer) {
  const TempDirectory d;
  d.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
      "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ eos_token }}"})");
  EXPECT_EQ(ChatTemplate::load(d.path()).apply(kMessages), "<s>system: Be terse.\nuser: Hi\n</s>");
}

TEST(ChatTemplate, NamedTemplatesAndTheFileThatWins) {
  const TempDirectory d;
  d.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }}"}]})");
  EXPECT_EQ(ChatTemplate::load(d.path()).apply({}), "plain");
  ChatTemplateOptions options;
  options.tools = R"([{"name": "x"}])";
  EXPECT_EQ(ChatTemplate::load(d.path(), "tool_use").apply({}, options), "1");
  test::expect_error([&] { ChatTemplate::load(d.path(), "rag"); },
                     {"tokenizer_config.json", "\"rag\"", "default, tool_use"});
  d.write("chat_template.jinja", "{{ x }} {{ strftime_now('%Y') }} {{ add_generation_prompt }}\n");
  options.variables = R"({"x": [1, 2.5]})";
  options.clock = 0;
  options.add_generation_prompt = false;
  EXPECT_EQ(ChatTemplate::load(d.path()).apply({}, options), "[1, 2.5] 1970 False");
}

TEST(ChatTemplate, MessagesAsJson) {
  const ChatTemplate jinja("{% for m in messages %}{{ m | tojson }}{% endfor %}");
  EXPECT_EQ(jinja.apply_json(R"([{"role": "user", "b": 1, "a": null}])"),
            R"({"role": "user", "b": 1, "a": null})");
  test::expect_error([&] { jinja.apply_json("[{]"); }, {"messages", "not valid JSON"});
  test::expect_error([&] { jinja.apply_json("{}"); }, {"messages is a dict", "array"});
  test::expect_error([&] { jinja.apply_json(std::string(999, '[')); }, {"nested deeper"});
  ChatTemplateOptions options;
  options.tools = "3";
  test::expect_error([&] { jinja.apply({}, options); }, {"tools is a int", "array"});
  options.tools.clear();
  options.variables = "[]";
  test::expect_error([&] { jinja.apply({}, options); }, {"variables is a list", "object"});
}

TEST(ChatTemplate, AModelWithoutOne) {
  const TempDirectory d;
  test::expect_error([&] { ChatTemplate::load(d.path()); },
                     {d.path(), "chat_template.jinja", "tokenizer_config.json"});
  d.write("tokenizer_config.json", R"({"chat_template": 5})");
  test::expect_error([&] { ChatTemplate::load(d.path()); }, {"chat_template is 5", "array"});
  d.write("tokenizer_config.json", R"({"chat_template": "\n{% include 'x' %}"})");
  test::expect_error([&] { ChatTemplate::load(d.path()); },
                     {"tokenizer_config.json: chat_template, line 2", "include"});
}

}  // namespace
}  // namespace halftone
