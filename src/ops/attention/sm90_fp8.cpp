// Attention in E4M3 on Hopper, host side: what it takes, and the launch.
#include <algorithm>
#include <bit>

#include "base/load_kernel.h"
#include "base/message.h"
#include "base/token_scales.h"
#include "ops/attention/sm80.h"
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_fp8_tiles.h"
#include "ops/attention/sm90_host.h"

namespace halftone {

namespace {

using namespace attention_sm90;

int tile_of(const AttentionProblem& p) {
  return choose_fp8_tile(static_cast<uint32_t>(p.head_dim), static_cast<uint32_t>(value_dim(p)));
}

// What a plan keeps between runs; and the plan of the kernel that takes the tensors which tensor
// copies do not.
struct Workspace {
  pipe::TensorMapCache maps;
  AttentionPlan other;
};

void prepare_fp8(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  workspace->other = plan;
  attention_sm80_gpu.prepare(workspace->other);
  plan.workspace_bytes = workspace->other.workspace_bytes;
  plan.workspace = std::move(workspace);
  for (const bool blocks : {false, true}) {
    load(fp8_instance(tile_of(plan.problem), blocks).image, plan.device);
  }
}

// Rows that share a scale; 0: those of a head, or all.
int64_t rows_of_scale(const Tensor& t) {
  if (!t.has_scales() || t.scales().size(1) == 1) return 0;
  return tokens_of_scale(t.size(1), t.scales().size(1));
}

OperandScales scales_of(const Tensor& t) {
  if (!t.has_scales()) return {nullptr, 0, 0, 0, 0};
  const Tensor& scales = t.scales();
  const auto stride = [&](int dim) { return scales.size(dim) == 1 ? 0 : scales.stride(dim); };
  const auto shared = static_cast<uint64_t>(tokens_of_scale(t.size(1), scales.size(1)));
  return {scales.data<float>(), stride(0), stride(1), stride(2),
          static_cast<uint32_t>(std::countr_zero(shared))};
}

void run_fp8(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || t.out.numel() == 0) return;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  const bool has_keys = p.key_length > 0;
  const bool direct = aligned(t.out) && copied_by_engine(t.q) &&
                      (!has_keys || (copied_by_engine(t.k) && copied_by_engine(t.v)));
  if (!direct) return attention_sm80_gpu.run(workspace.other, t, stream);
  const int index = tile_of(p);
  const Fp8Tile& tile = kFp8Tiles[index];
  const DeviceProperties& chip = properties(plan.device);
  Fp8Params params{};
  set_common(p, t, chip, &params);
  params.q_scales = scales_of(t.q);
  params.k_scales = scales_of(t.k), params.v_scales = scales_of(t.v);
  const auto map = [&](const Tensor& x, uint32_t rows, int64_t length, uint32_t line) {
    return workspace.maps.get(box_of(x, rows, 1, length, line_swizzle(line)), plan.device);
  };
  params.q = map(t.q, 64 * tile.warpgroups, p.query_length, tile.head_dim);
  if (has_keys) {
    params.k = map(t.k, tile.keys, p.key_length, tile.head_dim);
    params.v = map(t.v, tile.keys, p.key_length, tile.value_dim);
  }
  const int64_t shared[] = {rows_of_scale(t.k), rows_of_scale(t.v)};
  params.scaled_keys = shared[0] == 1 || shared[1] == 1;
  const auto kernel = fp8_instance(index, !params.scaled_keys && shared[0] + shared[1] > 0);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

std::string describe_fp8(const AttentionPlan& plan) {
  const Fp8Tile& tile = kFp8Tiles[tile_of(plan.problem)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups");
}

}  // namespace

std::string attention_sm90_fp8_error(const AttentionProblem& p) {
  // What it hands over to the other kernel must suit that one, too.
  if (std::string error = attention_sm80_error(p); !error.empty()) return error;
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
  if (p.head_dim % 16 != 0 || value_dim(p) % 16 != 0) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90_fp8 takes multiples of 16");
  }
  if (p.query_length < kFewRows) {
    return concat("query_length is ", p.query_length, "; attention_sm90_fp8 takes ", kFewRows,
                  " and more");
  }
  if (p.paged || p.variable_length || p.mask || p.softcap != 0 || !(softmax_scale(p) > 0)) {
    return concat(
        p.paged             ? "paged is set"
        : p.variable_length ? "variable_length is set"
        : p.mask            ? "mask is given"
        : p.softcap != 0    ? concat("softcap is ", p.softcap)
                            : concat("softmax_scale is ", softmax_scale(p)),
        "; attention_sm90_fp8 takes one length, no mask tensor, no softcap and a positive ",
        "softmax_scale");
  }
  return size_error(p, "attention_sm90_fp8");
}

const AttentionGpu attention_sm90_fp8_gpu = {prepare_fp8, run_fp8, describe_fp8};

}  // namespace halftone
