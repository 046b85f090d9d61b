// Attention over quantised operands on Hopper, host side: what it takes, and the launches.
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

bool quantised(Format f) {
  return f == Format::fp8_e4m3 || f == Format::int8 || f == Format::mxfp8 || f == Format::mxfp4 ||
         f == Format::nvfp4;
}

// Q, K and V as they are multiplied: [sequences or 1, rows, heads, dim].
struct WideOperand {
  bool expanded;  // else it is in bf16 and where the kernel finds it
  bool scaled;    // rows may have scales that the kernel is to find beside them
  Shape shape;
  int64_t bytes() const { return expanded ? shape[0] * shape[1] * shape[2] * shape[3] * 2 : 0; }
  int64_t scale_bytes() const {  // what follows begins at a multiple of 16
    if (!scaled) return 0;
    return (shape[0] * shape[1] * shape[2] * int64_t{sizeof(float)} + 15) / 16 * 16;
  }
};
std::array<WideOperand, 3> wide_operands(const AttentionProblem& p) {
  const auto by_rows = [](Format f) { return f == Format::fp8_e4m3 || f == Format::int8; };
  return {
      {{quantised(p.q), false, {p.batch, p.query_length, p.heads, p.head_dim}},
       {quantised(p.k) || p.paged, by_rows(p.k), {p.batch, p.key_length, p.kv_heads, p.head_dim}},
       {quantised(p.v) || p.paged,
        by_rows(p.v),
        {p.batch, p.key_length, p.kv_heads, value_dim(p)}}}};
}
// Of the memory of a plan; with room for the scales of rows.
int64_t wide_bytes(const AttentionProblem& p) {
  int64_t bytes = 0;
  for (const WideOperand& each : wide_operands(p)) {
    bytes += each.bytes() + each.scale_bytes();
  }
  return bytes;
}

// 128k keys in 8 heads of 128 are half of it. What takes more is left to the other kernel.
constexpr int64_t kMostWideBytes = int64_t{1} << 30;

// Where all lengths are known the dense form runs.
enum class Form { dense, general, other };
Form form_of(const AttentionProblem& p) {
  if (wide_bytes(p) > kMostWideBytes) return Form::other;
  const bool general = p.paged || p.variable_length || p.softcap != 0 || !(softmax_scale(p) > 0);
  return general || p.key_length == 0 ? Form::general : Form::dense;
}
// Whether P is rounded to NVFP4: the same tiles have instances for that.
bool nvfp4_weights(const AttentionProblem& p) { return p.mode.pv == Format::nvfp4; }
int general_tile_of(const AttentionProblem& p) {
  return choose_expanded_general_tile(static_cast<uint32_t>(p.head_dim),
                                      static_cast<uint32_t>(value_dim(p)));
}
int dense_tile_of(const AttentionProblem& p) {
  return choose_tile(kExpandedTiles, static_cast<uint32_t>(p.head_dim),
                     static_cast<uint32_t>(value_dim(p)), masked(p),
                     static_cast<uint32_t>(p.query_length), static_cast<uint32_t>(p.key_length));
}
// The instance for bf16, of the dense form and of the general one, and its tile.
Instance<ExpandedParams> dense_of(const AttentionProblem& p) {
  return nvfp4_weights(p) ? nvfp4_instance(general_tile_of(p))
                          : expanded_instance(dense_tile_of(p));
}
Instance<ExpandedGeneralParams> general_of(const AttentionProblem& p) {
  const int index = general_tile_of(p);
  return nvfp4_weights(p) ? nvfp4_general_instance(index) : expanded_general_instance(index);
}
const Tile& dense_tile(const AttentionProblem& p) {
  return nvfp4_weights(p) ? kExpandedGeneralTiles[general_tile_of(p)]
                          : kExpandedTiles[dense_tile_of(p)];
}

// Whether Q and K in E4M3 are multiplied as they are, beside V in bf16.
bool keeps_keys(const AttentionProblem& p) {
  return form_of(p) == Form::dense && p.mode.pv == Format::bf16 && p.q == Format::fp8_e4m3 &&
         p.k == Format::fp8_e4m3;
}
// Whether V in E4M3 is multiplied as it is: P is rounded to E4M3 anyway, and a product of 8 bits
// takes half the time. K has no scales then that are not in its numbers. Of wider heads K in bf16
// leaves room for tiles of 64 keys alone, which lose more than that.
bool keeps_values(const AttentionProblem& p) {
  return form_of(p) == Form::dense && p.mode.pv == Format::fp8_e4m3 && p.v == Format::fp8_e4m3 &&
         is_block(p.k) && p.head_dim <= kFp8ValuesMost.head_dim &&
         value_dim(p) <= kFp8ValuesMost.value_dim;
}
int values_tile_of(const AttentionProblem& p) {
  return choose_fp8_tile(kFp8ValuesTiles, p.head_dim, value_dim(p));
}

// What a plan keeps between runs; and the plan of the kernel for codes that threads cannot read by
// eights.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;
  uint8_t* operands = nullptr;  // Q, K and V in bf16
  uint32_t* counter = nullptr;  // of the schedule
  AttentionPlan other;
};

void prepare_expanding(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  workspace->other = plan;
  attention_sm80_gpu.prepare(workspace->other);
  plan.workspace_bytes = workspace->other.workspace_bytes;
  const AttentionProblem& p = plan.problem;
  const Form form = form_of(p);
  if (form != Form::other) {
    const int64_t operands = wide_bytes(p), bytes = operands + int64_t{sizeof(uint32_t)};
    void* memory = nullptr;
    workspace->memory = allocate_memory(plan.device, static_cast<size_t>(bytes), &memory);
    workspace->operands = static_cast<uint8_t*>(memory);
    workspace->counter = reinterpret_cast<uint32_t*>(workspace->operands + operands);
    fill_memory(plan.device, workspace->counter, 0, sizeof(uint32_t));
    plan.workspace_bytes += bytes;
    load(dequantise_image(), plan.device);
    load(form == Form::dense ? dense_of(p).image : general_of(p).image, plan.device);
    if (keeps_keys(p)) load(key_codes_instance(dense_tile_of(p)).image, plan.device);
    for (const auto each : {KeyScaling::heads, KeyScaling::blocks, KeyScaling::rows}) {
      if (!keeps_values(p)) break;
      load(fp8_values_instance(values_tile_of(p), each).image, plan.device);
    }
  }
  plan.workspace = std::move(workspace);
}

// Eights of codes lie at multiples of their size.
bool readable(const Operand& x) { return x.copy_bytes >= attention_sm80::unit_bytes(x.format) / 2; }

// Expands what is to be into the plan's memory. `p`, `t` and `codes` become what the kernel for
// bf16 is to see: keys one after the other, and of scales those that are not in the numbers.
// `kept`: of Q, K and V what stays as it is.
void widen(AttentionProblem& p, AttentionTensors& t, Codes& codes, const std::array<bool, 3>& kept,
           uint8_t* memory, const Device& device, Stream& stream) {
  DequantiseParams params{};
  uint32_t count = 0, largest = 0;
  const int64_t pages = t.k.size(0);
  if (p.paged) p.key_length = std::min(p.key_length, t.page_table.size(1) * p.page_size);
  const auto shapes = wide_operands(p);
  Tensor* const tensors[] = {&t.q, &t.k, &t.v};
  Operand* const operands[] = {&codes.q, &codes.k, &codes.v};
  for (size_t i = 0; i < 3; ++i) {
    WideOperand x = shapes[i];
    if (!x.expanded || kept[i]) continue;
    const bool packed = tensors[i]->rank() == 3, keys = i > 0;
    if (packed) x.shape[0] = 1, x.shape[1] = tensors[i]->size(0);
    WideRows& to = params.operands[count++];
    to.from = *operands[i];
    to.to = reinterpret_cast<hw::Words4*>(memory);
    to.rows = static_cast<uint32_t>(x.shape[1]), to.heads = static_cast<uint32_t>(x.shape[2]);
    to.eights = static_cast<uint32_t>(x.shape[3] / 8);
    Widen::share(to);
    const int64_t blocks = x.shape[0] * to.blocks_of_outer();
    params.blocks[count - 1] = static_cast<uint32_t>(blocks);
    largest = std::max(largest, params.blocks[count - 1]);
    if (keys && !packed && t.seqused_k.defined()) to.used = t.seqused_k.data<int32_t>();
    *tensors[i] =
        packed ? Tensor::view(memory, {x.shape[1], x.shape[2], x.shape[3]}, Format::bf16, device)
               : Tensor::view(memory, x.shape, Format::bf16, device);
    memory += x.bytes();
    if (keys && p.paged) {
      to.pages = t.page_table.data<int32_t>();
      params.pages_stride = t.page_table.stride(0);
      params.page_size = static_cast<uint32_t>(p.page_size);
      params.page_count = static_cast<uint32_t>(pages);
    }
    // Those of a head without pages stay with the softmax, or the results.
    const bool rows = to.from.scaling == Scales::row && (p.paged || to.from.scale_row_bytes != 0);
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
  p.paged = false;
  if (largest == 0) return;
  launch(dequantise_image(), {.grid = {largest, count, 1}, .block = {Widen::kThreads, 1, 1}},
         params, stream);
}

// Q and K in bf16, or both in E4M3.
void run_dense(const AttentionProblem& p, const AttentionTensors& t, const Codes& codes,
               Workspace& workspace, const Device& device, Stream& stream) {
  const Tile& tile = dense_tile(p);
  const DeviceProperties& chip = properties(device);
  ExpandedParams params{};
  set_common(p, t, chip, &params);
  params.codes = codes;
  const bool as_codes = p.k != Format::bf16;
  const auto line = line_swizzle(tile.head_dim * (as_codes ? 1 : 2));
  params.q = workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, p.query_length, line), device);
  const uint32_t rows = tile.keys / tile.cluster;
  params.k = workspace.maps.get(box_of(t.k, rows, 1, p.key_length, line), device);
  params.v = workspace.maps.get(box_of(t.v, rows, 1, p.key_length), device);
  if (nvfp4_weights(p)) {
    params.staged = workspace.maps.get(box_of(t.out, kOutRows, 1, p.query_length), device);
  }
  const auto kernel = as_codes ? key_codes_instance(dense_tile_of(p)) : dense_of(p);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

// Scales for the kernel that takes V as it is: of Q and K those beside block scales.
Fp8Scales scales_beside(const Codes& codes, const Tensor& v) {
  return {{codes.q.tensor_scale, 0, 0, 0, 0},
          {codes.k.tensor_scale, 0, 0, 0, 0},
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

void run_general(const AttentionProblem& p, const AttentionTensors& t, const Codes& codes,
                 Workspace& workspace, const Device& device, Stream& stream) {
  const Tile& tile = kExpandedGeneralTiles[general_tile_of(p)];
  const DeviceProperties& chip = properties(device);
  ExpandedGeneralParams params{};
  set_general(p, t, chip, &params);
  params.codes = codes;
  params.counter = workspace.counter;
  if (copied_by_engine(t.k) && copied_by_engine(t.v)) {
    params.key_box = tile.keys;
    params.k = workspace.maps.get(box_of(t.k, tile.keys, 1, t.k.size(t.k.rank() - 3)), device);
    params.v = workspace.maps.get(box_of(t.v, tile.keys, 1, t.v.size(t.v.rank() - 3)), device);
  }
  if (copied_by_engine(t.q)) {
    params.query_boxes = true;
    params.q =
        workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, t.q.size(t.q.rank() - 3)), device);
  }
  const auto kernel = general_of(p);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

void run_expanding(const AttentionPlan& plan, const AttentionTensors& tensors, Stream& stream) {
  AttentionProblem p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || tensors.out.numel() == 0) return;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  AttentionTensors t = tensors;
  Codes codes{attention_sm80::operand_of(t.q, false), attention_sm80::operand_of(t.k, p.paged),
              attention_sm80::operand_of(t.v, p.paged), p.mode.pv == Format::fp8_e4m3};
  bool fits = form_of(p) != Form::other;
  const auto shapes = wide_operands(p);
  const Operand operands[] = {codes.q, codes.k, codes.v};
  for (size_t i = 0; i < 3; ++i) {
    if (shapes[i].expanded) fits = fits && readable(operands[i]);
  }
  // Packed sequences come as they lie, which may be more rows than the sequences have.
  const auto rows = [](const Tensor& x) { return x.rank() == 3 ? x.size(0) : 0; };
  fits = fits && rows(t.q) <= p.batch * p.query_length && rows(t.k) <= p.batch * p.key_length;
  if (!fits) return attention_sm80_gpu.run(workspace.other, tensors, stream);
  bool dense = form_of(p) == Form::dense && aligned(t.out);
  // What is not expanded is where copies reach it, or all is expanded that can be.
  const auto copied = [&](const Tensor& x, size_t i, bool kept) {
    return (shapes[i].expanded && !kept) || copied_by_engine(x);
  };
  const auto can_keep = [&](bool keys, bool values) {
    return dense && copied(t.q, 0, keys) && copied(t.k, 1, keys) && copied(t.v, 2, values);
  };
  const bool keys = keeps_keys(p) && can_keep(true, false);
  const bool values = keeps_values(p) && can_keep(false, true);
  widen(p, t, codes, {keys, keys, values}, workspace.operands, plan.device, stream);
  if (values) {
    return run_values(p, t, scales_beside(codes, t.v), workspace, plan.device, stream);
  }
  dense = dense && copied_by_engine(t.q) && copied_by_engine(t.k) && copied_by_engine(t.v);
  (dense ? run_dense : run_general)(p, t, codes, workspace, plan.device, stream);
}

std::string describe_expanding(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  const Form form = form_of(p);
  if (form == Form::other) {
    return concat(
        "expanded operands would take ", wide_bytes(p), " bytes: ",
        attention_sm80_gpu.describe(static_cast<const Workspace*>(plan.workspace.get())->other));
  }
  if (keeps_keys(p)) {
    const Tile& tile = kExpandedTiles[dense_tile_of(p)];
    return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                  tile.warpgroups, " warpgroups, q and k in fp8, ", plan.workspace_bytes,
                  " bytes of workspace");
  }
  if (keeps_values(p)) {
    const Fp8Tile& tile = kFp8ValuesTiles[values_tile_of(p)];
    return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                  tile.warpgroups, " warpgroups, q and k expanded to bf16 before, v in fp8, ",
                  plan.workspace_bytes, " bytes of workspace");
  }
  const Tile& tile =
      form == Form::dense ? dense_tile(p) : kExpandedGeneralTiles[general_tile_of(p)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups, codes expanded to bf16 before, ",
                plan.workspace_bytes, " bytes of workspace");
}

}  // namespace

std::string attention_sm90_dequant_error(const AttentionProblem& p) {
  // What it hands over to the other kernel must suit that one, too.
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
  if (p.query_length < kFewRows) {
    return concat("query_length is ", p.query_length, "; attention_sm90_dequant takes ", kFewRows,
                  " and more");
  }
  if (p.mask) return "mask is given; attention_sm90_dequant takes no mask tensor";
  return size_error(p, "attention_sm90_dequant");
}

const AttentionGpu attention_sm90_dequant_gpu = {prepare_expanding, run_expanding,
                                                 describe_expanding};

}  // namespace halftone
