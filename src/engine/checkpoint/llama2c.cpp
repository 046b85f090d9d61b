#include "engine/checkpoint/llama2c.h"

#include <cstring>
#include <map>

#include "engine/checkpoint/mapped_file.h"
#include "engine/json.h"

namespace halftone {

namespace {

constexpr size_t kHeaderBytes = 28;
constexpr int32_t kMagic = 0x616b3432;  // "ak42": begins the files of versions 1 and 2

Llama2cHeader decode_header(const char* bytes) {
  int32_t fields[7];
  std::memcpy(fields, bytes, sizeof fields);
  Llama2cHeader h{fields[0], fields[1], fields[2], fields[3],
                  fields[4], fields[5], fields[6], true};
  if (h.vocabulary < 0 && h.vocabulary != std::numeric_limits<int32_t>::min()) {
    h.shared_classifier = false;
    h.vocabulary = -h.vocabulary;
  }
  return h;
}

// One sentence on what is wrong with the header, or "".
std::string header_fault(const Llama2cHeader& h) {
  const auto outside = [](const char* field, int32_t value, int32_t high) {
    return value >= 1 && value <= high
               ? std::string()
               : concat(field, " is ", value, "; it must be from 1 to ", high);
  };
  for (const std::string& fault :
       {outside("dim", h.dim, 1 << 24), outside("hidden_dim", h.hidden_dim, 1 << 24),
        outside("n_layers", h.layers, 1 << 16), outside("n_heads", h.heads, 1 << 16),
        outside("n_kv_heads", h.kv_heads, 1 << 16), outside("vocab_size", h.vocabulary, 1 << 30),
        outside("seq_len", h.max_length, 1 << 30)}) {
    if (!fault.empty()) return fault;
  }
  if (h.dim % h.heads != 0 || h.dim / h.heads % 2 != 0) {
    return concat("dim is ", h.dim, "; it must be an even multiple of n_heads, which is ", h.heads);
  }
  if (h.heads % h.kv_heads != 0) {
    return concat("n_kv_heads is ", h.kv_heads, "; it must divide n_heads, which is ", h.heads);
  }
  return "";
}

class Llama2cCheckpoint : public Checkpoint {
 public:
  explicit Llama2cCheckpoint(const std::string& path) : file_(MappedFile::open(path)) {
    if (file_->size() < kHeaderBytes) {
      malformed("the file has ", file_->size(),
                " bytes; the header of a llama2.c checkpoint takes ", kHeaderBytes);
    }
    int32_t first = 0;
    std::memcpy(&first, file_->data(), sizeof first);
    if (first == kMagic) {
      int32_t version = 0;
      std::memcpy(&version, file_->data() + 4, sizeof version);
      fail(ErrorCode::unsupported, path, ": a llama2.c checkpoint of version ", version,
           "; version 0 (the legacy export) is read");
    }
    const Llama2cHeader h = decode_header(file_->data());
    if (const std::string fault = header_fault(h); !fault.empty()) malformed(fault);
    fill_config(h);
    map_weights(h);
  }

  const ModelConfig& config() const override { return config_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(name);
    return result;
  }
  bool contains(const std::string& name) const override { return tensors_.count(name) != 0; }
  Tensor tensor(const std::string& name) const override {
    const auto place = tensors_.find(name);
    if (place == tensors_.end()) {
      fail(ErrorCode::invalid_argument, "tensor ", quote(name), " is not in ", file_->path(),
           "; the nearest is ", quote(nearest(name, names())));
    }
    return place->second;
  }
  Tensor weight(const std::string& prefix) const override { return tensor(prefix + ".weight"); }

 private:
  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, file_->path(), ": ", parts...);
  }

  void fill_config(const Llama2cHeader& h) {
    config_.architecture = "LlamaForCausalLM";
    config_.hidden = h.dim;
    config_.layers = h.layers;
    config_.heads = h.heads;
    config_.kv_heads = h.kv_heads;
    config_.head_dim = h.dim / h.heads;
    config_.intermediate = h.hidden_dim;
    config_.vocabulary = h.vocabulary;
    config_.max_positions = h.max_length;
    config_.rms_eps = 1e-5f;
    config_.rope.theta = 10000;
    config_.rope.style = RopeStyle::interleaved;
    config_.tied_embeddings = h.shared_classifier;
    config_.sparse_layer.assign(static_cast<size_t>(h.layers), false);
    config_.bos = 1;
    // These models separate texts by bos, so bos ends a text as eos does.
    config_.eos = {1, 2};
  }

  // Takes tensors of `shape` from the file, one per name, in file order.
  void take(const std::vector<std::string>& names, const Shape& shape) {
    // Extents are below 2^30 and ranks at most 2: no overflow.
    const auto bytes = static_cast<uint64_t>(element_count(shape)) * 4;
    for (const std::string& name : names) {
      if (bytes > file_->size() - offset_) {
        malformed("tensor ", name, " ", to_string(shape), " needs ", bytes, " bytes at byte ",
                  offset_, "; the file has ", file_->size());
      }
      char* data = const_cast<char*>(file_->data()) + offset_;
      tensors_.emplace(name, Tensor::share(file_, data, shape, row_major(shape), Format::f32));
      offset_ += bytes;
    }
  }

  void skip(uint64_t bytes, const char* what) {
    if (bytes > file_->size() - offset_) {
      malformed(what, " takes ", bytes, " bytes at byte ", offset_, "; the file has ",
                file_->size());
    }
    offset_ += bytes;
  }

  void map_weights(const Llama2cHeader& h) {
    // The smallest model with so many layers must fit, or their names alone would fill the memory.
    if (static_cast<uint64_t>(h.layers) * static_cast<uint64_t>(h.dim) * 4 > file_->size()) {
      malformed("n_layers is ", h.layers, " and dim ", h.dim, ", more than the file's ",
                file_->size(), " bytes hold");
    }
    const auto per_layer = [&](const char* suffix) {
      std::vector<std::string> names;
      for (int32_t i = 0; i < h.layers; ++i) {
        names.push_back(concat("model.layers.", i, ".", suffix, ".weight"));
      }
      return names;
    };
    const int64_t dim = h.dim, hidden = h.hidden_dim, vocabulary = h.vocabulary;
    const int64_t kv = dim / h.heads * h.kv_heads;
    take({"model.embed_tokens.weight"}, {vocabulary, dim});
    take(per_layer("input_layernorm"), {dim});
    take(per_layer("self_attn.q_proj"), {dim, dim});
    take(per_layer("self_attn.k_proj"), {kv, dim});
    take(per_layer("self_attn.v_proj"), {kv, dim});
    take(per_layer("self_attn.o_proj"), {dim, dim});
    take(per_layer("post_attention_layernorm"), {dim});
    take(per_layer("mlp.gate_proj"), {hidden, dim});
    take(per_layer("mlp.down_proj"), {dim, hidden});
    take(per_layer("mlp.up_proj"), {hidden, dim});
    take({"model.norm.weight"}, {dim});
    // Cosines and sines of all positions, which are computed here instead.
    const uint64_t angles = static_cast<uint64_t>(h.max_length) * (h.dim / h.heads / 2) * 4;
    skip(angles, "the table freq_cis_real");
    skip(angles, "the table freq_cis_imag");
    if (!h.shared_classifier) take({"lm_head.weight"}, {vocabulary, dim});
    if (offset_ != file_->size()) {
      malformed("the header describes ", offset_, " bytes; the file has ", file_->size());
    }
  }

  std::shared_ptr<const MappedFile> file_;
  uint64_t offset_ = kHeaderBytes;
  ModelConfig config_;
  SamplingOptions sampling_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

std::optional<Llama2cHeader> probe_llama2c(const std::string& path) {
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error&) {  // not readable: no checkpoint
    return std::nullopt;
  }
  if (file->size() < kHeaderBytes) return std::nullopt;
  const Llama2cHeader header = decode_header(file->data());
  if (!header_fault(header).empty()) return std::nullopt;
  return header;
}

std::unique_ptr<Checkpoint> open_llama2c(const std::string& path) {
  return std::make_unique<Llama2cCheckpoint>(path);
}

}  // namespace halftone
