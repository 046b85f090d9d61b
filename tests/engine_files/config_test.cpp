#include "engine/config.h"

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
    return read(test::config_text({{"quantization_config", text}})).scheme;
  };
  const WeightScheme fp8 = scheme(
      R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [64, 128], "modules_to_not_convert": ["lm_head"]})");
  EXPECT_EQ(fp8.method, WeightScheme::Method::fp8);
  EXPECT_EQ(fp8.block_rows, 64);
  EXPECT_EQ(fp8.block_cols, 128);
  EXPECT_EQ(fp8.excluded, std::vector<std::string>{"lm_head"});
  const WeightScheme nvfp4 = scheme(
      R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
          "ignore": ["lm_head", "*router*"], "kv_cache_quant_algo": "FP8"})");
  EXPECT_EQ(nvfp4.method, WeightScheme::Method::nvfp4);
  EXPECT_EQ(nvfp4.excluded.size(), 2u);
  const WeightScheme beside =
      read(test::config_text({}), "",
           R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
               "kv_cache_quant_algo": null, "group_size": 16, "exclude_modules": ["lm_head"]}})")
          .scheme;
  EXPECT_EQ(beside.method, WeightScheme::Method::nvfp4);
  EXPECT_EQ(beside.excluded, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(read(test::config_text({})).scheme.method, WeightScheme::Method::none);
}

}  // namespace
}  // namespace halftone
