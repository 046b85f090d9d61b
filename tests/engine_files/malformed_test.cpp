// Broken and hostile files: each is an Error whose message names what is wrong.
#include <limits>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine_files/malformed_case.h"
#include "engine_files/tiny_checkpoint.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::Case;
using test::config_text;
using test::safetensors_bytes;
using test::TempDirectory;
using Words = std::vector<std::string>;

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"x": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
         offsets + "}}";
}

std::string header_length(uint64_t length) {
  return std::string(reinterpret_cast<const char*>(&length), 8);
}

TEST(Malformed, Safetensors) {
  const std::string nested(40, '[');
  const Case cases[] = {
      {"empty file", "", {"0 bytes", "at least 8"}},
      {"short file", "abc", {"3 bytes"}},
      {"header longer than the limit", header_length(~uint64_t{0}) + "{}", {"header length"}},
      {"header longer than the file", header_length(100) + "{}", {"header length is 100", "2"}},
      {"no JSON", safetensors_bytes("{\"x\": ", 0), {"not valid JSON"}},
      {"an array", safetensors_bytes("[1]", 0), {"the file", "an object"}},
      {"nested JSON", safetensors_bytes("{\"x\": " + nested, 0), {"nested deeper"}},
      {"invalid UTF-8", safetensors_bytes("{\"\xff\": 1}", 0), {"not valid JSON"}},
      {"duplicate name", safetensors_bytes(R"({"x": 1, "x": 2})", 0), {"\"x\"", "twice"}},
      {"unknown dtype", safetensors_bytes(entry("F7", "[1]", "[0, 1]"), 1), {"x.dtype", "F7"}},
      {"no dtype", safetensors_bytes(R"({"x": {"shape": [1]}})", 1), {"x.dtype", "missing"}},
      {"no shape",
       safetensors_bytes(R"({"x": {"dtype": "U8", "data_offsets": [0, 1]}})", 1),
       {"x.shape", "missing"}},
      {"negative extent",
       safetensors_bytes(entry("U8", "[-1]", "[0, 1]"), 1),
       {"x.shape[0]", "-1"}},
      {"fractional extent", safetensors_bytes(entry("U8", "[1.5]", "[0, 1]"), 1), {"1.5"}},
      {"nine extents",
       safetensors_bytes(entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0, 1]"), 1),
       {"x.shape", "9 extents"}},
      {"product overflows",
       safetensors_bytes(entry("F32", "[4294967296, 4294967296, 4294967296]", "[0, 1]"), 1),
       {"x.shape", "exceed"}},
      {"product overflows to the length",
       safetensors_bytes(entry("U8", "[4611686018427387905, 8]", "[0, 8]"), 8),
       {"x.shape", "exceed"}},
      {"length is not shape x size",
       safetensors_bytes(entry("F32", "[2]", "[0, 4]"), 4),
       {"x.data_offsets", "[2]", "takes 8"}},
      {"half a byte", safetensors_bytes(entry("F4", "[3]", "[0, 2]"), 2), {"whole number"}},
      {"offsets outside",
       safetensors_bytes(entry("U8", "[9]", "[0, 9]"), 4),
       {"x.data_offsets", "[0, 9]", "4 bytes"}},
      {"offsets backwards", safetensors_bytes(entry("U8", "[1]", "[1, 0]"), 4), {"[1, 0]"}},
      {"negative offset", safetensors_bytes(entry("U8", "[1]", "[-1, 0]"), 4), {"-1"}},
      {"offset 2^64 - 1",
       safetensors_bytes(entry("U8", "[1]", "[0, 18446744073709551615]"), 4),
       {"x.data_offsets[1]"}},
      {"three offsets", safetensors_bytes(entry("U8", "[1]", "[0, 1, 2]"), 4), {"[begin, end]"}},
      {"a gap", safetensors_bytes(entry("U8", "[1]", "[1, 2]"), 2), {"\"x\"", "gap"}},
      {"an overlap",
       safetensors_bytes(R"({"x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                             "y": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
                         3),
       {"\"y\"", "overlapping"}},
      {"data behind the tensors",
       safetensors_bytes(entry("U8", "[1]", "[0, 1]"), 5),
       {"1 bytes", "5 bytes"}},
      {"metadata is no text",
       safetensors_bytes(R"({"__metadata__": {"a": 1}})", 0),
       {"__metadata__.a", "a string"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    directory.write("config.json", config_text({}));
    directory.write("model.safetensors", c.bytes);
    Words words = c.words;
    words.emplace_back("model.safetensors: ");
    test::expect_error([&] { Checkpoint::open(directory.path()); }, words);
  }
}

TEST(Malformed, IndexOfShards) {
  const auto map = [](const std::string& members) { return R"({"weight_map": )" + members + "}"; };
  const Case cases[] = {
      {"no map", "{}", {"weight_map", "missing"}},
      {"a list", map("[]"), {"weight_map", "an object"}},
      {"a number", map(R"({"x": 1})"), {"weight_map.x", "a string"}},
      {"another directory",
       map(R"({"x": "../secret.safetensors"})"),
       {"weight_map.x", "../secret"}},
      {"an absolute path", map(R"({"x": "/etc/passwd"})"), {"/etc/passwd", "beside the index"}},
      {"the directory above", map(R"({"x": ".."})"), {"\"..\""}},
      {"an empty name", map(R"({"x": ""})"), {"weight_map.x"}},
      {"a missing shard", map(R"({"x": "none.safetensors"})"), {"none.safetensors", "missing"}},
      {"a tensor nowhere",
       map(R"({"x": "one.safetensors", "z": "one.safetensors"})"),
       {"\"z\"", "does not hold"}},
      {"the wrong shard",
       map(R"({"x": "two.safetensors", "y": "two.safetensors",
                                  "w": "one.safetensors"})"),
       {"\"x\"", "one.safetensors"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    directory.write("config.json", config_text({}));
    directory.write("one.safetensors",
                    safetensors_bytes(R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0,1]},
                        "w": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
                                      2));
    directory.write(
        "two.safetensors",
        safetensors_bytes(R"({"y": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1));
    directory.write("model.safetensors.index.json", c.bytes);
    Words words = c.words;
    words.emplace_back("model.safetensors.index.json: ");
    test::expect_error([&] { Checkpoint::open(directory.path()); }, words);
  }
}

TEST(Malformed, Config) {
  const auto with = [](const std::string& key, const std::string& value) {
    return config_text({{key, value}});
  };
  const auto moe = [](const std::string& key, const std::string& value) {
    std::map<std::string, std::string> members = {{"architectures", R"(["Qwen3MoeForCausalLM"])"},
                                                  {"num_experts", "8"},
                                                  {"num_experts_per_tok", "2"},
                                                  {"moe_intermediate_size", "32"}};
    members[key] = value;
    return config_text(members);
  };
  const Case cases[] = {
      {"empty", "", {"not valid JSON"}},
      {"a number", "3", {"the file is 3", "an object"}},
      {"another architecture",
       with("architectures", R"(["LlamaForCausalM"])"),
       {"architectures[0]", "LlamaForCausalM", "nearest is LlamaForCausalLM"}},
      {"no architecture", with("architectures", ""), {"architectures", "missing"}},
      {"multimodal", with("text_config", "{}"), {"text_config", "multimodal"}},
      {"no heads", with("num_attention_heads", "0"), {"num_attention_heads is 0", "from 1"}},
      {"negative width", with("hidden_size", "-64"), {"hidden_size is -64"}},
      {"a huge number", with("num_hidden_layers", "1000000000000000000"), {"num_hidden_layers"}},
      {"a huger number", with("vocab_size", "1e30"), {"vocab_size is 1e+30"}},
      {"a text", with("vocab_size", "\"300\""), {"vocab_size is \"300\"", "an integer"}},
      {"kv heads", with("num_key_value_heads", "3"), {"num_key_value_heads is 3", "divide", "4"}},
      {"odd head_dim", with("head_dim", "15"), {"head_dim is 15", "even"}},
      {"heads that do not divide",
       config_text({{"head_dim", ""}, {"hidden_size", "66"}}),
       {"hidden_size is 66", "multiple"}},
      {"eps", with("rms_norm_eps", "-1"), {"rms_norm_eps is -1"}},
      {"theta", with("rope_theta", "0"), {"rope_theta is 0"}},
      {"rope type",
       with("rope_scaling", R"({"type": "mrope", "factor": 4})"),
       {"rope_scaling.type", "mrope", "llama3"}},
      {"rope of each layer type",
       with("rope_parameters", R"({"full_attention": {"rope_type": "default"}})"),
       {"rope_parameters.full_attention", "architecture"}},
      {"yarn betas",
       with("rope_scaling", R"({"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2})"),
       {"beta_fast is 1", "beta_slow, which is 2"}},
      {"linear factor",
       with("rope_scaling", R"({"type": "linear", "factor": 0.5})"),
       {"rope_scaling.factor is 0.5"}},
      {"longrope factors",
       with("rope_scaling", R"({"type": "longrope", "factor": 4, "short_factor": [1],
          "long_factor": [1, 2]})"),
       {"short_factor has 1 entries", "need 8"}},
      {"rope factor missing",
       with("rope_parameters", R"({"rope_type": "llama3"})"),
       {"rope_parameters.factor", "missing"}},
      {"rope factors",
       with("rope_scaling", R"({"rope_type": "llama3", "factor": 8,
          "low_freq_factor": 4, "high_freq_factor": 4,
          "original_max_position_embeddings": 8192})"),
       {"high_freq_factor is 4", "exceed"}},
      {"activation", with("hidden_act", "\"gelu\""), {"hidden_act", "gelu", "silu"}},
      {"layer types",
       config_text({{"architectures", R"(["Qwen3ForCausalLM"])"},
                    {"use_sliding_window", "true"},
                    {"layer_types", R"(["full_attention"])"}}),
       {"layer_types has 1 entries", "num_hidden_layers is 2"}},
      {"layer type",
       config_text({{"architectures", R"(["MistralForCausalLM"])"},
                    {"layer_types", R"(["full_attention", "linear_attention"])"}}),
       {"layer_types[1]", "linear_attention", "sliding_attention"}},
      {"window",
       config_text({{"architectures", R"(["MistralForCausalLM"])"}, {"sliding_window", "0"}}),
       {"sliding_window is 0"}},
      {"bool", with("tie_word_embeddings", "1"), {"tie_word_embeddings is 1", "true or false"}},
      {"dtype", with("torch_dtype", "\"float64\""), {"torch_dtype", "float64"}},
      {"eos", with("eos_token_id", "[-1]"), {"eos_token_id[0] is -1"}},
      {"more experts per token than experts",
       moe("num_experts_per_tok", "9"),
       {"num_experts_per_tok is 9", "to 8"}},
      {"dense layer out of range", moe("mlp_only_layers", "[2]"), {"mlp_only_layers[0] is 2"}},
      {"sparse step", moe("decoder_sparse_step", "0"), {"decoder_sparse_step is 0"}},
      {"quantisation method",
       with("quantization_config", R"({"quant_method": "gptq"})"),
       {"quantization_config.quant_method", "gptq", "modelopt"}},
      {"fp8 scales",
       with("quantization_config", R"({"quant_method": "fp8", "scale_fmt": "log"})"),
       {"scale_fmt", "log", "ue8m0"}},
      {"compressed format",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "marlin-24", "config_groups": {"group_0": {}}})"),
       {"format", "marlin-24", "pack-quantized"}},
      {"compressed bits",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "pack-quantized", "config_groups": {"g": {"weights": {"num_bits": 8}}}})"),
       {"config_groups.g.weights.num_bits is 8", "4 bits"}},
      {"compressed asymmetric",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "pack-quantized", "config_groups": {"g": {"weights": {"symmetric": false}}}})"),
       {"symmetric"}},
      {"compressed order",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "pack-quantized", "config_groups": {"g": {"weights": {"actorder": "group"}}}})"),
       {"actorder", "group"}},
      {"compressed groups",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "nvfp4-pack-quantized", "config_groups": {"g": {"weights": {"group_size": 32}}}})"),
       {"group_size is 32", "16"}},
      {"compressed without groups",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "float-quantized", "config_groups": {}})"),
       {"config_groups", "at least one"}},
      {"sparse",
       with("quantization_config", R"({"quant_method": "compressed-tensors",
          "format": "float-quantized", "sparsity_config": {"format": "sparse-24-bitmask"}})"),
       {"sparsity_config.format", "sparse-24"}},
      {"fp8 block of 0",
       with("quantization_config", R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"),
       {"weight_block_size[0]"}},
      {"nvfp4 group",
       with("quantization_config",
            R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})"),
       {"group_size is 32", "16"}},
      {"nvfp4 group in config_groups",
       with("quantization_config",
            R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
              "config_groups": {"group_0": {"weights": {"group_size": 128}}}})"),
       {"config_groups.group_0.weights.group_size is 128"}},
      {"modelopt algorithm",
       with("quantization_config", R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"),
       {"W4A8_AWQ", "NVFP4"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    directory.write("config.json", c.bytes);
    Words words = c.words;
    words.emplace_back("config.json: ");
    test::expect_error([&] { Checkpoint::open(directory.path()); }, words);
  }
  const TempDirectory directory;
  directory.write("config.json", config_text({}));
  test::expect_error([&] { Checkpoint::open(directory.path()); },
                     {directory.path(), "model.safetensors", "model.safetensors.index.json"});
  for (const auto& [text, word] :
       {std::pair(R"({"temperature": -1})", "temperature is -1"),
        std::pair(R"({"top_p": 2})", "top_p is 2"), std::pair(R"({"top_k": 0.5})", "top_k is 0.5"),
        std::pair(R"({"repetition_penalty": 0})", "repetition_penalty is 0")}) {
    directory.write("generation_config.json", text);
    test::expect_error([&] { Checkpoint::open(directory.path()); },
                       {"generation_config.json: ", word});
  }
}

TEST(Malformed, Llama2cCheckpoint) {
  const std::string good = test::llama2c_bytes();
  const auto patched = [&](size_t field, int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + field * 4, &value, 4);
    return bytes;
  };
  const Case cases[] = {
      {"empty", "", {"0 bytes", "28"}},
      {"version 1", patched(0, 0x616b3432), {"version 12", "version 0"}},
      {"dim", patched(0, -8), {"dim is -8"}},
      {"dim not a multiple of the heads", patched(0, 9), {"dim is 9", "n_heads"}},
      {"layers", patched(2, 0), {"n_layers is 0"}},
      {"many layers", patched(2, 65536), {"n_layers is 65536"}},
      {"heads", patched(3, 0), {"n_heads is 0"}},
      {"kv heads", patched(4, 3), {"n_kv_heads is 3"}},
      {"vocabulary", patched(5, std::numeric_limits<int32_t>::min()), {"vocab_size"}},
      {"large vocabulary", patched(5, 1 << 29), {"model.embed_tokens.weight", "needs"}},
      {"length", patched(6, 0), {"seq_len is 0"}},
      {"long tables", patched(6, 1 << 29), {"freq_cis_real"}},
      {"truncated", good.substr(0, good.size() - 1), {"the file has"}},
      {"longer", good + "1234", {"describes", "the file has"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    const std::string path = directory.write("model.bin", c.bytes);
    Words words = c.words;
    words.emplace_back("model.bin: ");
    test::expect_error([&] { Checkpoint::open(path); }, words);
  }
  test::expect_error([] { Checkpoint::open("/nonexistent/model"); }, {"/nonexistent/model"});
}

}  // namespace
}  // namespace halftone
