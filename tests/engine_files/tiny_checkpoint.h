// Small valid checkpoints as a start for tests that break them.
#pragma once
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "engine/checkpoint/safetensors_writer.h"
#include "engine_files/temp_directory.h"

namespace halftone::test {

// config.json of a two-layer Llama with some members replaced or added ("" removes one).
inline std::string config_text(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> members = {{"architectures", R"(["LlamaForCausalLM"])"},
                                                {"hidden_size", "64"},
                                                {"num_hidden_layers", "2"},
                                                {"num_attention_heads", "4"},
                                                {"num_key_value_heads", "2"},
                                                {"head_dim", "16"},
                                                {"intermediate_size", "96"},
                                                {"vocab_size", "300"},
                                                {"max_position_embeddings", "128"},
                                                {"rms_norm_eps", "1e-6"},
                                                {"torch_dtype", "\"bfloat16\""}};
  for (const auto& [key, value] : changes) members[key] = value;
  std::string text;
  for (const auto& [key, value] : members) {
    if (value.empty()) continue;
    text += text.empty() ? "{" : ", ";
    text += '"';
    text += key;
    text += "\": ";
    text += value;
  }
  return text + "}";
}

// A safetensors file from the text of its header.
inline std::string safetensors_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_bytes, '\x3c');
}

// A llama2.c checkpoint with all weights 0: dim 8, hidden 12, 1 layer, 2 heads, 1 kv head.
inline std::string llama2c_bytes(int32_t vocabulary = 5, int32_t length = 3) {
  const int32_t header[7] = {8, 12, 1, 2, 1, vocabulary, length};
  const auto tokens = static_cast<size_t>(vocabulary < 0 ? -vocabulary : vocabulary);
  const size_t floats = tokens * 8 * (vocabulary < 0 ? 2 : 1) + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 96 +
                        8 + 2 * static_cast<size_t>(length) * 2;
  std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
  return bytes + std::string(floats * 4, '\0');
}

// A llama2.c tokenizer: unknown, bos, eos, all bytes, a few letters and pairs.
inline std::string llama2c_tokenizer_bytes() {
  const auto number = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  std::string bytes = number(int32_t{8});
  const auto add = [&](const std::string& text, float score) {
    bytes += number(score) + number(static_cast<int32_t>(text.size())) + text;
  };
  for (const char* special : {"<unk>", "<s>", "</s>"}) add(special, 0);
  for (int b = 0; b < 256; ++b) {
    char text[7];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(b));
    add(text, 0);
  }
  for (const char* piece : {" ", "a", "b", "ab", " a", " ab"}) {
    add(piece, -static_cast<float>(std::strlen(piece)));
  }
  return bytes;
}

}  // namespace halftone::test
