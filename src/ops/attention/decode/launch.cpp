// Decode attention (one query token) over a cache, host side: what it takes, which instance, how
// keys are split, and the launch; with the simulator bodies of the kernels.
#include <algorithm>
#include <iterator>
#include <limits>

#include "base/backend.h"
#include "base/cuda/load_kernel.h"
#include "base/device_memory.h"
#include "base/message.h"
#include "hw/entry.h"
#include "ops/attention/decode/dequantise.cuh"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"
#include "ops/attention/decode/launch.h"
#include "ops/attention/sm80/launch.h"
#include "ops/attention/sm80/operand.h"

namespace halftone {

namespace {

using namespace attention_decode;

// A split must be worth a CTA's start and its part of the combine. Up to kMaxUnsplitKeys keys a
// second split costs more than it saves.
constexpr int64_t kMaxUnsplitKeys = 512, kMinSplitKeys = 128;
// Keys of a split with `batch_invariant`, or as many more as leave kMaxSplits.
constexpr int64_t kInvariantSplitKeys = 512, kMaxSplits = 128;
// With more query heads a KV head than two tiles every key would be read three times.
constexpr int64_t kMaxGroup = 2 * kRows;

struct Instance {
  KernelImage image;
  LaunchShape (*shape)(const Params&);
  int64_t steps;       // 512 bytes of partial results a row tile and split
  uint32_t key_bytes;  // the longest accesses of rows of K and of V
  uint32_t value_bytes;
  uint32_t blocks;     // CTAs a multiprocessor
  int64_t max_splits;  // that the combining CTA has room for
  float factor;        // of dequantised values
};

const void* entry_of([[maybe_unused]] Format format, [[maybe_unused]] int64_t dim) {
#if HALFTONE_ATTENTION_GPU
  return is_plain_float(format) ? float16_entry(format, dim) : quantised_entry(format, dim);
#else
  return nullptr;
#endif
}

template <Format kFormat, uint32_t kDim>
Instance instance() {
  using Kernel = Decode<kFormat, kDim>;
  constexpr Arch kArch = CacheFormat<kFormat>::kBits == 16 ? Arch::sm_80 : Arch::sm_90a;
  static_assert(kMaxSplits <= Kernel::Combiner::kMaxSplits);
  return {{"attention_decode", kArch, entry_of(kFormat, kDim), hw::sim_body<Kernel>, sizeof(Params),
           Kernel::kThreads, Kernel::kMinBlocks},
          Kernel::shape,
          Kernel::kSteps,
          Kernel::kKeyPiece,
          Kernel::kValuePiece,
          Kernel::kMinBlocks,
          Kernel::Combiner::kMaxSplits,
          CacheFormat<kFormat>::kFactor};
}
template <Format kFormat>
Instance instance(int64_t dim) {
  return dim == 128 ? instance<kFormat, 128>() : instance<kFormat, 64>();
}
Instance instance_of(const AttentionProblem& p) {
  switch (p.k) {
    case Format::f16:
      return instance<Format::f16>(p.head_dim);
    case Format::fp8_e4m3:
      return instance<Format::fp8_e4m3>(p.head_dim);
    case Format::int8:
      return instance<Format::int8>(p.head_dim);
    case Format::nvfp4:
      return instance<Format::nvfp4>(p.head_dim);
    default:
      return instance<Format::bf16>(p.head_dim);
  }
}

int64_t row_tiles(const AttentionProblem& p) { return (p.heads / p.kv_heads + kRows - 1) / kRows; }

struct Splits {
  int64_t count = 1, keys = 0;  // keys of each; 0: the sequence's in equal parts
};
Splits splits_of(const AttentionProblem& p, const Device& device) {
  Splits splits;
  if (p.batch_invariant) {
    splits.keys = kInvariantSplitKeys;
    while (p.key_length > splits.keys * kMaxSplits) splits.keys *= 2;
    splits.count = std::max<int64_t>((p.key_length + splits.keys - 1) / splits.keys, 1);
    return splits;
  }
  int64_t keys = p.key_length;
  if (p.window_left >= 0) keys = std::min(keys, p.window_left + 1);
  if (p.attention_chunk_size > 0) keys = std::min(keys, p.attention_chunk_size);
  if (keys <= kMaxUnsplitKeys) return splits;
  const int64_t blocks = p.batch * p.kv_heads * row_tiles(p);
  const Instance kernel = instance_of(p);
  const int64_t slots = int64_t{properties(device).sm_count} * kernel.blocks;
  splits.count = std::clamp<int64_t>(slots / std::max<int64_t>(blocks, 1), 1,
                                     std::min(keys / kMinSplitKeys, kernel.max_splits));
  return splits;
}

// What a plan keeps between runs, and the plan of attention_sm80 for rows that lie otherwise.
struct Workspace {
  std::shared_ptr<const void> memory;
  float *out = nullptr, *stats = nullptr;
  uint32_t* arrived = nullptr;
  AttentionPlan fallback;
};

void prepare_decode(AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  auto workspace = std::make_shared<Workspace>();
  workspace->fallback = plan;
  attention_sm80_gpu.prepare(workspace->fallback);
  plan.workspace_bytes = workspace->fallback.workspace_bytes;
  const Instance kernel = instance_of(p);
  const Splits splits = splits_of(p, plan.device);
  if (splits.count > 1) {
    const int64_t tiles = p.batch * p.kv_heads * row_tiles(p);
    const int64_t out = tiles * splits.count * kernel.steps * 128,
                  stats = tiles * splits.count * 2 * kRows;
    const int64_t bytes = (out + stats + tiles) * 4;
    void* memory = nullptr;
    workspace->memory = allocate_memory(plan.device, static_cast<size_t>(bytes), &memory);
    workspace->out = static_cast<float*>(memory);
    workspace->stats = workspace->out + out;
    workspace->arrived = reinterpret_cast<uint32_t*>(workspace->stats + stats);
    fill_memory(plan.device, workspace->arrived, 0, static_cast<size_t>(tiles) * 4);
    plan.workspace_bytes += bytes;
  }
  plan.workspace = std::move(workspace);
  load(kernel.image, plan.device);
}

// Rows of K or V, and their scales, as one pool: pages, or sequences, follow one another at the
// distance of their rows. False where they do not, or where accesses would not be aligned.
bool pool_of(const Tensor& t, Operand& x, uint32_t piece) {
  const int64_t outer = t.rank() == 4 ? t.size(0) : 1, rows = t.size(t.rank() - 3);
  const auto even = [&](int64_t outer_bytes, int64_t& row_bytes) {
    if (rows == 1) row_bytes = outer_bytes;
    return outer == 1 || outer_bytes == rows * row_bytes;
  };
  bool fits = x.copy_bytes >= piece && x.scale_shift == 0 &&
              outer * rows <= std::numeric_limits<int32_t>::max();
  fits = fits && even(x.batch_bytes, x.row_bytes);
  if (x.scaling == Scales::row || x.scaling == Scales::block) {
    fits = fits && even(x.scale_batch_bytes, x.scale_row_bytes);
  }
  const int64_t scales = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.scales)) |
                         x.scale_row_bytes | x.scale_head_bytes;
  return fits && (x.scaling != Scales::block || scales % 4 == 0);
}

void run_decode(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0) return;
  const auto& workspace = *static_cast<const Workspace*>(plan.workspace.get());
  const Instance kernel = instance_of(p);
  Params params{};
  attention_sm80::set_problem(p, t, params);
  if (!pool_of(t.k, params.k, kernel.key_bytes) || !pool_of(t.v, params.v, kernel.value_bytes)) {
    return attention_sm80_gpu.run(workspace.fallback, t, stream);
  }
  const Splits splits = splits_of(p, plan.device);
  params.row_tiles = static_cast<uint32_t>(row_tiles(p));
  params.splits = static_cast<uint32_t>(splits.count);
  params.split_keys = static_cast<uint32_t>(splits.keys);
  params.partial_out = workspace.out, params.partial_stats = workspace.stats;
  params.arrived = workspace.arrived;
  params.value_factor = kernel.factor;
  params.batch_rows = static_cast<int32_t>(t.k.size(t.k.rank() - 3));
  // Outside a graph the kernels of an earlier call may still run.
  params.prefetch_cache =
      p.prefetch_cache && (stream.device().kind() != Device::Kind::cuda || cuda::captures());
  if (p.page_size) params.page_divisor = pipe::Divisor(params.page_size);
  launch(kernel.image, with_pdl(kernel.shape(params), stream), params, stream);
}

std::string describe_decode(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  const Splits splits = splits_of(p, plan.device);
  return concat("one query token, ", std::min(p.heads / p.kv_heads, int64_t{kRows}),
                " heads a block, keys in ", splits.count, " splits, ", plan.workspace_bytes,
                " bytes of workspace");
}

// Limits of all instances.
std::string decode_error(const AttentionProblem& p, const char* kernel) {
  // What falls back to attention_sm80 must suit that kernel, too.
  if (std::string error = attention_sm80_error(p); !error.empty()) return error;
  if (p.query_length != 1) {
    return concat("query_length is ", p.query_length, "; ", kernel, " takes 1");
  }
  const bool known = std::find(std::begin(kDims), std::end(kDims), p.head_dim) != std::end(kDims);
  if (!known || value_dim(p) != p.head_dim) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p), "; ", kernel,
                  " takes 64 and 128 for both");
  }
  if (p.v != p.k) {
    return concat("k is ", name(p.k), " and v ", name(p.v), "; ", kernel, " takes one format");
  }
  if (p.mask) return concat("mask is given; ", kernel, " takes no mask tensor");
  if (p.heads / p.kv_heads > kMaxGroup) {
    return concat("heads / kv_heads is ", p.heads / p.kv_heads, "; ", kernel, " takes up to ",
                  kMaxGroup);
  }
  // The grid's third extent.
  if (p.batch > 65535) return concat("batch is ", p.batch, "; ", kernel, " takes up to 65535");
  return {};
}

}  // namespace

std::string attention_decode_error(const AttentionProblem& p) {
  const char* const kernel = "attention_decode";
  if (std::string error = decode_error(p, kernel); !error.empty()) return error;
  const bool half = p.mode.qk == Format::f16;
  if (p.mode.pv != p.mode.qk || (!half && p.mode.qk != Format::bf16)) {
    return concat("mode is ", to_string(p.mode), "; ", kernel, " takes bf16+bf16 and f16+f16");
  }
  if (p.k != p.mode.qk || (half && p.q != Format::f16)) {
    return concat("q is ", name(p.q), " and k ", name(p.k), "; ", kernel,
                  " takes the mode's format, and any q where it is bf16");
  }
  return {};
}

std::string attention_decode_quantised_error(const AttentionProblem& p) {
  const char* const kernel = "attention_decode_quantised";
  if (std::string error = decode_error(p, kernel); !error.empty()) return error;
  if (p.mode.qk == Format::f32 || p.mode.qk == Format::f16 || p.mode.pv != Format::bf16) {
    return concat("mode is ", to_string(p.mode), "; ", kernel,
                  " takes those of bf16 products and P in bf16");
  }
  if (p.k != Format::fp8_e4m3 && p.k != Format::int8 && p.k != Format::nvfp4) {
    return concat("k is ", name(p.k), "; ", kernel, " takes fp8, int8 and nvfp4");
  }
  return {};
}

const AttentionGpu attention_decode_gpu = {prepare_decode, run_decode, describe_decode};

}  // namespace halftone
