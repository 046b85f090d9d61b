// BF16/FP16 attention on sm_90a, host side: what it takes, which instance, and the launches.
#include "ops/attention/sm90/launch.h"

#include <algorithm>
#include <numeric>

#include "base/cuda/load_kernel.h"
#include "base/device_memory.h"
#include "base/message.h"
#include "ops/attention/sm90/host.h"
#include "ops/attention/sm90/tiles.h"

namespace halftone {

namespace {

using namespace attention_sm90;

// Short queries leave one tile a CTA, so K/V are split where multiprocessors would idle: keys of a
// split that may not depend on the batch, and the least of one that may.
constexpr int64_t kInvariantSplit = 2048, kLeastSplit = 512;

hw::Type type_of(const AttentionProblem& p) {
  return p.mode.qk == Format::bf16 ? hw::Type::bf16 : hw::Type::f16;
}
// Which instance runs a problem and how it is split: a function of the problem and the GPU alone.
struct Choice {
  enum class Form { dense, general, masked, staged_mask } form = Form::dense;
  int tile = 0;
  int64_t pack = 1, splits = 1, split_tiles = 0;

  const Tile& shape() const {
    return form == Form::dense     ? kTiles[tile]
           : form == Form::general ? kGeneralTiles[tile]
           : form == Form::masked  ? kMaskedTiles[tile]
                                   : kStagedMaskTiles[tile];
  }
};

Choice general_choice(const AttentionProblem& p, const Device& device) {
  Choice c;
  c.form = p.mask ? Choice::Form::masked : Choice::Form::general;
  const int64_t group = p.heads / p.kv_heads;
  // PackGQA: queries that would leave most of a tile empty share it with the other heads of their
  // KV head.
  if (p.query_length < kMinFullTileQueries) c.pack = group;
  const int64_t rows = p.query_length * c.pack;
  const auto head_dim = static_cast<uint32_t>(p.head_dim);
  const auto value = static_cast<uint32_t>(value_dim(p));
  c.tile =
      p.mask ? choose_masked_tile(head_dim, value) : choose_general_tile(head_dim, value, rows);
  if (p.query_length >= kMinFullTileQueries) return c;
  const int64_t keys = c.shape().keys, tiles = (p.key_length + keys - 1) / keys;
  c.split_tiles = kInvariantSplit / keys;
  if (!p.batch_invariant) {
    const int64_t tile_rows = 64 * c.shape().warpgroups;
    const int64_t items = p.batch * (p.heads / c.pack) * ((rows + tile_rows - 1) / tile_rows);
    const int64_t wanted =
        std::clamp<int64_t>(properties(device).sm_count / std::max<int64_t>(items, 1), 1,
                            std::max<int64_t>(p.key_length / kLeastSplit, 1));
    c.split_tiles = (tiles + wanted - 1) / wanted;
  }
  c.splits =
      std::max<int64_t>(c.split_tiles == 0 ? 1 : (tiles + c.split_tiles - 1) / c.split_tiles, 1);
  return c;
}

// TMA loads a mask where the rows of a tile are of one head and K/V are not split.
bool can_stage_mask(const AttentionProblem& p, const Choice& c) {
  return p.mask && c.pack == 1 && c.splits == 1;
}
Instance<GeneralParams> general_kernel(hw::Type type, const Choice& c) {
  return c.form == Choice::Form::general  ? general_instance(type, c.tile)
         : c.form == Choice::Form::masked ? masked_instance(type, c.tile)
                                          : staged_mask_instance(type, c.tile);
}

Choice choice(const AttentionProblem& p, const Device& device) {
  const bool general = p.page_size || p.variable_length || p.mask || p.softcap != 0 ||
                       !(softmax_scale(p) > 0) || p.query_length < kMinFullTileQueries ||
                       p.head_dim % 8 != 0 || value_dim(p) % 8 != 0;
  if (general) return general_choice(p, device);
  Choice c;
  c.tile = choose_tile(kTiles, static_cast<uint32_t>(p.head_dim),
                       static_cast<uint32_t>(value_dim(p)), masked(p),
                       static_cast<uint32_t>(p.query_length), static_cast<uint32_t>(p.key_length));
  return c;
}

// What a plan keeps between runs.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;  // split-KV partials and the schedule's counter
  float* values = nullptr;
  SplitStats* sums = nullptr;
  uint32_t* counter = nullptr;
};

int64_t partial_stride(const AttentionProblem& p) { return (value_dim(p) + 3) / 4 * 4; }

void prepare_sm90(AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  auto workspace = std::make_shared<Workspace>();
  const Choice c = choice(p, plan.device);
  const int64_t rows = c.splits > 1 ? c.splits * p.batch * p.heads * p.query_length : 0;
  const int64_t values = rows * partial_stride(p) * 4, sums = rows * int64_t{sizeof(SplitStats)};
  plan.workspace_bytes = values + sums + int64_t{sizeof(uint32_t)};
  void* memory = nullptr;
  workspace->memory =
      allocate_memory(plan.device, static_cast<size_t>(plan.workspace_bytes), &memory);
  workspace->values = static_cast<float*>(memory);
  workspace->sums = reinterpret_cast<SplitStats*>(static_cast<char*>(memory) + values);
  workspace->counter = reinterpret_cast<uint32_t*>(workspace->sums + rows);
  fill_memory(plan.device, workspace->counter, 0, sizeof(uint32_t));
  plan.workspace = std::move(workspace);

  const hw::Type type = type_of(p);
  load(c.form == Choice::Form::dense ? instance(type, c.tile).image : general_kernel(type, c).image,
       plan.device);
  if (can_stage_mask(p, c)) load(staged_mask_instance(type, c.tile).image, plan.device);
  if (c.splits > 1) load(combine_instance(type).image, plan.device);
}

void run_general(const AttentionPlan& plan, const AttentionTensors& t, Choice c, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  const bool staged = can_stage_mask(p, c) && mask_tma_compatible(t.mask, p.key_length);
  if (staged) c.form = Choice::Form::staged_mask;
  const Device& device = plan.device;
  const Tile& tile = c.shape();
  const hw::Type type = type_of(p);
  const DeviceProperties& chip = properties(device);
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());

  GeneralParams params{};
  set_general(p, t, chip, &params);
  params.pack = static_cast<uint32_t>(c.pack);
  params.splits = static_cast<uint32_t>(c.splits);
  params.split_tiles = static_cast<uint32_t>(c.split_tiles);
  params.partial_out = workspace.values, params.partial_stats = workspace.sums;
  params.partial_stride = partial_stride(p);
  params.counter = workspace.counter;

  // A swizzle pattern is 8 rows: boxes are whole patterns.
  const uint32_t box =
      p.page_size ? static_cast<uint32_t>(std::gcd<int64_t>(*p.page_size, tile.keys)) : tile.keys;
  if (box % 8 == 0 && tma_compatible(t.k) && tma_compatible(t.v)) {
    params.key_box = box;
    params.k = workspace.maps.get(box_of(t.k, box, 1, t.k.size(t.k.rank() - 3)), device);
    params.v = workspace.maps.get(box_of(t.v, box, 1, t.v.size(t.v.rank() - 3)), device);
  }
  const uint32_t rows = 64 * tile.warpgroups;
  if (rows % params.pack == 0 && tma_compatible(t.q)) {
    params.query_boxes = true;
    params.q = workspace.maps.get(
        box_of(t.q, rows / params.pack, params.pack, t.q.size(t.q.rank() - 3)), device);
  }
  if (staged) {
    params.mask = workspace.maps.get(mask_box(t.mask), device);
    params.mask_bytes = static_cast<uint32_t>(bits(t.mask.format()) / 8);
  }
  const uint32_t count = static_cast<uint32_t>(chip.sm_count);
  const auto forward = general_kernel(type, c);
  launch(forward.image, forward.shape(params, count), params, stream);
  if (c.splits == 1) return;
  const auto combine = combine_instance(type);
  launch(combine.image, combine.shape(params, count), params, stream);
}

void run_sm90(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  const AttentionProblem& p = plan.problem;
  if (p.batch == 0 || p.query_length == 0 || t.out.numel() == 0) return;
  const Device& device = plan.device;
  const Choice c = choice(p, device);
  const bool direct = aligned(t.out) && tma_compatible(t.q) &&
                      (p.key_length == 0 || (tma_compatible(t.k) && tma_compatible(t.v)));
  if (c.form != Choice::Form::dense) return run_general(plan, t, c, stream);
  if (!direct) return run_general(plan, t, general_choice(p, device), stream);
  const Tile& tile = c.shape();
  const hw::Type type = type_of(p);
  const DeviceProperties& chip = properties(device);
  Params params{};
  set_common(p, t, chip, &params);
  auto& maps = static_cast<Workspace*>(plan.workspace.get())->maps;
  params.q = maps.get(box_of(t.q, 64 * tile.warpgroups, 1, p.query_length), device);
  if (p.key_length > 0) {
    const uint32_t rows = tile.keys / tile.cluster;
    params.k = maps.get(box_of(t.k, rows, 1, p.key_length), device);
    params.v = maps.get(box_of(t.v, rows, 1, p.key_length), device);
  }
  params.staged = maps.get(box_of(t.out, kOutRows, 1, p.query_length), device);
  const auto kernel = instance(type, c.tile);
  launch(kernel.image, kernel.shape(params, static_cast<uint32_t>(chip.sm_count)), params, stream);
}

std::string describe_sm90(const AttentionPlan& plan) {
  const Choice c = choice(plan.problem, plan.device);
  const Tile& tile = c.shape();
  std::string text = concat("tiles of ", 64 * tile.warpgroups, " queries x ", tile.keys, " keys, ",
                            tile.warpgroups, " warpgroups, ");
  if (c.form == Choice::Form::dense) return text + concat("clusters of ", tile.cluster);
  return text + concat(c.pack, " heads a tile, keys in ", c.splits, " splits, ",
                       plan.workspace_bytes, " bytes of workspace");
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
  return size_error(p, "attention_sm90");
}

const AttentionGpu attention_sm90_gpu = {prepare_sm90, run_sm90, describe_sm90};

}  // namespace halftone
