// Attention on Hopper, host side: what it takes, which instance, and the launch; with the bodies
// for the simulator, as the host compiler sees the kernel.
#include <array>
#include <utility>

#include "base/message.h"
#include "hw/entry.h"
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_tiles.h"
#include "pipe/tensor_map.h"

namespace halftone {

namespace {

using namespace attention_sm90;

struct Instance {
  KernelImage image;
  LaunchShape (*shape)(const Params&, uint32_t multiprocessors);
};

const void* entry_of([[maybe_unused]] hw::Type type, [[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  return gpu_entry(type, tile);
#else
  return nullptr;
#endif
}

template <hw::Type kType, int kIndex>
Instance instance() {
  using Kernel = Forward<kType, kTiles[kIndex]>;
  return {{"attention_sm90", Arch::sm_90a, entry_of(kType, kIndex), hw::sim_body<Kernel>,
           sizeof(Params), Kernel::kThreads, Kernel::kMinBlocks},
          Kernel::shape};
}
template <hw::Type kType, int... kIndex>
Instance instance(int tile, std::integer_sequence<int, kIndex...>) {
  constexpr Instance (*kMake[])() = {instance<kType, kIndex>...};
  return kMake[tile]();
}

int tile_of(const AttentionProblem& p) {
  const bool masked =
      p.causal || p.window_left >= 0 || p.window_right >= 0 || p.attention_chunk_size > 0;
  return choose_tile(static_cast<uint32_t>(p.head_dim), static_cast<uint32_t>(value_dim(p)), masked,
                     static_cast<uint32_t>(p.query_length), static_cast<uint32_t>(p.key_length));
}
hw::Type type_of(const AttentionProblem& p) {
  return p.mode.qk == Format::bf16 ? hw::Type::bf16 : hw::Type::f16;
}

// [batch, length, heads, dim] in boxes of `rows` x 64 elements of one head.
pipe::TensorBox box_of(const char* what, const Tensor& t, hw::Type type, uint32_t rows) {
  pipe::TensorBox box;
  box.type = type, box.address = const_cast<void*>(t.data()), box.rank = 4;
  for (uint32_t i = 0; i < 4; ++i) box.extent[i] = static_cast<uint64_t>(t.size(3 - int(i)));
  for (uint32_t i = 0; i < 3; ++i) {
    const int dim = 2 - static_cast<int>(i);
    int64_t stride = t.stride(dim);
    // Where there is one index only, its stride is not used, but checked by the driver.
    if (t.size(dim) == 1) stride = (t.size(3) + 7) / 8 * 8;
    require(stride % 8 == 0 && stride > 0, what, " has stride ", stride, " in dimension ", dim,
            "; tensor copies want multiples of 8 elements");
    box.stride[i] = static_cast<uint64_t>(stride) * 2;
  }
  require(reinterpret_cast<uintptr_t>(t.data()) % 16 == 0, what,
          " does not begin at a multiple of 16 bytes, which tensor copies want");
  box.box = {64, 1, rows, 1, 1};
  box.swizzle = tile::Swizzle::b128;
  return box;
}

KeyRange range_of(const AttentionProblem& p) {
  constexpr auto bound = [](int64_t x) {  // beyond any length: unbounded
    return static_cast<int32_t>(x > kLongest ? -1 : x);
  };
  KeyRange range;
  range.queries = static_cast<int32_t>(p.query_length);
  range.count = static_cast<int32_t>(p.key_length);
  range.left = bound(p.window_left);
  range.right = p.causal ? 0 : bound(p.window_right);
  range.chunk = p.attention_chunk_size > kLongest ? static_cast<int32_t>(kLongest)
                                                  : static_cast<int32_t>(p.attention_chunk_size);
  return range;
}

void run_sm90(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0) return;
  const Device& device = plan.device;
  const int index = tile_of(p);
  const Tile& tile = kTiles[index];
  const hw::Type type = type_of(p);
  constexpr auto kAll = std::make_integer_sequence<int, kTileCount>();
  const Instance kernel = type == hw::Type::bf16 ? instance<hw::Type::bf16>(index, kAll)
                                                 : instance<hw::Type::f16>(index, kAll);

  Params params{};
  auto& maps = *static_cast<pipe::TensorMapCache*>(plan.workspace.get());
  params.q = maps.get(box_of("q", t.q, type, 64 * tile.warpgroups), device);
  if (p.key_length > 0) {
    params.k = maps.get(box_of("k", t.k, type, tile.keys / tile.cluster), device);
    params.v = maps.get(box_of("v", t.v, type, tile.keys / tile.cluster), device);
  }
  params.out = const_cast<uint16_t*>(t.out.data<uint16_t>());
  params.out_batch = t.out.stride(0), params.out_row = t.out.stride(1);
  params.out_head = t.out.stride(2);
  for (int dim = 0; dim < 3; ++dim) {
    require(t.out.size(dim) == 1 || t.out.stride(dim) % 8 == 0, "out has stride ",
            t.out.stride(dim), " in dimension ", dim, "; it must be a multiple of 8 elements");
  }
  require(reinterpret_cast<uintptr_t>(t.out.data()) % 16 == 0,
          "out does not begin at a multiple of 16 bytes");
  if (p.lse) {
    params.lse = const_cast<float*>(t.lse.data<float>());
    params.lse_batch = t.lse.stride(0), params.lse_head = t.lse.stride(1);
    params.lse_row = t.lse.stride(2);
  }
  if (p.sinks) params.sinks = t.sinks.data<float>(), params.sink_stride = t.sinks.stride(0);
  params.batch = static_cast<uint32_t>(p.batch), params.heads = static_cast<uint32_t>(p.heads);
  params.group = static_cast<uint32_t>(p.heads / p.kv_heads);
  params.value_dim = static_cast<uint32_t>(value_dim(p));
  params.range = range_of(p);
  params.scale_log2 = softmax_scale(p) * kLog2e;
  // The keys and values of a section take half of the L2: the rest is Q, O and what comes next.
  const DeviceProperties& chip = properties(device);
  const double bytes = static_cast<double>(p.key_length + 1) *
                       static_cast<double>(p.head_dim + value_dim(p)) * 2 / params.group;
  const double pairs = static_cast<double>(chip.l2_bytes) / 2 / bytes;
  params.section = pairs < 1 ? 1 : pairs > 65536 ? 65536 : static_cast<uint32_t>(pairs);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

std::string describe_sm90(const AttentionPlan& plan) {
  const Tile& tile = kTiles[tile_of(plan.problem)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups, clusters of ", tile.cluster);
}

void prepare_sm90(AttentionPlan& plan) {
  plan.workspace = std::make_shared<pipe::TensorMapCache>();
}

}  // namespace

std::string attention_sm90_error(const AttentionProblem& p) {
  if (std::string error = attention_problem_error(p); !error.empty()) return error;
  const Format format = p.mode.qk;
  if ((format != Format::bf16 && format != Format::f16) || p.mode.pv != format) {
    return concat("mode is ", to_string(p.mode), "; attention_sm90 takes bf16+bf16 and f16+f16");
  }
  const Format formats[] = {p.q, p.k, p.v, p.out};
  const char* const names[] = {"q", "k", "v", "out"};
  for (int i = 0; i < 4; ++i) {
    if (formats[i] != format) {
      return concat(names[i], " is ", name(formats[i]), "; attention_sm90 takes that of the mode, ",
                    name(format));
    }
  }
  if (p.head_dim % 8 != 0 || value_dim(p) % 8 != 0) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90 takes multiples of 8");
  }
  if (p.head_dim > 256 || value_dim(p) > 256) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90 takes up to 256");
  }
  if (p.query_length > kLongest || p.key_length > kLongest) {
    return concat("query_length is ", p.query_length, " and key_length ", p.key_length,
                  "; attention_sm90 takes up to ", kLongest);
  }
  if (!(softmax_scale(p) > 0)) {
    return concat("softmax_scale is ", softmax_scale(p), "; attention_sm90 takes positive ones");
  }
  if (p.paged) return "paged is set; attention_sm90 takes contiguous keys";
  if (p.variable_length) return "variable_length is set; attention_sm90 takes one length";
  if (p.mask) return "mask is set; attention_sm90 takes causal, windows and chunks";
  if (p.softcap != 0) return concat("softcap is ", p.softcap, "; attention_sm90 takes none (0)");
  return {};
}

const AttentionGpu attention_sm90_gpu = {prepare_sm90, run_sm90, describe_sm90};

}  // namespace halftone
