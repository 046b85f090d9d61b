// Attention over quantised keys on Hopper, host side: what it takes, and the launch.
#include <algorithm>
#include <numeric>

#include "base/load_kernel.h"
#include "base/message.h"
#include "ops/attention/sm80.h"
#include "ops/attention/sm80_operand.h"
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_expand_tiles.h"
#include "ops/attention/sm90_host.h"

namespace halftone {

namespace {

using namespace attention_sm90;

int tile_of(const AttentionProblem& p) {
  return choose_expanding_tile(static_cast<uint32_t>(p.head_dim),
                               static_cast<uint32_t>(value_dim(p)));
}

// What a plan keeps between runs; and the plan of the kernel for codes that threads cannot read by
// whole units.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;
  uint32_t* counter = nullptr;  // of the schedule
  AttentionPlan other;
};

void prepare_expanding(AttentionPlan& plan) {
  auto workspace = std::make_shared<Workspace>();
  workspace->other = plan;
  attention_sm80_gpu.prepare(workspace->other);
  void* memory = nullptr;
  workspace->memory = allocate_memory(plan.device, sizeof(uint32_t), &memory);
  workspace->counter = static_cast<uint32_t*>(memory);
  fill_memory(plan.device, memory, 0, sizeof(uint32_t));
  plan.workspace_bytes = workspace->other.workspace_bytes + int64_t{sizeof(uint32_t)};
  plan.workspace = std::move(workspace);
  load(expanding_instance(tile_of(plan.problem)).image, plan.device);
}

// Units of 16 codes lie at multiples of their size.
bool readable(const Operand& x) {
  return x.format == Format::bf16 || x.copy_bytes >= attention_sm80::unit_bytes(x.format);
}

void run_expanding(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || t.out.numel() == 0) return;
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());
  ExpandingParams params{};
  params.q_codes = attention_sm80::operand_of(t.q, false);
  params.k_codes = attention_sm80::operand_of(t.k, p.paged);
  params.v_codes = attention_sm80::operand_of(t.v, p.paged);
  if (!readable(params.q_codes) || !readable(params.k_codes) || !readable(params.v_codes)) {
    return attention_sm80_gpu.run(workspace.other, t, stream);
  }
  const int index = tile_of(p);
  const Tile& tile = kExpandingTiles[index];
  const DeviceProperties& chip = properties(plan.device);
  set_general(p, t, chip, &params);
  params.counter = workspace.counter;
  // What is in bf16 comes as in the general form.
  const uint32_t box =
      p.paged ? static_cast<uint32_t>(std::gcd<int64_t>(p.page_size, tile.keys)) : tile.keys;
  if (p.v == Format::bf16 && box % 8 == 0 && copied_by_engine(t.v)) {
    params.key_box = box;
    params.v = workspace.maps.get(box_of(t.v, box, 1, t.v.size(t.v.rank() - 3)), plan.device);
  }
  if (p.q == Format::bf16 && copied_by_engine(t.q)) {
    params.query_boxes = true;
    params.q = workspace.maps.get(box_of(t.q, 64 * tile.warpgroups, 1, t.q.size(t.q.rank() - 3)),
                                  plan.device);
  }
  const auto kernel = expanding_instance(index);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

std::string describe_expanding(const AttentionPlan& plan) {
  const Tile& tile = kExpandingTiles[tile_of(plan.problem)];
  return concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                tile.warpgroups, " warpgroups, codes expanded to bf16");
}

bool quantised(Format f) {
  return f == Format::fp8_e4m3 || f == Format::int8 || f == Format::mxfp8 || f == Format::mxfp4 ||
         f == Format::nvfp4;
}

}  // namespace

std::string attention_sm90_expand_error(const AttentionProblem& p) {
  // What it hands over to the other kernel must suit that one, too.
  if (std::string error = attention_sm80_error(p); !error.empty()) return error;
  if (!quantised(p.mode.qk) || p.mode.pv != Format::bf16) {
    return concat("mode is ", to_string(p.mode),
                  "; attention_sm90_expand takes those of quantised keys and pv in bf16");
  }
  const Format formats[] = {p.q, p.k, p.v};
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    if (!quantised(formats[i]) && formats[i] != Format::bf16) {
      return concat(names[i], " is ", name(formats[i]),
                    "; attention_sm90_expand takes bf16 and quantised formats");
    }
  }
  if (p.out != Format::bf16) {
    return concat("out is ", name(p.out), "; attention_sm90_expand takes bf16");
  }
  if (p.head_dim % 16 != 0 || value_dim(p) % 16 != 0) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90_expand takes multiples of 16");
  }
  if (p.query_length < kFewRows) {
    return concat("query_length is ", p.query_length, "; attention_sm90_expand takes ", kFewRows,
                  " and more");
  }
  if (p.mask) return "mask is given; attention_sm90_expand takes no mask tensor";
  return size_error(p, "attention_sm90_expand");
}

const AttentionGpu attention_sm90_expand_gpu = {prepare_expanding, run_expanding,
                                                describe_expanding};

}  // namespace halftone
