// Finding the tokenizer of a model.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/json.h"
#include "engine/llama2c.h"
#include "engine/llama2c_tokenizer.h"
#include "engine/tokenizer_json.h"

namespace halftone {

namespace {

std::unique_ptr<Tokenizer> load_json(const std::string& path) {
  const JsonLimits limits{size_t{256} << 20, 32, size_t{1} << 23};
  const Json json = Json::read(path, limits);
  return std::make_unique<JsonTokenizer>(JsonField(&json, path));
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
  const std::string parent = std::filesystem::path(checkpoint).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
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

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    fail(ErrorCode::io, "tokenizer ", quote(path), " does not exist; give tokenizer.json, a ",
         "llama2.c tokenizer.bin, or the directory of a model");
  }
  if (!S_ISDIR(info.st_mode)) {
    if (path.ends_with(".json")) return load_json(path);
    // A checkpoint and a tokenizer share the suffix: the header tells.
    if (const auto header = probe_llama2c(path)) return load_beside(path, header->vocabulary);
    return load_llama2c_tokenizer(path);
  }
  const std::string json = path + "/tokenizer.json";
  if (access(json.c_str(), F_OK) == 0) return load_json(json);
  const std::string binary = find_llama2c_tokenizer(path, 0);
  if (!binary.empty()) return load_llama2c_tokenizer(binary);
  fail(ErrorCode::io, "directory ", quote(path),
       " holds neither tokenizer.json nor one llama2.c tokenizer (tokenizer.bin or tok*.bin)");
}

}  // namespace halftone
