// Text generation and scoring, on models whose next token is known: the output head maps each token
// to the one that follows it in a given text.
#include "engine/support/memory_model.h"

namespace halftone {
namespace {

using test::ByteTokenizer;
using test::exact_session;
using test::make_model;
using Finish = GenerateResult::Finish;

// After byte b comes next[b]. Layers contribute nothing (zero output matrices), so the residual
// stream is the embedding, a one-hot vector, and the head turns it into a clear winner.
std::shared_ptr<const Model> successor_model(const std::vector<int32_t>& next) {
  ModelConfig c = test::small_config();
  c.layers = 1;
  c.hidden = 288;  // one dimension per token
  test::MemoryCheckpoint checkpoint = test::random_checkpoint(c);
  auto& tensors = checkpoint.tensors_;
  for (const char* name : {"self_attn.o_proj", "mlp.down_proj"}) {
    Tensor& weight = tensors["model.layers.0." + std::string(name) + ".weight"];
    weight = Tensor::zeros(weight.shape(), Format::f32);
  }
  Tensor table = Tensor::zeros({c.vocabulary, c.hidden}, Format::f32);
  Tensor head = Tensor::zeros({c.vocabulary, c.hidden}, Format::f32);
  for (int64_t token = 0; token < c.vocabulary; ++token) {
    table.data<float>()[token * c.hidden + token] = 1.0f;
    head.data<float>()[next[size_t(token)] * c.hidden + token] = 1.0f;
  }
  tensors["model.embed_tokens.weight"] = table;
  tensors["lm_head.weight"] = head;
  return make_model(checkpoint);
}

// Successors that spell `text`, every byte of which occurs once; everything else leads to eos.
std::vector<int32_t> spelling(std::string_view text) {
  std::vector<int32_t> next(ByteTokenizer::kSize, ByteTokenizer::kEos);
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    next[static_cast<unsigned char>(text[i])] = static_cast<unsigned char>(text[i + 1]);
  }
  return next;
}

struct Spelled {
  GenerateResult result;
  std::string streamed;
  std::vector<std::string> pieces;
};

Spelled spell(std::string_view text, const GenerateOptions& options) {
  Session session(successor_model(spelling(text)), exact_session());
  Spelled spelled;
  spelled.result = generate(session, text.substr(0, 1), options, [&](std::string_view piece) {
    spelled.streamed += piece;
    spelled.pieces.emplace_back(piece);
  });
  EXPECT_EQ(spelled.streamed, spelled.result.text);
  EXPECT_EQ(session.length(),
            spelled.result.prompt_tokens + static_cast<int64_t>(spelled.result.tokens.size()));
  return spelled;
}

TEST(Generate, EndsAtEndOfSequence) {
  const Spelled r = spell("abcdef", {});
  EXPECT_EQ(r.result.text, "bcdef");
  EXPECT_EQ(r.result.finish, Finish::eos);
  EXPECT_EQ(r.result.prompt_tokens, 2);  // bos and "a"
  EXPECT_EQ(r.result.tokens.size(), 5u);
}

TEST(Generate, EndsAtLength) {
  GenerateOptions options;
  options.max_new_tokens = 3;
  const Spelled r = spell("abcdef", options);
  EXPECT_EQ(r.result.text, "bcd");
  EXPECT_EQ(r.result.finish, Finish::length);
  options.max_new_tokens = 0;
  EXPECT_EQ(spell("abcdef", options).result.text, "");
}

TEST(Generate, EndsWhenTheSessionIsFull) {
  SessionOptions short_session = exact_session();
  short_session.max_length = 4;
  Session session(successor_model(spelling("abcdef")), short_session);
  const GenerateResult result = generate(session, "a");
  EXPECT_EQ(result.text, "bc");
  EXPECT_EQ(result.finish, Finish::length);
  EXPECT_EQ(session.length(), 4);
}

TEST(Generate, StopTextsAreHeldBack) {
  GenerateOptions options;
  options.stop = {"xyz", "def", "cdz"};
  const Spelled r = spell("abcdefg", options);
  EXPECT_EQ(r.result.text, "bc");
  EXPECT_EQ(r.result.finish, Finish::stop_text);
  // "c" could have begun "cdz" and was given out once that was ruled out.
  for (const std::string& piece : r.pieces) EXPECT_EQ(piece.find('d'), std::string::npos);
}

TEST(Generate, BeginningOfAStopTextIsGivenOutAtTheEnd) {
  GenerateOptions options;
  options.stop = {"efgh"};
  EXPECT_EQ(spell("abcdef", options).result.text, "bcdef");
  options.max_new_tokens = 4;
  EXPECT_EQ(spell("abcdefg", options).result.text, "bcde");
}

TEST(Generate, StreamsWholeUtf8) {
  const Spelled r = spell("a\xe2\x82\xac\xc3\xa9z", {});  // euro sign, e acute
  EXPECT_EQ(r.result.text, "\xe2\x82\xac\xc3\xa9z");
  EXPECT_EQ(r.pieces, (std::vector<std::string>{"\xe2\x82\xac", "\xc3\xa9", "z"}));
}

TEST(Generate, CutUtf8BecomesTheReplacementCharacter) {
  GenerateOptions options;
  options.max_new_tokens = 2;
  EXPECT_EQ(spell("a\xe2\x82\xac", options).result.text, "\xef\xbf\xbd");
}

TEST(Generate, IgnoresEndOfSequenceWhenAsked) {
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_new_tokens = 8;
  const Spelled r = spell("abc", options);
  EXPECT_EQ(r.result.tokens.size(), 8u);
  EXPECT_EQ(r.result.finish, Finish::length);
}

TEST(Generate, StopTokenEndsIt) {
  Session session(successor_model(spelling("abcdef")), exact_session());
  std::stop_source source;
  GenerateOptions options;
  options.stop_token = source.get_token();
  const GenerateResult result = generate(session, "a", options, [&](std::string_view piece) {
    if (piece == "c") source.request_stop();
  });
  EXPECT_EQ(result.text, "bc");
  EXPECT_EQ(result.finish, Finish::stopped);
  session.truncate(0);
  EXPECT_EQ(generate(session, "a", options).finish, Finish::stopped);  // before the prompt
  EXPECT_EQ(session.length(), 0);
}

TEST(Generate, ContinuesASession) {
  Session session(successor_model(spelling("abcdefghij")), exact_session());
  GenerateOptions options;
  options.max_new_tokens = 2;
  EXPECT_EQ(generate(session, "a", options).text, "bc");
  const GenerateResult second = generate(session, "f", options);
  EXPECT_EQ(second.prompt_tokens, 1);  // no second bos
  EXPECT_EQ(second.text, "gh");
  EXPECT_EQ(session.length(), 7);
}

TEST(Generate, WrongCallsNameTheArgument) {
  const auto model = successor_model(spelling("abc"));
  SessionOptions short_session = exact_session();
  short_session.max_length = 4;
  Session session(model, short_session);
  GenerateOptions options;
  options.special = false;
  test::expect_error([&] { generate(session, "", options); }, {"prompt has no tokens"});
  test::expect_error([&] { generate(session, "aaaa"); }, {"prompt has 5 tokens", "4"});
  options = {};
  options.max_new_tokens = -1;
  test::expect_error([&] { generate(session, "a", options); }, {"max_new_tokens is -1"});
  options = {};
  options.stop = {""};
  test::expect_error([&] { generate(session, "a", options); }, {"stop", "empty"});
  options = {};
  options.sampling.temperature = -1;
  test::expect_error([&] { generate(session, "a", options); }, {"temperature"});
}

TEST(Generate, NeedsATokenizer) {
  const test::MemoryCheckpoint checkpoint = test::random_checkpoint(test::small_config());
  const auto model = std::make_shared<LoadedModel>(checkpoint, nullptr, LoadOptions());
  Session session(model, exact_session());
  EXPECT_NO_THROW(session.forward(test::random_tokens(3, 1)));  // tokens need none
  test::expect_error([&] { generate(session, "a"); }, {"tokenizer.json"});
}

// --- score ---------------------------------------------------------------------------------------

// The head gives 1 * g to the successor and 0 to the other 257, g the gain of the final norm: a
// one-hot vector of 288 has rms 1/sqrt(288), so g = sqrt(288) times the norm's weight.
TEST(Score, KnownDistribution) {
  test::MemoryCheckpoint checkpoint;
  const auto model = successor_model(spelling("abcdefghijklmnopqrstuvwxyz"));
  const auto* loaded = dynamic_cast<const LoadedModel*>(model.get());
  Session session(model, exact_session());
  const std::string text = "abcdefghijklmnop";
  const TextScore result = score(session, text, 8);
  // With bos before each window every token is scored: windows of 7 letters begin with one that
  // the model did not expect after bos (it leads to eos), the rest are as expected.
  ASSERT_EQ(result.tokens, 16);
  double expected = 0;
  const double eps = model->config().rms_eps;
  for (size_t i = 0; i < text.size(); ++i) {
    const int32_t from = i % 7 == 0 ? ByteTokenizer::kBos : text[i - 1];
    const double gain = loaded->final_norm().at({from}) / std::sqrt(1.0 / 288 + eps);
    const double sum = std::log(std::exp(gain) + 257);
    expected += sum - (i % 7 == 0 ? 0 : gain);
  }
  EXPECT_NEAR(result.nll, expected / 16, 1e-5);
  EXPECT_NEAR(result.perplexity, std::exp(expected / 16), 1e-4 * std::exp(expected / 16));
}

TEST(Score, DivergenceFromTheTeacher) {
  const auto exact = make_model(test::random_checkpoint(test::small_config()));
  const auto narrow = make_model(test::random_checkpoint(test::small_config()), "int8");
  const auto other = make_model(test::random_checkpoint(test::small_config(), Format::f32, 77));
  Session teacher(exact, exact_session()), same(exact, exact_session(2)),
      quantised(narrow, exact_session()), stranger(other, exact_session());
  const std::string text = "The quick brown fox jumps over the lazy dog, twice a day.";
  EXPECT_EQ(score(same, text, 32, &teacher).kl, 0.0);  // the same bits
  const double small = score(quantised, text, 32, &teacher).kl;
  EXPECT_GT(small, 0.0);
  EXPECT_LT(small, 0.01);
  EXPECT_GT(score(stranger, text, 32, &teacher).kl, 0.1);
  EXPECT_NEAR(score(same, text, 16).nll, score(same, text, 16, &teacher).nll, 0.0);
}

TEST(Score, WrongCallsNameTheArgument) {
  const auto model = make_model(test::random_checkpoint(test::small_config()));
  SessionOptions options = exact_session();
  options.max_length = 64;
  Session session(model, options);
  test::expect_error([&] { score(session, "text", 1); }, {"window is 1"});
  test::expect_error([&] { score(session, "text", 65); }, {"window is 65", "64"});
  test::expect_error([&] { score(session, "", 32); }, {"text has 0 tokens"});
  test::expect_error([&] { score(session, "text", 32, &session); }, {"teacher"});
  ModelConfig smaller = test::small_config();
  smaller.vocabulary = 200;
  Session other(make_model(test::random_checkpoint(smaller)), options);
  test::expect_error([&] { score(session, "text", 32, &other); }, {"200", "258"});
}

}  // namespace
}  // namespace halftone
