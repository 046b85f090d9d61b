// Attention on sm_80 and later, host side: what it takes, which instance, how keys are split, and
// the launches; with the simulator bodies of the kernels.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/cuda/load_kernel.h"
#include "base/device_memory.h"
#include "base/message.h"
#include "base/token_scales.h"
#include "hw/entry.h"
#include "ops/attention/sm80/instances.h"
#include "ops/attention/sm80/launch.h"
#include "ops/attention/sm80/operand.h"

namespace halftone {

namespace {

using namespace attention_sm80;

// With at most kMaxSplitRows rows a KV head in one tile, keys are split by kSplitKeys, or by as
// many more as leave kMaxSplits of the longest sequence: a split is worth a CTA's start, 256 KB of
// K and V in BF16 heads of 128, and a whole number of the second-level tiles of P in NVFP4.
constexpr int64_t kMaxSplitRows = 64, kSplitKeys = 512, kMaxSplits = 128;

struct Instance {
  KernelImage image;
  LaunchShape (*shape)(const Params&);
  int64_t rows;  // of a tile
};

enum class Entry { bf16, f16, tf32, combine };
const void* entry_of([[maybe_unused]] Entry entry, [[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  return entry == Entry::bf16   ? bf16_entry(tile)
         : entry == Entry::f16  ? f16_entry(tile)
         : entry == Entry::tf32 ? tf32_entry(tile)
                                : combine_entry();
#else
  return nullptr;
#endif
}

template <hw::Type kType, int kIndex>
Instance instance(Entry entry) {
  using Attention = Kernel<kType, kIndex>;
  return {{"attention_sm80", Arch::sm_80, entry_of(entry, kIndex), hw::sim_body<Attention>,
           sizeof(Params), Attention::kThreads, Attention::kMinBlocks},
          Attention::shape,
          Attention::kRows};
}
template <hw::Type kType>
Instance instance(Entry entry, int tile) {
  return tile == 0   ? instance<kType, 0>(entry)
         : tile == 1 ? instance<kType, 1>(entry)
                     : instance<kType, 2>(entry);
}

// FP16 MMAs take all three operands in FP16; with others, and in FP32, the TF32 split is exact.
Instance instance_of(const AttentionProblem& p) {
  const int tile = choose_tile(std::max(p.head_dim, value_dim(p)));
  if (p.mode.qk == Format::f16 && p.q == Format::f16 && p.k == Format::f16 && p.v == Format::f16) {
    return instance<hw::Type::f16>(Entry::f16, tile);
  }
  return p.mode.qk == Format::f32 || p.mode.qk == Format::f16
             ? instance<hw::Type::tf32>(Entry::tf32, tile)
             : instance<hw::Type::bf16>(Entry::bf16, tile);
}

struct Splits {
  int64_t keys = 0, count = 1;
  int64_t partial_stride = 0, rows = 0;  // of the partials, in all
};
Splits splits_of(const AttentionProblem& p) {
  Splits splits;
  const int64_t rows = p.query_length * (p.heads / p.kv_heads);
  if (rows > std::min(kMaxSplitRows, instance_of(p).rows) || p.key_length <= kSplitKeys)
    return splits;
  splits.keys = kSplitKeys;
  while (p.key_length > splits.keys * kMaxSplits) splits.keys *= 2;
  splits.count = (p.key_length + splits.keys - 1) / splits.keys;
  splits.partial_stride = (value_dim(p) + 1) / 2 * 2;
  splits.rows = p.batch * p.kv_heads * splits.count * rows;
  return splits;
}

// Split-KV partials for the combine kernel.
struct Workspace {
  std::shared_ptr<const void> memory;
  float* data = nullptr;
};
int64_t workspace_bytes(const Splits& splits) {
  return splits.rows * (splits.partial_stride + 2) * 4;
}
KernelImage combine_image() {
  return {"attention_sm80 combine", Arch::sm_80,    entry_of(Entry::combine, 0),
          hw::sim_body<Combine>,    sizeof(Params), Combine::kThreads,
          Combine::kMinBlocks};
}

void prepare_sm80(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  plan.workspace_bytes = workspace_bytes(splits_of(plan.problem));
  if (plan.workspace_bytes > 0) {
    void* data = nullptr;
    workspace->memory =
        allocate_memory(plan.device, static_cast<size_t>(plan.workspace_bytes), &data);
    workspace->data = static_cast<float*>(data);
  }
  plan.workspace = workspace;
  load(instance_of(plan.problem).image, plan.device);
  if (splits_of(plan.problem).count > 1) load(combine_image(), plan.device);
}

int64_t byte_stride(const Tensor& t, int dim) {
  return t.size(dim) == 1 ? 0 : t.stride(dim) * bits(t.format()) / 8;
}
uint64_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

Operand attention_sm80::operand_of(const Tensor& t, bool paged) {
  Operand x{};
  x.data = static_cast<const uint8_t*>(t.data());
  x.format = t.format();
  const int row = t.rank() - 3, head = t.rank() - 2;
  x.row_bytes = byte_stride(t, row), x.head_bytes = byte_stride(t, head);
  if (row == 1) x.batch_bytes = byte_stride(t, 0);
  const uint64_t all =
      address(x.data) | static_cast<uint64_t>(x.row_bytes | x.head_bytes | x.batch_bytes);
  x.copy_bytes = static_cast<uint8_t>(all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 0);
  if (!t.has_scales()) return x;
  const Tensor& scales = t.scales();
  x.scales = static_cast<const uint8_t*>(scales.data());
  x.scale_row_bytes = byte_stride(scales, row), x.scale_head_bytes = byte_stride(scales, head);
  if (row == 1) x.scale_batch_bytes = byte_stride(scales, 0);
  if (is_block(t.format())) {
    x.scaling = Scales::block;
    if (t.tensor_scale().defined()) x.tensor_scale = t.tensor_scale().data<float>();
    return x;
  }
  const bool shared =
      x.scale_row_bytes == 0 && x.scale_head_bytes == 0 && (!paged || x.scale_batch_bytes == 0);
  x.scaling = shared ? Scales::tensor : Scales::row;
  x.scale_shift = static_cast<uint8_t>(
      std::countr_zero(static_cast<uint64_t>(tokens_of_scale(t.size(row), scales.size(row)))));
  return x;
}

namespace {

KeyRange range_of(const AttentionProblem& p) {
  constexpr auto bound = [](int64_t x) {  // beyond any length: unbounded
    return static_cast<int32_t>(x > kLongest ? -1 : x);
  };
  KeyRange range;
  range.queries = static_cast<int32_t>(p.query_length);
  range.count = static_cast<int32_t>(p.key_length);
  range.left = bound(p.window_left);
  range.right = p.causal ? 0 : bound(p.window_right);
  range.chunk = static_cast<int32_t>(std::min(p.attention_chunk_size, kLongest));
  return range;
}

void set_layout(const AttentionProblem& p, const AttentionTensors& t, Params& params) {
  params.q = operand_of(t.q, false);
  params.k = operand_of(t.k, p.page_size.has_value());
  params.v = operand_of(t.v, p.page_size.has_value());
  const int row = t.out.rank() - 3;
  Output& out = params.out;
  out.data = const_cast<uint8_t*>(t.out.data<uint8_t>());
  out.format = p.out;
  out.row = t.out.stride(row), out.head = t.out.stride(row + 1);
  out.batch = row == 1 ? t.out.stride(0) : 0;
  out.pairs = (out.row | out.head | out.batch) % 2 == 0 &&
              address(out.data) % static_cast<uint64_t>(bits(p.out) / 4) == 0;
  if (p.lse) {
    params.lse = const_cast<float*>(t.lse.data<float>());
    params.lse_batch = t.lse.stride(0), params.lse_head = t.lse.stride(1);
    params.lse_row = t.lse.stride(2);
  }
  if (p.sinks) params.sinks = t.sinks.data<float>(), params.sink_stride = t.sinks.stride(0);
  if (p.mask) {
    params.mask = {static_cast<const uint8_t*>(t.mask.data()),
                   byte_stride(t.mask, 0),
                   byte_stride(t.mask, 1),
                   byte_stride(t.mask, 2),
                   byte_stride(t.mask, 3),
                   *p.mask};
  }
  const auto lengths = [](const Tensor& x) { return x.defined() ? x.data<int32_t>() : nullptr; };
  params.used_keys = lengths(t.seqused_k);
  params.cu_queries = lengths(t.cu_seqlens_q), params.cu_keys = lengths(t.cu_seqlens_k);
  int64_t room = t.k.size(params.cu_keys != nullptr ? 0 : 1);
  if (p.page_size) {
    params.page_table = t.page_table.data<int32_t>();
    params.page_table_stride = t.page_table.stride(0);
    params.page_size = static_cast<uint32_t>(*p.page_size);
    params.page_count = static_cast<uint32_t>(t.k.size(0));
    room = t.page_table.size(1) * *p.page_size;
  }
  params.key_rows = static_cast<int32_t>(std::min(room, kLongest));
  params.query_rows = static_cast<int32_t>(params.cu_queries != nullptr ? t.q.size(0) : 0);
}

}  // namespace

void attention_sm80::set_problem(const AttentionProblem& p, const AttentionTensors& t,
                                 Params& params) {
  set_layout(p, t, params);
  params.batch = static_cast<uint32_t>(p.batch), params.heads = static_cast<uint32_t>(p.heads);
  params.kv_heads = static_cast<uint32_t>(p.kv_heads);
  params.group = params.heads / params.kv_heads;
  params.head_dim = static_cast<uint32_t>(p.head_dim);
  params.value_dim = static_cast<uint32_t>(value_dim(p));
  params.range = range_of(p);
  params.scale_log2 = softmax_scale(p) * kLog2e;
  params.softcap = p.softcap * kLog2e;
  params.value_factor = 1;
}

namespace {

void run_sm80(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0) return;
  const Instance kernel = instance_of(p);
  const Splits splits = splits_of(p);
  Params params{};
  set_problem(p, t, params);
  params.row_tiles =
      static_cast<uint32_t>((p.query_length * params.group + kernel.rows - 1) / kernel.rows);
  params.splits = static_cast<uint32_t>(splits.count);
  params.split_keys = static_cast<uint32_t>(splits.keys);
  params.partial_stride = static_cast<uint32_t>(splits.partial_stride);
  params.partial_out = static_cast<const Workspace*>(plan.workspace.get())->data;
  params.partial_stats = params.partial_out + splits.rows * splits.partial_stride;
  switch (p.mode.pv) {
    case Format::f32:
      params.rounding = AttentionRounding::none;
      break;
    case Format::f16:
      params.rounding = AttentionRounding::f16;
      break;
    case Format::fp8_e4m3:
      params.rounding = AttentionRounding::e4m3;
      params.value_factor /= kE4m3PScale;
      break;
    case Format::nvfp4:
      params.rounding = AttentionRounding::nvfp4;
      params.value_factor /= kNvfp4PScale;
      break;
    default:
      params.rounding = AttentionRounding::bf16;
  }
  launch(kernel.image, kernel.shape(params), params, stream);
  if (splits.count == 1) return;
  launch(combine_image(), Combine::shape(params), params, stream);
}

std::string describe_sm80(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  const Splits splits = splits_of(p);
  const std::string rows =
      concat("tiles of ", instance_of(p).rows, " rows, queries x heads of a ", "KV head");
  if (splits.count == 1) return rows;
  return concat(rows, ", ", splits.count, " splits of ", splits.keys, " keys, ",
                workspace_bytes(splits), " bytes of workspace");
}

}  // namespace

std::string attention_sm80_error(const AttentionProblem& p) {
  if (std::string error = attention_problem_error(p); !error.empty()) return error;
  const int64_t dims[] = {p.head_dim, value_dim(p)};
  for (int i = 0; i < 2; ++i) {
    if (dims[i] > 256) {
      return concat(i == 0 ? "head_dim" : "value_dim", " is ", dims[i],
                    "; attention_sm80 takes up to 256");
    }
  }
  if (p.query_length > kLongest || p.key_length > kLongest || p.page_size.value_or(0) > kLongest) {
    return concat("query_length is ", p.query_length, ", key_length ", p.key_length,
                  " and page_size ", p.page_size.value_or(0), "; attention_sm80 takes up to ",
                  kLongest);
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t rows = p.query_length * (p.heads / p.kv_heads);
  if (rows > kMost || p.batch > kMost || p.kv_heads > kMost) {
    return concat("query_length x heads / kv_heads is ", rows, ", batch ", p.batch,
                  " and kv_heads ", p.kv_heads, "; attention_sm80 takes up to ", kMost);
  }
  const double blocks = static_cast<double>(p.batch) * static_cast<double>(p.kv_heads) *
                        std::max(static_cast<double>(rows) / 32, static_cast<double>(kMaxSplits));
  if (blocks > static_cast<double>(kMost)) {
    return concat("batch is ", p.batch, " and kv_heads ", p.kv_heads,
                  ", which make more blocks than a grid of attention_sm80 has");
  }
  return {};
}

const AttentionGpu attention_sm80_gpu = {prepare_sm80, run_sm80, describe_sm80};

}  // namespace halftone
