// Finding the tokenizer of a model.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "engine/checkpoint/llama2c.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/json.h"
#include "engine/tokenizer/llama2c_tokenizer.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/sentencepiece.h"
#include "engine/tokenizer/tiktoken.h"

namespace halftone {

namespace {

std::unique_ptr<Tokenizer> load_json(const std::string& path) {
  const JsonLimits limits{size_t{256} << 20, 32, size_t{1} << 23};
  const Json json = Json::read(path, limits);
  return std::make_unique<PipelineTokenizer>(JsonField(&json, path));
}

// tokenizer_config.json beside a SentencePiece model, where there is one.
SentencePieceOptions sentencepiece_options(const std::string& directory) {
  SentencePieceOptions options;
  const std::string path = directory + "/tokenizer_config.json";
  if (access(path.c_str(), F_OK) != 0) return options;
  const Json json = Json::read(path);
  const JsonField config(&json, path);
  options.add_bos = config["add_bos_token"].boolean_or(true);
  options.add_eos = config["add_eos_token"].boolean_or(false);
  const JsonField added = config["added_tokens_decoder"];
  if (!added.present()) return options;
  constexpr int64_t kMostAdded = int64_t{1} << 21;
  for (const Json::Member& member : added.members()) {
    const JsonField item = added[member.key];
    char* end = nullptr;
    const int64_t id = std::strtoll(member.key.c_str(), &end, 10);
    if (member.key.empty() || *end != '\0' || id < 0 || id >= kMostAdded) {
      item.malformed(" is no token number below ", kMostAdded);
    }
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = item["content"].text();
    token.special = item["special"].boolean_or(false);
    options.added.push_back(token);
  }
  const auto before = [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; };
  std::sort(options.added.begin(), options.added.end(), before);
  return options;
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// The kinds that a file's first bytes tell; null for another.
std::unique_ptr<Tokenizer> load_by_content(const std::string& path, int64_t vocabulary) {
  const auto file = MappedFile::open(path);
  const std::string_view bytes = file->bytes();
  if (is_tiktoken(bytes)) return load_tiktoken(bytes, path, vocabulary);
  if (is_sentencepiece(bytes) || path.ends_with(".model")) {
    return load_sentencepiece(bytes, path, sentencepiece_options(parent_of(path)));
  }
  return nullptr;
}

// tokenizer.model, or the only file that ends like one; "" when there is none.
std::string find_model_file(const std::string& directory) {
  const std::string usual = directory + "/tokenizer.model";
  if (access(usual.c_str(), F_OK) == 0) return usual;
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".model") || name.ends_with(".tiktoken")) {
      found.push_back(entry.path().string());
    }
  }
  return found.size() == 1 ? found.front() : "";
}

// A llama2.c tokenizer of `vocabulary` pieces (0: any) in a directory: tok<vocabulary>.bin, then
// tokenizer.bin, then the only one that fits; "" when there is none.
std::string find_llama2c_tokenizer(const std::string& directory, int64_t vocabulary) {
  std::vector<std::string> candidates;
  if (vocabulary > 0) candidates.push_back(concat(directory, "/tok", vocabulary, ".bin"));
  candidates.push_back(directory + "/tokenizer.bin");
  for (const std::string& path : candidates) {
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("tok") || !name.ends_with(".bin")) continue;
    const std::optional<int64_t> pieces = probe_llama2c_tokenizer(entry.path().string());
    if (pieces && (vocabulary == 0 || *pieces == vocabulary))
      found.push_back(entry.path().string());
  }
  return found.size() == 1 ? found.front() : "";
}

// Beside a llama2.c checkpoint.
std::unique_ptr<Tokenizer> load_beside(const std::string& checkpoint, int64_t vocabulary) {
  const std::string directory = parent_of(checkpoint);
  const std::string path = find_llama2c_tokenizer(directory, vocabulary);
  if (path.empty()) {
    fail(ErrorCode::io, directory, " holds no tokenizer for ", quote(checkpoint),
         "; put tokenizer.bin or tok", vocabulary, ".bin beside it");
  }
  auto tokenizer = load_llama2c_tokenizer(path);
  if (tokenizer->size() != vocabulary) {
    fail(ErrorCode::malformed_file, path, " has ", tokenizer->size(), " pieces; the checkpoint ",
         quote(checkpoint), " has a vocabulary of ", vocabulary);
  }
  return tokenizer;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& path, int64_t vocabulary) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    fail(ErrorCode::io, "tokenizer ", quote(path), " does not exist; give tokenizer.json, a ",
         "SentencePiece or tiktoken file, a llama2.c tokenizer.bin, or the directory of a model");
  }
  if (!S_ISDIR(info.st_mode)) {
    if (path.ends_with(".json")) return load_json(path);
    if (auto tokenizer = load_by_content(path, vocabulary)) return tokenizer;
    // A checkpoint and a tokenizer share the suffix: the header tells.
    if (const auto header = probe_llama2c(path)) return load_beside(path, header->vocabulary);
    return load_llama2c_tokenizer(path);
  }
  const std::string json = path + "/tokenizer.json";
  if (access(json.c_str(), F_OK) == 0) return load_json(json);
  if (const std::string model = find_model_file(path); !model.empty()) {
    if (auto tokenizer = load_by_content(model, vocabulary)) return tokenizer;
  }
  const std::string binary = find_llama2c_tokenizer(path, 0);
  if (!binary.empty()) return load_llama2c_tokenizer(binary);
  fail(ErrorCode::io, "directory ", quote(path),
       " holds no tokenizer: neither tokenizer.json nor one SentencePiece or tiktoken file "
       "(tokenizer.model, *.tiktoken) nor one llama2.c tokenizer (tokenizer.bin or tok*.bin)");
}

}  // namespace halftone
