#include "engine/tokenizer/tiktoken.h"

#include <algorithm>
#include <cstdio>

#include "engine/json.h"
#include "engine/tokenizer/base64.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/splitter.h"

namespace halftone {

namespace {

// White space that ends the text stays whole, before the rule that cuts behind newlines.
const char* const kCl100kRegex = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+)"
                                 R"(| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
const char* const kO200kRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Whisper's languages in the order of their tokens; large-v3 added the last.
constexpr const char* kWhisperLanguages =
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue";
constexpr int64_t kWhisperLargeV3 = 51866;  // the vocabulary with all hundred languages
constexpr int64_t kWhisperEnglish = 51864;

class Specials {
 public:
  explicit Specials(int64_t next) : next_(static_cast<int32_t>(next)) {}
  void add(const std::string& name) { list_.emplace_back(next_++, "<|" + name + "|>"); }
  void add(std::initializer_list<const char*> names) {
    for (const char* name : names) add(name);
  }
  // "PREFIXn" for n from `first` on, up to the token before `end`.
  void number(const char* prefix, int first, int32_t end) {
    while (next_ < end) add(concat(prefix, first++));
  }
  void skip_to(int32_t token) { next_ = token; }
  std::vector<std::pair<int32_t, std::string>> take() { return std::move(list_); }

 private:
  int32_t next_;
  std::vector<std::pair<int32_t, std::string>> list_;
};

TiktokenVocabulary whisper(int64_t ranks, int64_t model_vocabulary) {
  Specials specials(ranks);
  specials.add({"endoftext", "startoftranscript"});
  const std::string_view languages = kWhisperLanguages;
  for (size_t at = 0; at < languages.size();) {
    const size_t end = std::min(languages.find(' ', at), languages.size());
    const std::string_view language = languages.substr(at, end - at);
    if (language != "yue" || model_vocabulary == kWhisperLargeV3) {
      specials.add(std::string(language));
    }
    at = end + 1;
  }
  specials.add({"translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"});
  for (int step = 0; step <= 1500; ++step) {  // every 0.02 s of 30 s
    char name[16];
    std::snprintf(name, sizeof name, "%d.%02d", step / 50, step % 50 * 2);
    specials.add(name);
  }
  return {kGpt2Regex, specials.take(), -1};
}

TiktokenVocabulary llama3(int64_t ranks) {
  Specials specials(ranks);
  specials.add({"begin_of_text", "end_of_text", "reserved_special_token_0",
                "reserved_special_token_1", "finetune_right_pad_id", "reserved_special_token_2",
                "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"});
  specials.number("reserved_special_token_", 3, static_cast<int32_t>(ranks) + 256);
  return {kLlama3Regex, specials.take(), static_cast<int32_t>(ranks)};
}

TiktokenVocabulary llama4(int64_t ranks) {
  Specials specials(ranks);
  specials.add({"begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix",
                "header_start", "header_end", "eom", "eot"});
  return {kO200kRegex, specials.take(), static_cast<int32_t>(ranks)};
}

// With the names of the harmony format, which has the tokens of o200k_base and more.
TiktokenVocabulary o200k(int64_t ranks) {
  Specials specials(ranks);
  specials.add({"startoftext", "endoftext", "reserved_200000", "reserved_200001", "return",
                "constrain", "reserved_200004", "channel", "start", "end", "message",
                "reserved_200009", "reserved_200010", "reserved_200011", "call"});
  specials.number("reserved_", 200013, 200018);
  specials.add("endofprompt");
  specials.number("reserved_", 200019, 201088);
  return {kO200kRegex, specials.take(), -1};
}

TiktokenVocabulary cl100k(int64_t ranks) {
  Specials specials(ranks + 1);
  specials.add({"endoftext", "fim_prefix", "fim_middle", "fim_suffix"});
  specials.skip_to(static_cast<int32_t>(ranks) + 20);
  specials.add("endofprompt");
  return {kCl100kRegex, specials.take(), -1};
}

constexpr int64_t kMostRanks = int64_t{1} << 20;

// "BASE64 RANK"; false when the line is something else.
bool read_line(std::string_view line, std::string& bytes, int64_t& rank) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view token = line.substr(0, space);
  bytes.clear();
  // "=" is Whisper's way to write the empty token, which nothing becomes.
  if (token != "=" && !decode_base64(token, bytes)) return false;
  const std::string_view digits = line.substr(space + 1);
  if (digits.empty() || digits.size() > 9) return false;
  rank = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    rank = 10 * rank + (c - '0');
  }
  return true;
}

std::string_view next_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int64_t count_lines(std::string_view bytes) {
  int64_t count = 0;
  while (!bytes.empty()) count += next_line(bytes).empty() ? 0 : 1;
  return count;
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  std::string token;
  int64_t rank = 0;
  return read_line(next_line(bytes), token, rank);
}

TiktokenVocabulary tiktoken_vocabulary(int64_t ranks, int64_t model_vocabulary,
                                       const std::string& file) {
  switch (ranks) {
    case 50256:  // GPT-2, and Whisper's English models
      if (model_vocabulary != kWhisperEnglish) {
        return {kGpt2Regex, {{50256, "<|endoftext|>"}}, -1};
      }
      return whisper(ranks, model_vocabulary);
    case 50257:
      return whisper(ranks, model_vocabulary);
    case 100256:
      return cl100k(ranks);
    case 128000:
      return llama3(ranks);
    case 151643: {
      Specials specials(ranks);
      specials.add({"endoftext", "im_start", "im_end"});
      return {kQwenRegex, specials.take(), -1};
    }
    case 199998:
      return o200k(ranks);
    case 200000:
      return llama4(ranks);
    default:
      fail(ErrorCode::unsupported, file, ": ", ranks,
           " ranks are no known vocabulary, whose pattern the file does not hold; known are 50256 "
           "(GPT-2), 50257 (Whisper), 100256 (cl100k), 128000 (Llama 3), 151643 (Qwen), 199998 "
           "(o200k) and 200000 (Llama 4); give tokenizer.json");
  }
}

std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::string& file,
                                         int64_t model_vocabulary) {
  const TiktokenVocabulary vocabulary =
      tiktoken_vocabulary(count_lines(bytes), model_vocabulary, file);
  return std::make_unique<PipelineTokenizer>(bytes, vocabulary, file);
}

PipelineTokenizer::PipelineTokenizer(std::string_view ranks, const TiktokenVocabulary& vocabulary,
                                     const std::string& file)
    : file_(file), byte_level_(true) {
  std::fill(std::begin(byte_token_), std::end(byte_token_), -1);
  ignore_merges_ = true;  // a word that is a token is that token
  read_ranks(ranks);
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_token_[byte] < 0) {
      fail(ErrorCode::malformed_file, file, ": no rank for the byte ", byte,
           "; every byte needs one");
    }
  }
  merge_all_splits();
  for (const auto& [id, content] : vocabulary.special) {
    const auto index = static_cast<size_t>(id);
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    if (pieces_[index].used) {
      fail(ErrorCode::malformed_file, file, ": the rank ", id, " is the special token ", content);
    }
    pieces_[index] = {content, true, true, true};
    raw_tokens_.add({id, content, true});
  }
  steps_.push_back({.split = {make_pattern(vocabulary.regex, file)}});
  if (vocabulary.bos >= 0) before_ = {vocabulary.bos};
}

void PipelineTokenizer::read_ranks(std::string_view lines) {
  std::string bytes;
  int64_t rank = 0;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = next_line(lines);
    if (line.empty()) continue;
    if (!read_line(line, bytes, rank) || rank >= kMostRanks) {
      fail(ErrorCode::malformed_file, file_, ": line ", number, " is ", quote(line),
           "; it must be a token in base64, a space and its rank below ", kMostRanks);
    }
    const auto index = static_cast<size_t>(rank);
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    if (pieces_[index].used || !whole_words_.emplace(bytes, static_cast<int32_t>(rank)).second) {
      fail(ErrorCode::malformed_file, file_, ": line ", number, " gives the rank ", rank,
           pieces_[index].used ? ", which another token has too" : " to a token that has one");
    }
    pieces_[index].bytes = bytes;
    pieces_[index].used = true;
    if (bytes.size() == 1) {
      byte_token_[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(rank);
    }
  }
}

// Any two tokens that spell a token together may join, at the rank of what they become.
void PipelineTokenizer::merge_all_splits() {
  constexpr size_t kLongestSplit = 256;  // bounds the work; known tokens stay below 130
  // Views into the pieces: no copy of each part.
  std::unordered_map<std::string_view, int32_t> tokens;
  tokens.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].used) tokens.emplace(pieces_[i].bytes, static_cast<int32_t>(i));
  }
  merges_ = MergeTable(2 * pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const std::string_view bytes = pieces_[i].bytes;
    if (!pieces_[i].used || bytes.size() > kLongestSplit) continue;
    const auto token = static_cast<int32_t>(i);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = tokens.find(bytes.substr(0, cut));
      if (left == tokens.end()) continue;
      const auto right = tokens.find(bytes.substr(cut));
      if (right != tokens.end()) merges_.insert(left->second, right->second, {token, token});
    }
  }
}

}  // namespace halftone
