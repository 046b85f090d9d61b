// Writing a model in another format: the tensors, and the files that describe them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/message.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/checkpoint/save_config.h"
#include "engine/checkpoint/written_parts.h"
#include "engine/model/weights.h"

namespace halftone {

namespace {

namespace fs = std::filesystem;

WeightFormat parse_checkpoint_format(const std::string& text) {
  const WeightFormat format = parse_weight_format(text);
  bool described = format.plain.has_value();
  if (format.quantized) {
    // The divisors of every group, so that the format alone is judged.
    const KeptFormat kept{format.quantized->format, true, format.quantized->scaling};
    described = !written_parts(kept, {1024, 1024}).empty();
  }
  if (!described) {
    fail(ErrorCode::invalid_argument, "format is \"", text,
         "\", which no checkpoint convention describes; choose bf16, f16, f32, fp8, fp8_row, ",
         "fp8_tensor, nvfp4, mxfp8, mxfp4, int8 or int4 (", text.empty() ? "any" : text,
         " works on loading, with weights)");
  }
  return format;
}

// Interleaved rotary pairs (2i, 2i + 1) of each head become (i, i + D / 2): the order of
// Transformers. x [heads * D, K].
Tensor half_split_rows(const Tensor& x, int64_t head_dim) {
  Tensor result = Tensor::empty(x.shape(), x.format());
  const auto row = static_cast<size_t>(packed_bytes(x.format(), x.size(1)));
  const auto* from = x.data<char>();
  auto* to = result.data<char>();
  for (int64_t i = 0; i < x.size(0); ++i) {
    const int64_t head = i / head_dim, within = i % head_dim;
    const int64_t pair = within % (head_dim / 2), half = within / (head_dim / 2);
    const int64_t source = head * head_dim + 2 * pair + half;
    std::copy_n(from + static_cast<size_t>(source) * row, row, to + static_cast<size_t>(i) * row);
  }
  return result;
}

bool is_rotated(const std::string& name) {
  return name.find("self_attn.q_proj.") != std::string::npos ||
         name.find("self_attn.k_proj.") != std::string::npos;
}

// The tensors of one checkpoint as the writer asks for them: one at a time, in the order of their
// names, in which a weight and its scales are neighbours. So one converted weight is held.
class Converter {
 public:
  Converter(const Checkpoint& checkpoint, const WeightFormat& target)
      : checkpoint_(checkpoint), target_(target) {}

  // Bytes of what the tensor becomes in the file.
  int64_t bytes(const std::string& name) const {
    int64_t total = 0;
    for (const WrittenPart& part : parts_of(name)) {
      total += packed_bytes(part.format, element_count(part.shape));
    }
    return total;
  }
  // Announces these: the tensor itself, and its scales by the names of its convention.
  std::vector<std::string> add(const std::string& name, SafetensorsWriter& writer) {
    std::vector<std::string> names;
    for (const WrittenPart& part : parts_of(name)) {
      names.push_back(module_of(name) + part.ending);
      writer.add(names.back(), part.format, part.shape,
                 [this, name, of = part.of] { return of(converted(name)); });
    }
    return names;
  }

 private:
  static bool is_weight(const std::string& name) { return name.ends_with(".weight"); }
  static std::string module_of(const std::string& name) {
    return is_weight(name) ? name.substr(0, name.size() - 7) : name;
  }

  // An Error when the format cannot hold the tensor.
  std::vector<WrittenPart> parts_of(const std::string& name) const {
    const Tensor stored = stored_tensor(checkpoint_, name);
    const KeptFormat kept = kept_format(name, stored, target_);
    if (!is_weight(name)) {
      if (role_of(name) == TensorRole::linear) {
        fail(ErrorCode::unsupported, "tensor ", name,
             " holds the stacked experts of a layer, which ",
             "save_checkpoint does not write; ask for the format on loading, with weights");
      }
      return {{"", kept.format, stored.shape(), [](const Tensor& t) { return t; }}};
    }
    std::vector<WrittenPart> parts = written_parts(kept, stored.shape());
    if (parts.empty()) {
      fail(ErrorCode::unsupported, "tensor ", name, " is stored as ", halftone::name(kept.format),
           " with ", to_string(kept.scaling),
           " scales, which save_checkpoint cannot write; ask for bf16");
    }
    return parts;
  }

  const Tensor& converted(const std::string& name) {
    if (name == held_name_) return held_;
    Tensor stored = stored_tensor(checkpoint_, name);
    const ModelConfig& config = checkpoint_.config();
    if (config.rope.style == RopeStyle::interleaved && is_rotated(name)) {
      stored = half_split_rows(stored, config.head_dim);
    }
    held_ = keep(name, stored, target_, stream_);
    held_name_ = name;
    return held_;
  }

  const Checkpoint& checkpoint_;
  const WeightFormat& target_;
  Stream stream_;
  std::string held_name_;
  Tensor held_;
};

// A directory that becomes the destination when everything is written, and vanishes otherwise.
class PendingDirectory {
 public:
  explicit PendingDirectory(const std::string& destination)
      : destination_(fs::path(destination).lexically_normal()) {
    if (!destination_.has_filename()) destination_ = destination_.parent_path();
    require(!destination_.empty(), "destination is empty; name the directory to write");
    std::error_code error;
    if (fs::exists(destination_, error)) {
      const bool empty = fs::is_directory(destination_, error) && fs::is_empty(destination_, error);
      require(empty, "destination ", destination_.string(),
              " exists and is not an empty directory; choose a new one or remove it first");
    }
    pending_ = destination_;
    pending_ += concat(".partial-", getpid());
    fs::create_directories(pending_, error);
    if (error) {
      fail(ErrorCode::io, "cannot create ", pending_.string(), ": ", error.message());
    }
  }
  ~PendingDirectory() {
    std::error_code ignored;
    if (!done_) fs::remove_all(pending_, ignored);
  }
  void publish() {
    std::error_code error;
    fs::rename(pending_, destination_, error);
    if (error) {
      fail(ErrorCode::io, "cannot rename ", pending_.string(), " to ", destination_.string(), ": ",
           error.message());
    }
    done_ = true;
  }
  std::string file(const char* name) const { return (pending_ / name).string(); }

 private:
  fs::path destination_, pending_;
  bool done_ = false;
};

std::string shard_name(size_t shard, size_t count) {
  if (count == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return text;
}

}  // namespace

void save_checkpoint(const std::string& source, const std::string& destination,
                     const std::string& format, const std::function<void(double)>& progress,
                     int64_t shard_bytes) {
  require(shard_bytes > 0, "shard_bytes is ", shard_bytes, "; it must be at least 1");
  const WeightFormat target = parse_checkpoint_format(format);
  const std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(source);
  Converter converter(*checkpoint, target);
  std::deque<SafetensorsWriter> shards;
  std::map<std::string, size_t> shard_of;
  int64_t total = 0;
  for (const std::string& name : checkpoint->names()) {
    if (is_unused(name)) continue;
    const int64_t bytes = converter.bytes(name);
    if (shards.empty() || shards.back().total_bytes() + bytes > shard_bytes) {
      shards.emplace_back().add_metadata("format", "pt");  // Transformers refuses files without it
    }
    for (const std::string& part : converter.add(name, shards.back())) {
      shard_of[part] = shards.size() - 1;
    }
    total += bytes;
  }

  PendingDirectory directory(destination);
  int64_t written = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto share = [&](double fraction) {
      const double bytes = static_cast<double>(shards[i].total_bytes()) * fraction;
      progress((static_cast<double>(written) + bytes) /
               static_cast<double>(std::max<int64_t>(total, 1)));
    };
    shards[i].write(directory.file(shard_name(i, shards.size()).c_str()),
                    progress ? std::function<void(double)>(share) : nullptr);
    written += shards[i].total_bytes();
  }
  if (shards.size() > 1) {
    std::map<std::string, std::string> files;
    for (const auto& [part, shard] : shard_of) files[part] = shard_name(shard, shards.size());
    write_index(directory.file("model.safetensors.index.json"), total, files);
  }
  write_model_files(source, checkpoint->config(), target,
                    [&](const char* file) { return directory.file(file); });
  directory.publish();
}

}  // namespace halftone
