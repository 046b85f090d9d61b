#include "engine/model/config.h"

#include <gtest/gtest.h>

#include "engine_files/temp_directory.h"
#include "engine_files/tiny_checkpoint.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::TempDirectory;

CheckpointConfig read(const std::string& config, const std::string& generation = "",
                      const std::string& quantization = "") {
  const TempDirectory directory;
  directory.write("config.json", config);
  if (!generation.empty()) directory.write("generation_config.json", generation);
  if (!quantization.empty()) directory.write("hf_quant_config.json", quantization);
  return read_config(directory.path());
}

TEST(Config, LlamaOfBothKeyGenerations) {
  const std::string shared =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
          "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
          "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
          "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
          "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
          "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], )";
  const std::string scaling =
      R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192)";
  for (const std::string& text :
       {shared + R"("torch_dtype": "bfloat16", "rope_theta": 500000.0, "rope_scaling": {)" +
            scaling + "}}",
        shared + R"("dtype": "bfloat16", "rope_parameters": {"rope_theta": 500000.0, )" + scaling +
            "}}"}) {
    const ModelConfig model = read(text).model;
    EXPECT_EQ(model.architecture, "LlamaForCausalLM");
    EXPECT_EQ(model.hidden, 2048);
    EXPECT_EQ(model.layers, 16);
    EXPECT_EQ(model.heads, 32);
    EXPECT_EQ(model.kv_heads, 8);
    EXPECT_EQ(model.head_dim, 64);
    EXPECT_EQ(model.intermediate, 8192);
    EXPECT_EQ(model.vocabulary, 128256);
    EXPECT_EQ(model.max_positions, 131072);
    EXPECT_EQ(model.rms_eps, 1e-5f);
    EXPECT_EQ(model.rope.theta, 500000);
    EXPECT_EQ(model.rope.style, RopeStyle::half_split);
    ASSERT_TRUE(model.rope.llama3);
    EXPECT_EQ(model.rope.llama3->factor, 32);
    EXPECT_EQ(model.rope.llama3->high_freq_factor, 4);
    EXPECT_EQ(model.rope.llama3->original_max_position, 8192);
    EXPECT_TRUE(model.tied_embeddings);
    EXPECT_FALSE(model.qk_norm);
    EXPECT_EQ(model.bos, 128000);
    EXPECT_EQ(model.eos, (std::vector<int32_t>{128001, 128008, 128009}));
  }
}

TEST(Config, QwenDefaultsAndExperts) {
  const ModelConfig dense =
      read(test::config_text({{"architectures", R"(["Qwen3ForCausalLM"])"}, {"head_dim", "null"}}))
          .model;
  EXPECT_EQ(dense.head_dim, 128);  // not hidden / heads
  EXPECT_TRUE(dense.qk_norm);
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(dense.sparse_layer, std::vector<bool>(2, false));
  EXPECT_EQ(dense.rope.theta, 10000);
  EXPECT_FALSE(dense.rope.llama3);

  const ModelConfig moe = read(test::config_text({{"architectures", R"(["Qwen3MoeForCausalLM"])"},
                                                  {"num_hidden_layers", "6"},
                                                  {"num_experts", "8"},
                                                  {"num_experts_per_tok", "2"},
                                                  {"moe_intermediate_size", "32"},
                                                  {"norm_topk_prob", "true"},
                                                  {"decoder_sparse_step", "2"},
                                                  {"mlp_only_layers", "[3]"}}))
                              .model;
  EXPECT_EQ(moe.experts, 8);
  EXPECT_EQ(moe.experts_per_token, 2);
  EXPECT_EQ(moe.expert_intermediate, 32);
  EXPECT_TRUE(moe.renormalize);
  EXPECT_EQ(moe.sparse_layer, (std::vector<bool>{false, true, false, false, false, true}));
}

TEST(Config, GenerationConfigGivesSamplingAndEos) {
  const std::string config = test::config_text({{"eos_token_id", "2"}});
  const CheckpointConfig sampled =
      read(config, R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
                       "min_p": 0.05, "repetition_penalty": 1.1, "eos_token_id": [7, 8],
                       "bos_token_id": 3, "pad_token_id": 0, "transformers_version": "4.51.0"})");
  EXPECT_EQ(sampled.sampling.temperature, 0.6f);
  EXPECT_EQ(sampled.sampling.top_k, 20);
  EXPECT_EQ(sampled.sampling.top_p, 0.95f);
  EXPECT_EQ(sampled.sampling.min_p, 0.05f);
  EXPECT_EQ(sampled.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampled.model.eos, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(sampled.model.bos, 3);
  const CheckpointConfig greedy = read(config, R"({"temperature": 0.6, "top_p": 0.9})");
  EXPECT_EQ(greedy.sampling.temperature, 0);
  EXPECT_EQ(greedy.sampling.top_p, 1);
  EXPECT_EQ(greedy.model.eos, (std::vector<int32_t>{2}));
  EXPECT_EQ(read(config).sampling.temperature, 0);
  // Numbers of the original model's tokens, beyond a vocabulary that was cut down.
  EXPECT_TRUE(read(test::config_text({{"eos_token_id", "[151643, 151645]"}})).model.eos.empty());
}

TEST(Config, QuantizationOfEveryKind) {
  const auto scheme = [](const std::string& text) {
    return read(test::config_text({{"quantization_config", text}})).scheme->describe();
  };
  EXPECT_EQ(scheme(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                       "weight_block_size": [64, 128], "modules_to_not_convert": ["lm_head"]})"),
            "fp8 64x128");
  EXPECT_EQ(scheme(R"({"quant_method": "fp8", "activation_scheme": "static"})"), "fp8 per tensor");
  EXPECT_EQ(scheme(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
                       "ignore": ["lm_head", "*router*"], "kv_cache_quant_algo": "FP8"})"),
            "modelopt NVFP4");
  EXPECT_EQ(scheme(R"({"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 32})"),
            "modelopt MXFP8");
  EXPECT_EQ(scheme(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})"), "mxfp4");
  EXPECT_EQ(scheme(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
                       "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}},
                         "group_1": {"format": "nvfp4-pack-quantized",
                                     "weights": {"num_bits": 4, "group_size": 16}}}})"),
            "compressed-tensors float-quantized, nvfp4-pack-quantized");
  const CheckpointConfig beside =
      read(test::config_text({}), "",
           R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
               "kv_cache_quant_algo": null, "group_size": 16, "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(beside.scheme->describe(), "modelopt NVFP4");
  EXPECT_EQ(read(test::config_text({})).scheme, nullptr);
}

TEST(Config, RopeScalings) {
  const auto model = [](const char* key, const std::string& text) {
    return read(test::config_text({{key, text}})).model;  // head_dim 16, 128 positions
  };
  const ModelConfig linear = model("rope_scaling", R"({"type": "linear", "factor": 4})");
  ASSERT_TRUE(linear.rope.linear);
  EXPECT_EQ(linear.rope.linear->factor, 4);
  EXPECT_EQ(linear.max_positions, 512);
  const ModelConfig dynamic = model("rope_scaling", R"({"rope_type": "dynamic", "factor": 2})");
  ASSERT_TRUE(dynamic.rope.dynamic);
  EXPECT_EQ(dynamic.rope.dynamic->original_max_position, 128);
  EXPECT_EQ(dynamic.max_positions, 256);
  const ModelConfig yarn = model(
      "rope_parameters", R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "beta_fast": 16,
          "mscale": 0.7, "truncate": false, "original_max_position_embeddings": 64})");
  ASSERT_TRUE(yarn.rope.yarn);
  EXPECT_EQ(yarn.rope.theta, 1e6);
  EXPECT_EQ(yarn.rope.yarn->beta_fast, 16);
  EXPECT_EQ(yarn.rope.yarn->beta_slow, 1);
  EXPECT_EQ(yarn.rope.yarn->mscale, 0.7);
  EXPECT_FALSE(yarn.rope.yarn->truncate);
  EXPECT_FALSE(yarn.rope.yarn->attention_factor);
  EXPECT_EQ(yarn.max_positions, 256);
  // Without a factor: how far the positions exceed the trained ones, which stand beside the scaling
  // in Phi-3's files.
  const std::string factors = "[1, 1, 1, 1, 1, 1, 1, 1]";
  const ModelConfig longrope =
      read(test::config_text({{"original_max_position_embeddings", "32"},
                              {"rope_scaling", R"({"type": "su", "short_factor": )" + factors +
                                                   R"(, "long_factor": )" + factors + "}"}}))
          .model;
  ASSERT_TRUE(longrope.rope.longrope);
  EXPECT_EQ(longrope.rope.longrope->original_max_position, 32);
  EXPECT_EQ(longrope.rope.longrope->factor, 4);
  EXPECT_EQ(longrope.max_positions, 128);
  EXPECT_EQ(model("partial_rotary_factor", "0.5").rope.rotary_dim, 8);
}

TEST(Config, WindowsOfEveryArchitecture) {
  using Windows = std::vector<int64_t>;
  const auto windows = [](const std::string& architecture,
                          std::map<std::string, std::string> members) {
    members["architectures"] = "[\"" + architecture + "\"]";
    return read(test::config_text(members)).model.windows;
  };
  EXPECT_EQ(windows("LlamaForCausalLM", {{"sliding_window", "8"}}), Windows());
  EXPECT_EQ(windows("MistralForCausalLM", {}), (Windows{4096, 4096}));
  EXPECT_EQ(windows("MistralForCausalLM", {{"sliding_window", "null"}}), (Windows{0, 0}));
  EXPECT_EQ(windows("MistralForCausalLM", {{"sliding_window", "8"}}), (Windows{8, 8}));
  EXPECT_EQ(windows("Qwen2ForCausalLM", {{"sliding_window", "8"}, {"max_window_layers", "1"}}),
            Windows());
  EXPECT_EQ(windows("Qwen2ForCausalLM", {{"use_sliding_window", "true"},
                                         {"sliding_window", "8"},
                                         {"max_window_layers", "1"}}),
            (Windows{0, 8}));
  EXPECT_EQ(
      windows("Qwen3ForCausalLM", {{"use_sliding_window", "true"},
                                   {"sliding_window", "8"},
                                   {"layer_types", R"(["sliding_attention", "full_attention"])"}}),
      (Windows{8, 0}));
}

}  // namespace
}  // namespace halftone
