// E4M3 attention on sm_90a, host side: what it takes, and the launch.
#include <algorithm>
#include <bit>
#include <numeric>

#include "base/cuda/load_kernel.h"
#include "base/message.h"
#include "base/token_scales.h"
#include "ops/attention/sm90/fp8/host.h"
#include "ops/attention/sm90/fp8/tiles.h"
#include "ops/attention/sm90/host.h"
#include "ops/attention/sm90/launch.h"

namespace halftone {

int64_t attention_sm90::rows_of_scale(const Tensor& t) {
  const int row = t.rank() - 3;
  if (!t.has_scales() || t.scales().size(row) == 1) return 0;
  return tokens_of_scale(t.size(row), t.scales().size(row));
}

attention_sm90::TensorScales attention_sm90::scales_of(const Tensor& t) {
  if (!t.has_scales()) return {nullptr, 0, 0, 0, 0};
  const Tensor& scales = t.scales();
  const int row = t.rank() - 3;
  const auto stride = [&](int dim) { return scales.size(dim) == 1 ? 0 : scales.stride(dim); };
  const auto shared = static_cast<uint64_t>(tokens_of_scale(t.size(row), scales.size(row)));
  return {scales.data<float>(), row == 0 ? 0 : stride(0), stride(row), stride(row + 1),
          static_cast<uint32_t>(std::countr_zero(shared))};
}

namespace {

using namespace attention_sm90;

// What needs lengths, pages, softcap, masks or other strides runs in the general form.
bool needs_general(const AttentionProblem& p) {
  return p.page_size || p.variable_length || p.mask || p.softcap != 0 || !(softmax_scale(p) > 0) ||
         p.head_dim % 16 != 0 || value_dim(p) % 16 != 0;
}
int tile_of(const AttentionProblem& p) {
  return choose_fp8_tile(kFp8Tiles, p.head_dim, value_dim(p));
}
int general_tile_of(const AttentionProblem& p) {
  return choose_fp8_tile(kFp8GeneralTiles, p.head_dim, value_dim(p));
}

// What a plan keeps between runs.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;
  uint32_t* counter = nullptr;  // of the general form's dynamic schedule
};

void prepare_fp8(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  void* memory = nullptr;
  plan.workspace_bytes = sizeof(uint32_t);
  workspace->memory = allocate_memory(plan.device, sizeof(uint32_t), &memory);
  workspace->counter = static_cast<uint32_t*>(memory);
  fill_memory(plan.device, memory, 0, sizeof(uint32_t));
  plan.workspace = std::move(workspace);
  load(fp8_general_instance(general_tile_of(plan.problem)).image, plan.device);
  if (needs_general(plan.problem)) return;
  for (const auto each : {KeyScaling::heads, KeyScaling::blocks, KeyScaling::rows}) {
    load(fp8_instance(tile_of(plan.problem), each).image, plan.device);
  }
}

void set_scales(const AttentionTensors& t, Fp8Scales* scales) {
  scales->q_scales = scales_of(t.q);
  scales->k_scales = scales_of(t.k), scales->v_scales = scales_of(t.v);
  scales->scaled_keys = rows_of_scale(t.k) == 1 || rows_of_scale(t.v) == 1;
}

void run_general(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  const int index = general_tile_of(p);
  const Fp8Tile& tile = kFp8GeneralTiles[index];
  const DeviceProperties& chip = properties(plan.device);
  Fp8GeneralParams params{};
  set_general(p, t, chip, &params);
  set_scales(t, &params);
  // In the general form keys have scales of their own where not all of a head share one.
  const auto own = [&](const Tensor& x) {
    return rows_of_scale(x) > 0 || (p.page_size && x.has_scales() && x.scales().size(0) > 1);
  };
  params.scaled_keys = own(t.k) || own(t.v);
  params.counter = workspace.counter;
  const auto map = [&](const Tensor& x, uint32_t rows, uint32_t line) {
    return workspace.maps.get(box_of(x, rows, 1, x.size(x.rank() - 3), line_swizzle(line)),
                              plan.device);
  };
  const uint32_t box =
      p.page_size ? static_cast<uint32_t>(std::gcd<int64_t>(*p.page_size, tile.keys)) : tile.keys;
  if (box % 8 == 0 && tma_compatible(t.k) && tma_compatible(t.v)) {
    params.key_box = box;
    params.k = map(t.k, box, tile.head_dim), params.v = map(t.v, box, tile.value_dim);
  }
  if (tma_compatible(t.q)) {
    params.query_boxes = true;
    params.q = map(t.q, 64 * tile.warpgroups, tile.head_dim);
  }
  const auto kernel = fp8_general_instance(index);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

void run_fp8(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || t.out.numel() == 0) return;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  const bool has_keys = p.key_length > 0;
  const bool direct = aligned(t.out) && tma_compatible(t.q) &&
                      (!has_keys || (tma_compatible(t.k) && tma_compatible(t.v)));
  if (needs_general(p) || !direct) return run_general(plan, t, stream);
  const bool blocks = rows_of_scale(t.k) > 1 || rows_of_scale(t.v) > 1;
  const int index = tile_of(p);
  const DeviceProperties& chip = properties(plan.device);
  Fp8Params params{};
  set_common(p, t, chip, &params);
  set_scales(t, &params);
  const auto map = [&](const Tensor& x, uint32_t rows, int64_t length, uint32_t line) {
    return workspace.maps.get(box_of(x, rows, 1, length, line_swizzle(line)), plan.device);
  };
  const auto of_keys = params.scaled_keys ? KeyScaling::rows
                       : blocks           ? KeyScaling::blocks
                                          : KeyScaling::heads;
  const Fp8Tile& tile = fp8_tile(of_keys, index);
  params.q = map(t.q, 64 * tile.warpgroups, p.query_length, tile.head_dim);
  if (has_keys) {
    params.k = map(t.k, tile.keys, p.key_length, tile.head_dim);
    params.v = map(t.v, tile.keys, p.key_length, tile.value_dim);
  }
  const auto kernel = fp8_instance(index, of_keys);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

std::string describe_fp8(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  const bool general = needs_general(p);
  const Fp8Tile& tile = general ? kFp8GeneralTiles[general_tile_of(p)] : kFp8Tiles[tile_of(p)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups", general ? ", general form" : "");
}

}  // namespace

std::string attention_sm90_fp8_error(const AttentionProblem& p) {
  if (std::string error = attention_problem_error(p); !error.empty()) return error;
  const Format fp8 = Format::fp8_e4m3;
  if (p.mode != AttentionMode{fp8, fp8}) {
    return concat("mode is ", to_string(p.mode), "; attention_sm90_fp8 takes fp8+fp8");
  }
  const Format formats[] = {p.q, p.k, p.v, p.out}, wanted[] = {fp8, fp8, fp8, Format::bf16};
  const char* const names[] = {"q", "k", "v", "out"};
  for (int i = 0; i < 4; ++i) {
    if (formats[i] != wanted[i]) {
      return concat(names[i], " is ", name(formats[i]), "; attention_sm90_fp8 takes ",
                    name(wanted[i]));
    }
  }
  if (p.query_length < kMinFullTileQueries) {
    return concat("query_length is ", p.query_length, "; attention_sm90_fp8 takes ",
                  kMinFullTileQueries, " and more");
  }
  return size_error(p, "attention_sm90_fp8");
}

const AttentionGpu attention_sm90_fp8_gpu = {prepare_fp8, run_fp8, describe_fp8};

}  // namespace halftone
