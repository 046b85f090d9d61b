// Attention over quantised operands on sm_90a, host side: what it takes, the dequantisation and the
// launches.
#include <algorithm>
#include <array>

#include "base/cuda/load_kernel.h"
#include "base/message.h"
#include "ops/attention/sm80/launch.h"
#include "ops/attention/sm80/operand.h"
#include "ops/attention/sm90/dequant/tiles.h"
#include "ops/attention/sm90/fp8/host.h"
#include "ops/attention/sm90/fp8/tiles.h"
#include "ops/attention/sm90/host.h"
#include "ops/attention/sm90/launch.h"

namespace halftone {

namespace {

using namespace attention_sm90;

// What expand_eight makes numbers of.
bool quantised(Format f) {
  const Element e = element_of(f);
  return f == Format::fp8_e4m3 || f == Format::int8 ||
         (is_block(f) && (e == Element::e4m3 || e == Element::e2m1));
}

// Q, K and V as the attention kernel reads them: [sequences or 1, rows, heads, dim].
struct DequantisedOperand {
  bool dequantised;  // else BF16, read in place
  bool scaled;       // per-row scales may stay beside the values
  Shape shape;
  int64_t bytes() const { return dequantised ? shape[0] * shape[1] * shape[2] * shape[3] * 2 : 0; }
  int64_t scale_bytes() const {  // what follows begins at a multiple of 16
    if (!scaled) return 0;
    return (shape[0] * shape[1] * shape[2] * int64_t{sizeof(float)} + 15) / 16 * 16;
  }
};
std::array<DequantisedOperand, 3> dequantised_operands(const AttentionProblem& p) {
  const auto by_rows = [](Format f) { return f == Format::fp8_e4m3 || f == Format::int8; };
  return {{{quantised(p.q), false, {p.batch, p.query_length, p.heads, p.head_dim}},
           {quantised(p.k) || p.page_size,
            by_rows(p.k),
            {p.batch, p.key_length, p.kv_heads, p.head_dim}},
           {quantised(p.v) || p.page_size,
            by_rows(p.v),
            {p.batch, p.key_length, p.kv_heads, value_dim(p)}}}};
}
// Workspace bytes, with room for per-row scales.
int64_t dequantised_bytes(const AttentionProblem& p) {
  int64_t bytes = 0;
  for (const DequantisedOperand& each : dequantised_operands(p)) {
    bytes += each.bytes() + each.scale_bytes();
  }
  return bytes;
}

// 128k keys in 8 heads of 128 are half of it. Larger problems run on attention_sm80.
constexpr int64_t kMaxDequantisedBytes = int64_t{1} << 30;

// The dense form runs where all lengths are known.
enum class Form { dense, general, other };
Form form_of(const AttentionProblem& p) {
  if (dequantised_bytes(p) > kMaxDequantisedBytes) return Form::other;
  const bool general =
      p.page_size || p.variable_length || p.softcap != 0 || !(softmax_scale(p) > 0);
  return general || p.key_length == 0 ? Form::general : Form::dense;
}
// Whether P is rounded to NVFP4: the same tiles have instances for that.
bool nvfp4_p(const AttentionProblem& p) { return p.mode.pv == Format::nvfp4; }
int general_tile_of(const AttentionProblem& p) {
  return choose_dequantised_general_tile(static_cast<uint32_t>(p.head_dim),
                                         static_cast<uint32_t>(value_dim(p)));
}
int dense_tile_of(const AttentionProblem& p) {
  return choose_tile(kDequantisedTiles, static_cast<uint32_t>(p.head_dim),
                     static_cast<uint32_t>(value_dim(p)), masked(p),
                     static_cast<uint32_t>(p.query_length), static_cast<uint32_t>(p.key_length));
}
// The instance over BF16 operands, of the dense and of the general form, and its tile.
Instance<DequantisedParams> dense_of(const AttentionProblem& p) {
  return nvfp4_p(p) ? nvfp4_instance(general_tile_of(p)) : dequantised_instance(dense_tile_of(p));
}
Instance<DequantisedGeneralParams> general_of(const AttentionProblem& p) {
  const int index = general_tile_of(p);
  return nvfp4_p(p) ? nvfp4_general_instance(index) : dequantised_general_instance(index);
}
const Tile& dense_tile(const AttentionProblem& p) {
  return nvfp4_p(p) ? kDequantisedGeneralTiles[general_tile_of(p)]
                    : kDequantisedTiles[dense_tile_of(p)];
}

// Whether Q and K stay in E4M3, beside V in BF16.
bool native_qk(const AttentionProblem& p) {
  return form_of(p) == Form::dense && p.mode.pv == Format::bf16 && p.q == Format::fp8_e4m3 &&
         p.k == Format::fp8_e4m3;
}
// Whether V stays in E4M3: P is rounded to E4M3 anyway, and an 8-bit MMA takes half the time. K has
// then no scales beside its values. For wider heads K in BF16 leaves room for tiles of 64 keys
// alone, which lose more than that.
bool native_v(const AttentionProblem& p) {
  return form_of(p) == Form::dense && p.mode.pv == Format::fp8_e4m3 && p.v == Format::fp8_e4m3 &&
         is_block(p.k) && p.head_dim <= kFp8ValuesMost.head_dim &&
         value_dim(p) <= kFp8ValuesMost.value_dim;
}
int values_tile_of(const AttentionProblem& p) {
  return choose_fp8_tile(kFp8ValuesTiles, p.head_dim, value_dim(p));
}

// What a plan keeps between runs, and the plan of attention_sm80 for rows that threads cannot read
// 8 elements at a time.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;
  uint8_t* operands = nullptr;  // Q, K and V in BF16
  uint32_t* counter = nullptr;  // of the dynamic schedule
  AttentionPlan fallback;
};

void prepare_dequant(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  workspace->fallback = plan;
  attention_sm80_gpu.prepare(workspace->fallback);
  plan.workspace_bytes = workspace->fallback.workspace_bytes;
  const AttentionProblem& p = plan.problem;
  const Form form = form_of(p);
  if (form != Form::other) {
    const int64_t operands = dequantised_bytes(p), bytes = operands + int64_t{sizeof(uint32_t)};
    void* memory = nullptr;
    workspace->memory = allocate_memory(plan.device, static_cast<size_t>(bytes), &memory);
    workspace->operands = static_cast<uint8_t*>(memory);
    workspace->counter = reinterpret_cast<uint32_t*>(workspace->operands + operands);
    fill_memory(plan.device, workspace->counter, 0, sizeof(uint32_t));
    plan.workspace_bytes += bytes;
    load(dequantise_image(), plan.device);
    load(form == Form::dense ? dense_of(p).image : general_of(p).image, plan.device);
    if (native_qk(p)) load(native_qk_instance(dense_tile_of(p)).image, plan.device);
    for (const auto each : {KeyScaling::heads, KeyScaling::blocks, KeyScaling::rows}) {
      if (!native_v(p)) break;
      load(fp8_values_instance(values_tile_of(p), each).image, plan.device);
    }
  }
  plan.workspace = std::move(workspace);
}

// Chunks of 8 elements lie at multiples of their size.
bool readable(const Operand& x) { return x.copy_bytes >= attention_sm80::unit_bytes(x.format) / 2; }

// Dequantises into the plan's workspace. `p`, `t` and `quantised` become what the BF16 kernel
// reads: contiguous keys, and of scales those that are not multiplied in. `native`: which of Q, K
// and V stay as they are.
void dequantise(AttentionProblem& p, AttentionTensors& t, QuantisedOperands& quantised,
                const std::array<bool, 3>& native, uint8_t* memory, const Device& device,
                Stream& stream) {
  DequantiseParams params{};
  uint32_t count = 0, largest = 0;
  const int64_t pages = t.k.size(0);
  if (p.page_size) p.key_length = std::min(p.key_length, t.page_table.size(1) * *p.page_size);
  const auto shapes = dequantised_operands(p);
  Tensor* const tensors[] = {&t.q, &t.k, &t.v};
  Operand* const operands[] = {&quantised.q, &quantised.k, &quantised.v};
  for (size_t i = 0; i < 3; ++i) {
    DequantisedOperand x = shapes[i];
    if (!x.dequantised || native[i]) continue;
    const bool packed = tensors[i]->rank() == 3, keys = i > 0;
    if (packed) x.shape[0] = 1, x.shape[1] = tensors[i]->size(0);
    DequantiseRows& to = params.operands[count++];
    to.from = *operands[i];
    to.to = reinterpret_cast<hw::Words4*>(memory);
    to.rows = static_cast<uint32_t>(x.shape[1]), to.heads = static_cast<uint32_t>(x.shape[2]);
    to.chunks = static_cast<uint32_t>(x.shape[3] / 8);
    Dequantise::share(to);
    const int64_t blocks = x.shape[0] * to.blocks_of_outer();
    params.blocks[count - 1] = static_cast<uint32_t>(blocks);
    largest = std::max(largest, params.blocks[count - 1]);
    if (keys && !packed && t.seqused_k.defined()) to.used = t.seqused_k.data<int32_t>();
    *tensors[i] =
        packed ? Tensor::view(memory, {x.shape[1], x.shape[2], x.shape[3]}, Format::bf16, device)
               : Tensor::view(memory, x.shape, Format::bf16, device);
    memory += x.bytes();
    if (keys && p.page_size) {
      to.pages = t.page_table.data<int32_t>();
      params.pages_stride = t.page_table.stride(0);
      params.page_size = static_cast<uint32_t>(*p.page_size);
      params.page_count = static_cast<uint32_t>(pages);
    }
    // Per-head scales without pages stay with the softmax, or the epilogue.
    const bool rows =
        to.from.scaling == Scales::row && (p.page_size || to.from.scale_row_bytes != 0);
    if (!x.scaled || !rows) continue;
    to.scales = reinterpret_cast<float*>(memory);
    operands[i]->scales = memory;
    operands[i]->scale_head_bytes = sizeof(float);
    operands[i]->scale_row_bytes = x.shape[2] * int64_t{sizeof(float)};
    operands[i]->scale_batch_bytes = x.shape[1] * operands[i]->scale_row_bytes;
    operands[i]->scale_shift = 0;
    memory += x.scale_bytes();
  }
  p.q = t.q.format(), p.k = t.k.format(), p.v = t.v.format();
  p.page_size.reset();
  if (largest == 0) return;
  launch(dequantise_image(), {.grid = {largest, count, 1}, .block = {Dequantise::kThreads, 1, 1}},
         params, stream);
}

// Q and K in BF16, or both in E4M3.
void run_dense(const AttentionProblem& p, const AttentionTensors& t,
               const QuantisedOperands& quantised, Workspace& workspace, const Device& device,
               Stream& stream) {
  const Tile& tile = dense_tile(p);
  const DeviceProperties& chip = properties(device);
  DequantisedParams params{};
  set_common(p, t, chip, &params);
  params.quantised = quantised;
  const bool fp8_qk = p.k != Format::bf16;
  const auto line = line_swizzle(tile.head_dim * (fp8_qk ? 1 : 2));
  params.q = workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, p.query_length, line), device);
  const uint32_t rows = tile.keys / tile.cluster;
  params.k = workspace.maps.get(box_of(t.k, rows, 1, p.key_length, line), device);
  params.v = workspace.maps.get(box_of(t.v, rows, 1, p.key_length), device);
  if (nvfp4_p(p)) {
    params.staged = workspace.maps.get(box_of(t.out, kOutRows, 1, p.query_length), device);
  }
  const auto kernel = fp8_qk ? native_qk_instance(dense_tile_of(p)) : dense_of(p);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

// Scales for the kernel with V in E4M3: of Q and K the per-tensor ones beside block scales.
Fp8Scales scales_beside(const QuantisedOperands& quantised, const Tensor& v) {
  return {{quantised.q.tensor_scale, 0, 0, 0, 0},
          {quantised.k.tensor_scale, 0, 0, 0, 0},
          scales_of(v),
          rows_of_scale(v) == 1};
}

void run_values(const AttentionProblem& p, const AttentionTensors& t, const Fp8Scales& scales,
                Workspace& workspace, const Device& device, Stream& stream) {
  const int index = values_tile_of(p);
  const Fp8Tile& tile = kFp8ValuesTiles[index];
  const DeviceProperties& chip = properties(device);
  Fp8Params params{};
  set_common(p, t, chip, &params);
  static_cast<Fp8Scales&>(params) = scales;
  params.q = workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, p.query_length), device);
  params.k = workspace.maps.get(box_of(t.k, tile.keys, 1, p.key_length), device);
  params.v = workspace.maps.get(
      box_of(t.v, tile.keys, 1, p.key_length, line_swizzle(tile.value_dim)), device);
  const auto of_values = scales.scaled_keys       ? KeyScaling::rows
                         : rows_of_scale(t.v) > 1 ? KeyScaling::blocks
                                                  : KeyScaling::heads;
  const auto kernel = fp8_values_instance(index, of_values);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

void run_general(const AttentionProblem& p, const AttentionTensors& t,
                 const QuantisedOperands& quantised, Workspace& workspace, const Device& device,
                 Stream& stream) {
  const Tile& tile = kDequantisedGeneralTiles[general_tile_of(p)];
  const DeviceProperties& chip = properties(device);
  DequantisedGeneralParams params{};
  set_general(p, t, chip, &params);
  params.quantised = quantised;
  params.counter = workspace.counter;
  if (tma_compatible(t.k) && tma_compatible(t.v)) {
    params.key_box = tile.keys;
    params.k = workspace.maps.get(box_of(t.k, tile.keys, 1, t.k.size(t.k.rank() - 3)), device);
    params.v = workspace.maps.get(box_of(t.v, tile.keys, 1, t.v.size(t.v.rank() - 3)), device);
  }
  if (tma_compatible(t.q)) {
    params.query_boxes = true;
    params.q =
        workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, t.q.size(t.q.rank() - 3)), device);
  }
  const auto kernel = general_of(p);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

void run_dequant(const AttentionPlan& plan, const AttentionTensors& tensors, Stream& stream) {
  AttentionProblem p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || tensors.out.numel() == 0) return;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  AttentionTensors t = tensors;
  QuantisedOperands quantised{attention_sm80::operand_of(t.q, false),
                              attention_sm80::operand_of(t.k, p.page_size.has_value()),
                              attention_sm80::operand_of(t.v, p.page_size.has_value()),
                              p.mode.pv == Format::fp8_e4m3};
  bool supported = form_of(p) != Form::other;
  const auto shapes = dequantised_operands(p);
  const Operand operands[] = {quantised.q, quantised.k, quantised.v};
  for (size_t i = 0; i < 3; ++i) {
    if (shapes[i].dequantised) supported = supported && readable(operands[i]);
  }
  // Packed sequences are dequantised as they lie, which may be more rows than the sequences have.
  const auto rows = [](const Tensor& x) { return x.rank() == 3 ? x.size(0) : 0; };
  supported =
      supported && rows(t.q) <= p.batch * p.query_length && rows(t.k) <= p.batch * p.key_length;
  if (!supported) return attention_sm80_gpu.run(workspace.fallback, tensors, stream);
  bool dense = form_of(p) == Form::dense && aligned(t.out);
  // Operands that stay as they are must be loadable by TMA, else everything that can be is
  // dequantised.
  const auto copied = [&](const Tensor& x, size_t i, bool native) {
    return (shapes[i].dequantised && !native) || tma_compatible(x);
  };
  const auto can_be_native = [&](bool keys, bool values) {
    return dense && copied(t.q, 0, keys) && copied(t.k, 1, keys) && copied(t.v, 2, values);
  };
  const bool keys = native_qk(p) && can_be_native(true, false);
  const bool values = native_v(p) && can_be_native(false, true);
  dequantise(p, t, quantised, {keys, keys, values}, workspace.operands, plan.device, stream);
  if (values) {
    return run_values(p, t, scales_beside(quantised, t.v), workspace, plan.device, stream);
  }
  dense = dense && tma_compatible(t.q) && tma_compatible(t.k) && tma_compatible(t.v);
  (dense ? run_dense : run_general)(p, t, quantised, workspace, plan.device, stream);
}

std::string describe_dequant(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  const Form form = form_of(p);
  if (form == Form::other) {
    return concat(
        "dequantised operands would take ", dequantised_bytes(p), " bytes: ",
        attention_sm80_gpu.describe(static_cast<const Workspace*>(plan.workspace.get())->fallback));
  }
  if (native_qk(p)) {
    const Tile& tile = kDequantisedTiles[dense_tile_of(p)];
    return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                  tile.warpgroups, " warpgroups, q and k in fp8, ", plan.workspace_bytes,
                  " bytes of workspace");
  }
  if (native_v(p)) {
    const Fp8Tile& tile = kFp8ValuesTiles[values_tile_of(p)];
    return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                  tile.warpgroups, " warpgroups, q and k dequantised to bf16 first, v in fp8, ",
                  plan.workspace_bytes, " bytes of workspace");
  }
  const Tile& tile =
      form == Form::dense ? dense_tile(p) : kDequantisedGeneralTiles[general_tile_of(p)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups, operands dequantised to bf16 first, ",
                plan.workspace_bytes, " bytes of workspace");
}

}  // namespace

std::string attention_sm90_dequant_error(const AttentionProblem& p) {
  // What falls back to attention_sm80 must suit that kernel, too.
  if (std::string error = attention_sm80_error(p); !error.empty()) return error;
  if (!quantised(p.mode.qk) ||
      (p.mode.pv != Format::bf16 && p.mode.pv != Format::fp8_e4m3 && p.mode.pv != Format::nvfp4)) {
    return concat("mode is ", to_string(p.mode),
                  "; attention_sm90_dequant takes those of quantised keys and pv in bf16, fp8 or"
                  " nvfp4");
  }
  const Format formats[] = {p.q, p.k, p.v};
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    if (!quantised(formats[i]) && formats[i] != Format::bf16) {
      return concat(names[i], " is ", name(formats[i]),
                    "; attention_sm90_dequant takes bf16 and quantised formats");
    }
  }
  if (p.out != Format::bf16) {
    return concat("out is ", name(p.out), "; attention_sm90_dequant takes bf16");
  }
  if (p.head_dim % 16 != 0 || value_dim(p) % 16 != 0) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90_dequant takes multiples of 16");
  }
  if (p.query_length < kMinFullTileQueries) {
    return concat("query_length is ", p.query_length, "; attention_sm90_dequant takes ",
                  kMinFullTileQueries, " and more");
  }
  if (p.mask) return "mask is given; attention_sm90_dequant takes no mask tensor";
  return size_error(p, "attention_sm90_dequant");
}

const AttentionGpu attention_sm90_dequant_gpu = {prepare_dequant, run_dequant, describe_dequant};

}  // namespace halftone
