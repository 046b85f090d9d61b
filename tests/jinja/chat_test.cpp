// Conversations in a session: what the cache keeps, and what an error leaves.
#include <gtest/gtest.h>
#include <unistd.h>

#include "halftone/chat.h"
#include "support/compare.h"
#include "support/source_path.h"

namespace halftone {
namespace {

const char* const kTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

class WithModel : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = test::source_path("examples/models/bard");
    if (access(path.c_str(), R_OK) != 0) GTEST_SKIP() << path << " is absent";
    LoadOptions load;
    load.threads = 2;
    static const std::shared_ptr<const Model> model = Model::load(path, load);
    model_ = model;
    greedy_.sampling.temperature = 0;
    greedy_.max_new_tokens = 12;
    greedy_.ignore_eos = true;
  }
  std::shared_ptr<const Model> model_;
  GenerateOptions greedy_;
};

TEST_F(WithModel, TurnsAreTheSameAsTheWholeConversationAnew) {
  Session session(model_), fresh(model_);
  Chat chat(session, ChatTemplate(kTemplate));
  chat.add({"system", "A play."});
  chat.say("Who is there?", greedy_);
  EXPECT_EQ(chat.reused_tokens(), 0);
  const std::string second = chat.say("And then?", greedy_).text;
  // Most of the first turn was in the cache already.
  EXPECT_GT(chat.reused_tokens(), 10);
  ASSERT_EQ(chat.messages().size(), 5u);
  EXPECT_EQ(chat.messages()[4].content, second);

  Chat anew(fresh, ChatTemplate(kTemplate));
  for (size_t i = 0; i < 3; ++i) anew.add(chat.messages()[i]);
  EXPECT_EQ(anew.say("And then?", greedy_).text, second);
}

TEST_F(WithModel, ResetKeepsTheSystemMessage) {
  Session session(model_);
  Chat chat(session, ChatTemplate(kTemplate));
  chat.add({"system", "A play."});
  const std::string first = chat.say("Who is there?", greedy_).text;
  chat.say("More.", greedy_);
  chat.reset();
  ASSERT_EQ(chat.messages().size(), 1u);
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(chat.say("Who is there?", greedy_).text, first);
}

TEST_F(WithModel, AnErrorLeavesTheConversationAsItWas) {
  SessionOptions options;
  options.max_length = 64;
  Session session(model_, options);
  Chat chat(session, ChatTemplate(kTemplate));
  chat.say("Who?", greedy_);
  std::string longer;
  for (int i = 0; i < 100; ++i) longer += "word ";
  test::expect_error([&] { chat.say(longer, greedy_); }, {"conversation has", "max_length is 64"});
  EXPECT_EQ(chat.messages().size(), 2u);
  EXPECT_NO_THROW(chat.say("Hm?", greedy_));

  Chat refusing(session, ChatTemplate("{{ raise_exception('never') }}"));
  test::expect_error([&] { refusing.say("x", greedy_); }, {"line 1", "never"});
  EXPECT_TRUE(refusing.messages().empty());
}

}  // namespace
}  // namespace halftone
