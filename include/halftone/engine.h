// Models, sessions and text generation.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/activation_function.h"
#include "halftone/device.h"
#include "halftone/error.h"
#include "halftone/kv_cache.h"
#include "halftone/quantize.h"
#include "halftone/rope.h"
#include "halftone/sampling.h"
#include "halftone/stream.h"

namespace halftone {

// --- text <-> tokens -----------------------------------------------------------------------------

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // tokenizer.json or a SentencePiece .model (BPE or Unigram), a tiktoken file of a known
  // vocabulary, or llama2.c's tokenizer.bin, told apart by their contents; `path` is the file or
  // the model's directory. `vocabulary` of the model (0: not known) tells apart models that share a
  // tiktoken file but not its special tokens.
  static std::unique_ptr<Tokenizer> load(const std::string& path, int64_t vocabulary = 0);
  // `special`: add the tokens the model expects around a text (bos), and match special tokens in
  // it.
  virtual std::vector<int32_t> encode(std::string_view text, bool special = true) const = 0;
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const = 0;
  // Bytes that one token adds behind `previous`; may end inside a UTF-8 sequence.
  virtual std::string piece(int32_t token, int32_t previous = -1) const = 0;
  virtual int64_t size() const = 0;
};

// Splits a stream of bytes so that no UTF-8 sequence is cut: `push` returns what is complete.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string flush();  // the rest, invalid bytes as U+FFFD

 private:
  std::string pending_;
};

// --- models --------------------------------------------------------------------------------------

// Of every architecture read so far; unused fields keep their defaults.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", "MixtralForCausalLM", ...
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t intermediate = 0, vocabulary = 0, max_positions = 0;
  float rms_eps = 1e-5f;
  RopeOptions rope;
  bool tied_embeddings = false, qk_norm = false, attention_bias = false;
  int64_t experts = 0, experts_per_token = 0, expert_intermediate = 0;
  bool renormalize = true;
  bool router_bias = false;
  GatedActivation gated;           // of the experts
  bool attention_sinks = false;    // a learned logit a head beside the keys
  std::vector<bool> sparse_layer;  // which layers are MoE
  // Tokens that a layer's queries see, their own included; 0: all. Empty: all in every layer.
  std::vector<int64_t> windows;
  std::vector<int32_t> eos;
  int32_t bos = -1;
};

struct LoadOptions {
  // Empty: as the checkpoint stores them, mapped from its files. A plain float format ("bf16"):
  // every tensor in it. A name for parse_quantization ("nvfp4"): the matrices of the layers in it;
  // embeddings and output head keep 16 bits, norms, routers and biases stay as stored.
  std::string weights;
  Device device;
  int threads = 0;
  std::function<void(double fraction)> progress;  // 0..1, called from the loading thread
};

// Weights of a model; immutable, shared by any number of sessions.
class Model {
 public:
  // A directory with config.json and safetensors, or a llama2.c checkpoint (.bin with tokenizer.bin
  // or tok*.bin beside it).
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& = {});
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const SamplingOptions& default_sampling() const = 0;  // generation_config.json
  virtual int64_t weight_bytes() const = 0;
  virtual std::string describe() const = 0;  // one line: architecture, parameters, formats
};

struct SessionOptions {
  // f32, bf16, f16, fp8_e4m3, nvfp4. In fp8_e4m3 a layer whose checkpoint has static scales
  // (k_scale, v_scale) is quantised with them; others scale every token and head by itself.
  Format kv = Format::bf16;
  int64_t max_length = 0;  // 0: the model's
  // Format of activations between operations; f32 makes results comparable across formats.
  Format activations = Format::f32;
  int threads = 0;
  // Sequences that go in step, each pass with as many tokens of every one.
  int64_t sequences = 1;
  // A pass of one token is captured as a CUDA graph and replayed, where it can be.
  bool graph = true;
  // A sequence's logits are the same bits whatever the other sequences and however many there are.
  // On GPUs kernels are otherwise chosen by how many tokens a pass has; this mode takes one for all
  // counts, and is slower (docs/why.md). On CPUs they are the same anyway.
  bool batch_invariant = false;
  // Called before each layer's attention with what it takes in of this pass's tokens, in the format
  // of the activations: q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim], rotated.
  std::function<void(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v)>
      on_attention;
};

// One sequence, or several in step: a KV cache and the activations. Sessions on one model may run
// on several threads. Tokens of several sequences are given sequence by sequence.
class Session {
 public:
  explicit Session(std::shared_ptr<const Model>, const SessionOptions& = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Appends tokens and returns the logits [sequences, vocabulary] after each one's last (f32).
  std::span<const float> forward(std::span<const int32_t> tokens);
  // Logits after every token of a single sequence: [tokens, vocabulary].
  Tensor forward_all(std::span<const int32_t> tokens);
  // Decoding: a pass with one token of each sequence, `tokens`, then one with those that the
  // samplers, one of each sequence, draw behind it, ... `passes` in all, or until `on_tokens`,
  // which is given what was drawn behind each pass, says false. The session then holds the passes
  // whose tokens were given. On a GPU the device draws and the host only reads the tokens, while
  // the next pass is under way already, unless a sampler has penalties, a bias or typical-p.
  void decode(std::span<const int32_t> tokens, int64_t passes, std::span<Sampler> samplers,
              const std::function<bool(std::span<const int32_t>)>& on_tokens);
  // With the token of the largest logit.
  void decode_greedily(std::span<const int32_t> tokens, int64_t passes,
                       const std::function<bool(std::span<const int32_t>)>& on_tokens);
  // How a pass of one token runs: "a graph of 419 operations", or "operation by operation" with the
  // reason. Known after two passes.
  std::string decoding() const;
  int64_t length() const;
  int64_t max_length() const;
  int64_t sequences() const;
  std::span<const int32_t> tokens(int64_t sequence = 0) const;  // everything the cache holds
  // Forgets everything from `length` on.
  void truncate(int64_t length);
  int64_t bytes() const;  // cache, activations and workspaces
  // The same once it holds max_length tokens; prepares the passes of a long prompt.
  int64_t bytes_when_full();
  const Model& model() const;
  Stream& stream();  // the threads it computes with

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Bytes on the model's device, counted without reading a weight.
struct MemoryNeed {
  int64_t weights = 0, session = 0;  // of a session that is full
  int64_t total() const { return weights + session; }
};
MemoryNeed memory_needed(const std::string& path, const LoadOptions&, const SessionOptions&);

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  SamplingOptions sampling;
  std::vector<std::string> stop;  // text that ends generation; not part of the result
  bool ignore_eos = false;
  bool special = true;  // bos and special tokens in the prompt
  std::stop_token stop_token;
};

struct GenerateResult {
  std::string text;  // behind the prompt
  std::vector<int32_t> tokens;
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0;
  enum class Finish : uint8_t { eos, length, stop_text, stopped } finish = Finish::length;
};

// Appends the prompt to the session and the tokens it generates, so that a further call continues
// the text; `truncate(0)` begins a new one. End-of-sequence tokens are in neither result nor
// session. `on_text` receives whole UTF-8 sequences as they come, never a part of a stop text.
GenerateResult generate(Session&, std::string_view prompt, const GenerateOptions& = {},
                        const std::function<void(std::string_view)>& on_text = {});
// The same behind a prompt of tokens, as they are.
GenerateResult generate(Session&, std::span<const int32_t> prompt, const GenerateOptions& = {},
                        const std::function<void(std::string_view)>& on_text = {});

// Quality of a model on a text: mean negative log likelihood per token in nats, and, given the
// logits of a better model, mean KL divergence from it.
struct TextScore {
  double nll = 0, perplexity = 0, kl = 0;
  int64_t tokens = 0;
};
// Windows of `window` tokens, each scored from its own start: behind the start token where the
// tokenizer adds one (it counts to the window), else from the second token on. Both sessions are
// empty afterwards.
TextScore score(Session&, std::string_view text, int64_t window = 256, Session* teacher = nullptr);

// Writes the model (a directory or a llama2.c file) as a checkpoint directory that `Model::load`
// and Transformers' conventions read: bf16, f16 and f32 plain, fp8 128x128 as weight_scale_inv,
// nvfp4 as ModelOpt (without input scales), fp8 per row or tensor, int8, int4, mxfp8 and mxfp4 as
// compressed-tensors. Other formats are an Error, as is a destination that exists and is not an
// empty directory; it appears only when whole. More than `shard_bytes` become several files with an
// index; a tensor and its scales stay in one.
void save_checkpoint(const std::string& source, const std::string& destination,
                     const std::string& format, const std::function<void(double)>& progress = {},
                     int64_t shard_bytes = 5'000'000'000);

}  // namespace halftone
