// Every reader of untrusted files, run on given bytes to its end: for fuzzing.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/jinja/template.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine_files/tiny_checkpoint.h"
#include "engine_files/tiny_sentencepiece.h"
#include "engine_files/tiny_tokenizer.h"

namespace halftone::test {

struct FileReader {
  const char* name;
  std::string valid;  // bytes that are accepted
  // Reads the bytes, and everything that they describe. Only Error may come out.
  std::function<void(const TempDirectory&, const std::string&)> read;
};

// A sum over all bytes, so that a sanitizer sees each of them.
inline uint64_t touch(const Tensor& t) {
  uint64_t sum = 0;
  const auto* bytes = static_cast<const uint8_t*>(t.data());
  for (int64_t i = 0; i < packed_bytes(t.format(), t.numel()); ++i) sum += bytes[i];
  return sum;
}

inline void read_checkpoint(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  volatile uint64_t sum = 0;
  for (const std::string& name : checkpoint->names()) {
    try {
      sum = sum + touch(checkpoint->tensor(name));
      if (name.ends_with(".weight")) {
        const Tensor weight = checkpoint->weight(name.substr(0, name.size() - 7));
        if (weight.has_scales()) sum = sum + touch(weight.scales());
      }
    } catch (const Error&) {  // one tensor that is no weight; the others are read
    }
  }
}

inline void use(const Tokenizer& tokenizer) {
  for (const char* text :
       {"hello world", "  \n\t12345 <s> </s>", "caf\u00e9 e\u0301 \U0001f600", "\xff"}) {
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    tokenizer.decode(tokens);
    for (const int32_t token : tokens) tokenizer.piece(token, 1);
  }
}

inline void use_tokenizer(const std::string& path) { use(*Tokenizer::load(path)); }

// With limits that keep a run short.
inline void use_template(const std::string& source) {
  using jinja::Value;
  const Value messages = Value::from_json(
      R"([{"role": "system", "content": " be\n terse "},
          {"role": "user", "content": [{"type": "text", "text": "caf\u00e9"}], "n": 1.5},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
           "arguments": {"a": [1, true, {}]}}}]}])",
      "messages");
  jinja::Limits limits;
  limits.steps = 20'000;
  limits.bytes = size_t{1} << 20;
  jinja::Template(source, "fuzz")
      .render({{"messages", messages}, {"bos_token", "<s>"}, {"add_generation_prompt", true}}, 0,
              limits);
}

inline std::vector<FileReader> file_readers() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F8_E4M3","shape":[2,32],)"
      R"("data_offsets":[0,64]},"a.weight_scale_inv":{"dtype":"F32","shape":[1,1],)"
      R"("data_offsets":[64,68]},"b.weight":{"dtype":"BF16","shape":[3],"data_offsets":[68,74]}})";
  const std::string shard = safetensors_bytes(header, 74);
  const std::string quantization =
      R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],)"
      R"( "modules_to_not_convert": ["lm_head"]})";
  const std::string config =
      config_text({{"quantization_config", quantization},
                   {"rope_scaling", R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
          "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
                   {"eos_token_id", "[1, 2]"}});
  TinyTokenizer tiny;
  tiny.normalizer = R"({"type": "NFC"})";
  tiny.pre_tokenizer = split_pre_tokenizer(R"(\p{L}+|\p{N}{1,3}|\s+(?!\S)|[^\s]+)");
  tiny.added_tokens = added_token(263, "<s>", true) + ", " +
                      added_token(264, "</s>", false, R"(, "lstrip": true, "rstrip": true)");
  tiny.post_processor =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}},
          {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [263]}}})";
  return {
      {"safetensors", shard,
       [config](const TempDirectory& d, const std::string& bytes) {
         d.write("config.json", config);
         d.write("model.safetensors", bytes);
         read_checkpoint(d.path());
       }},
      {"config", config,
       [shard](const TempDirectory& d, const std::string& bytes) {
         d.write("config.json", bytes);
         d.write("model.safetensors", shard);
         read_checkpoint(d.path());
       }},
      {"generation_config",
       R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0,
           "repetition_penalty": 1.05, "eos_token_id": [7, 8], "bos_token_id": 3})",
       [config, shard](const TempDirectory& d, const std::string& bytes) {
         d.write("config.json", config);
         d.write("generation_config.json", bytes);
         d.write("model.safetensors", shard);
         read_checkpoint(d.path());
       }},
      {"index", R"({"metadata": {"total_size": 74}, "weight_map": {"a.weight": "1.safetensors",
                    "b.weight": "1.safetensors", "a.weight_scale_inv": "1.safetensors"}})",
       [config, shard](const TempDirectory& d, const std::string& bytes) {
         d.write("config.json", config);
         d.write("1.safetensors", shard);
         d.write("model.safetensors.index.json", bytes);
         read_checkpoint(d.path());
       }},
      {"llama2c", llama2c_bytes(),
       [](const TempDirectory& d, const std::string& bytes) {
         read_checkpoint(d.write("model.bin", bytes));
       }},
      {"tokenizer_json", tiny.json(),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.json", bytes));
       }},
      {"byte_fallback_json", byte_fallback_json(),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.json", bytes));
       }},
      {"unigram_json", unigram_json(),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.json", bytes));
       }},
      {"llama2c_tokenizer", llama2c_tokenizer_bytes(),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.bin", bytes));
       }},
      {"sentencepiece_unigram", sentencepiece_bytes(1),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.model", bytes));
       }},
      {"sentencepiece_bpe", sentencepiece_bytes(2),
       [](const TempDirectory& d, const std::string& bytes) {
         use_tokenizer(d.write("tokenizer.model", bytes));
       }},
      {"jinja",
       R"({%- macro m(a, b=1) %}{{ a ~ b }}{% endmacro -%}{% set n = namespace(x=0) %}
          {% for k in messages if k.role != 'x' %}{% set n.x = n.x + loop.index %}{{ m(k.role) }}
          {{- k.content | trim | replace('a', 'b') | tojson(indent=2) }}{% else %}-{% endfor %}
          {{ messages[::-1] | map(attribute='role') | join(', ') if n.x is odd else 'a b'.split() }})",
       [](const TempDirectory&, const std::string& bytes) { use_template(bytes); }},
      {"tiktoken", tiktoken_bytes(),
       [](const TempDirectory&, const std::string& bytes) {
         use(PipelineTokenizer(bytes, {R"(\p{L}+|\s+|[^\s]+)", {{300, "</s>"}}, 300}, "fuzz"));
       }},
  };
}

}  // namespace halftone::test
