// Writing a model in another format: the tensors, and the files that describe them.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/message.h"
#include "engine/checkpoint.h"
#include "engine/safetensors_writer.h"
#include "engine/save_config.h"
#include "engine/weights.h"

namespace halftone {

namespace {

namespace fs = std::filesystem;
WeightFormat parse_checkpoint_format(const std::string& text) {
  const WeightFormat format = parse_weight_format(text);
  const bool fp8 = format.quantized && format.quantized->format == Format::fp8_e4m3 &&
                   format.quantized->scaling == default_scaling(Format::fp8_e4m3);
  const bool nvfp4 = format.quantized && format.quantized->format == Format::nvfp4;
  if (!format.plain && !fp8 && !nvfp4) {
    fail(ErrorCode::invalid_argument, "format is \"", text,
         "\", which no checkpoint convention describes; choose bf16, f16, f32, fp8 or nvfp4 (",
         text.empty() ? "any" : text, " works on loading, with weights)");
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

// Scales of another tensor; they are written anew with it.
bool is_companion(const std::string& name) {
  for (const char* ending : {".weight_scale_inv", ".weight_scale", ".weight_scale_2"}) {
    const std::string_view end(ending);
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
      return true;
    }
  }
  return false;
}

// The tensors of one checkpoint as the writer asks for them: one at a time, in the order of their
// names, in which a weight and its scales are neighbours. So one converted weight is held.
class Converter {
 public:
  Converter(const Checkpoint& checkpoint, const WeightFormat& target)
      : checkpoint_(checkpoint), target_(target) {}

  // Announces what the tensor becomes in the file: itself, and its scales by the names of its
  // convention. An Error when the format cannot hold it.
  void add(const std::string& name, SafetensorsWriter& writer) {
    const Tensor stored = stored_tensor(checkpoint_, name);
    const KeptFormat kept = kept_format(name, stored, target_);
    const Shape shape = stored.shape();
    writer.add(name, kept.format, shape, [this, name] { return converted(name); });
    if (!kept.scaled) return;
    if (kept.format == Format::nvfp4) {
      writer.add(name + "_scale", Format::fp8_e4m3, {shape[0], shape[1] / 16},
                 [this, name] { return converted(name).scales(); });
      writer.add(name + "_scale_2", Format::f32, Shape{},
                 [this, name] { return converted(name).tensor_scale().reshape(Shape{}); });
      return;
    }
    const Scaling& s = kept.scaling;
    if (kept.format != Format::fp8_e4m3 || s.block_rows == 0 || s.block_cols == 0) {
      fail(ErrorCode::unsupported, "tensor ", name, " is stored as ", halftone::name(kept.format),
           " with ", to_string(s), " scales, which save_checkpoint cannot write; ask for bf16");
    }
    const Shape blocks{(shape[0] + s.block_rows - 1) / s.block_rows,
                       (shape[1] + s.block_cols - 1) / s.block_cols};
    writer.add(name + "_scale_inv", s.format, blocks,
               [this, name] { return converted(name).scales(); });
  }

 private:
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

}  // namespace

void save_checkpoint(const std::string& source, const std::string& destination,
                     const std::string& format, const std::function<void(double)>& progress) {
  const WeightFormat target = parse_checkpoint_format(format);
  const std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(source);
  Converter converter(*checkpoint, target);
  SafetensorsWriter writer;
  writer.add_metadata("format", "pt");  // Transformers refuses a file without it
  for (const std::string& name : checkpoint->names()) {
    if (!is_companion(name) && !is_unused(name)) converter.add(name, writer);
  }

  PendingDirectory directory(destination);
  writer.write(directory.file("model.safetensors"), progress);
  write_model_files(source, checkpoint->config(), target,
                    [&](const char* file) { return directory.file(file); });
  directory.publish();
}

}  // namespace halftone
