// Attention on Hopper, host side: what it takes, which instance, and the launches.
#include "ops/attention/sm90.h"

#include <algorithm>
#include <numeric>

#include "base/device_memory.h"
#include "base/load_kernel.h"
#include "base/message.h"
#include "ops/attention/sm90_tiles.h"
#include "pipe/tensor_map.h"

namespace halftone {

namespace {

using namespace attention_sm90;

// A block has one tile of few rows; the keys are split where that leaves multiprocessors idle.
constexpr int64_t kFewRows = 64;
// Of a split that may not depend on the batch, and the least of one that may.
constexpr int64_t kInvariantSplit = 2048, kLeastSplit = 512;

hw::Type type_of(const AttentionProblem& p) {
  return p.mode.qk == Format::bf16 ? hw::Type::bf16 : hw::Type::f16;
}
bool masked(const AttentionProblem& p) {
  return p.causal || p.window_left >= 0 || p.window_right >= 0 || p.attention_chunk_size > 0;
}

// How a problem is run: a function of the problem and the chip alone.
struct Choice {
  enum class Form { dense, general, masked } form = Form::dense;
  int tile = 0;
  int64_t pack = 1, splits = 1, split_tiles = 0;

  const Tile& shape() const {
    return form == Form::dense     ? kTiles[tile]
           : form == Form::general ? kGeneralTiles[tile]
                                   : kMaskedTiles[tile];
  }
};

Choice general_choice(const AttentionProblem& p, const Device& device) {
  Choice c;
  c.form = p.mask ? Choice::Form::masked : Choice::Form::general;
  const int64_t group = p.heads / p.kv_heads;
  // Queries that would leave most of a tile empty share it with the other heads of their keys.
  if (p.query_length < kFewRows) c.pack = group;
  const int64_t rows = p.query_length * c.pack;
  const auto head_dim = static_cast<uint32_t>(p.head_dim);
  const auto value = static_cast<uint32_t>(value_dim(p));
  c.tile =
      p.mask ? choose_masked_tile(head_dim, value) : choose_general_tile(head_dim, value, rows);
  if (p.query_length >= kFewRows) return c;
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

Choice choice(const AttentionProblem& p, const Device& device) {
  const bool general = p.paged || p.variable_length || p.mask || p.softcap != 0 ||
                       !(softmax_scale(p) > 0) || p.query_length < kFewRows ||
                       p.head_dim % 8 != 0 || value_dim(p) % 8 != 0;
  if (general) return general_choice(p, device);
  Choice c;
  c.tile =
      choose_tile(static_cast<uint32_t>(p.head_dim), static_cast<uint32_t>(value_dim(p)), masked(p),
                  static_cast<uint32_t>(p.query_length), static_cast<uint32_t>(p.key_length));
  return c;
}

// Whether 16-byte accesses, and so tensor copies, reach every row.
bool aligned(const Tensor& t) {
  if (reinterpret_cast<uintptr_t>(t.data()) % 16 != 0) return false;
  for (int dim = 0; dim + 1 < t.rank(); ++dim) {
    if (t.size(dim) != 1 && (t.stride(dim) % 8 != 0 || t.stride(dim) < 0)) return false;
  }
  return true;
}
// A tensor copy also wants strides that go forward.
bool copied_by_engine(const Tensor& t) {
  bool forward = aligned(t);
  for (int dim = 0; dim + 1 < t.rank(); ++dim) forward &= t.size(dim) == 1 || t.stride(dim) > 0;
  return forward && t.numel() > 0;
}

// [batch, length, heads, dim], or without the batch, in boxes of `rows` x `heads` x 64 elements.
// Rows from `length` on are filled with zeros.
pipe::TensorBox box_of(const Tensor& t, hw::Type type, uint32_t rows, uint32_t heads,
                       int64_t length) {
  pipe::TensorBox box;
  box.type = type, box.address = const_cast<void*>(t.data()), box.rank = 4;
  for (int i = 0; i < 4; ++i) {
    const int dim = t.rank() - 1 - i;
    box.extent[static_cast<size_t>(i)] = dim < 0 ? 1 : static_cast<uint64_t>(t.size(dim));
    if (i == 0) continue;
    // Where there is one index only, its stride is not used, but checked by the driver.
    const bool used = dim >= 0 && t.size(dim) != 1;
    const int64_t stride = used ? t.stride(dim) : (t.size(-1) + 7) / 8 * 8;
    box.stride[static_cast<size_t>(i - 1)] = static_cast<uint64_t>(stride) * 2;
  }
  box.extent[2] = std::min(box.extent[2], static_cast<uint64_t>(length));
  box.box = {64, heads, rows, 1, 1};
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

// What a plan keeps between runs.
struct Workspace {
  pipe::TensorMapCache maps;
  std::shared_ptr<const void> memory;  // of what follows: the splits, and the schedule's counter
  float* values = nullptr;
  SplitSum* sums = nullptr;
  uint32_t* counter = nullptr;
};

int64_t partial_stride(const AttentionProblem& p) { return (value_dim(p) + 3) / 4 * 4; }

void prepare_sm90(AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  auto workspace = std::make_shared<Workspace>();
  const Choice c = choice(p, plan.device);
  const int64_t rows = c.splits > 1 ? c.splits * p.batch * p.heads * p.query_length : 0;
  const int64_t values = rows * partial_stride(p) * 4, sums = rows * int64_t{sizeof(SplitSum)};
  plan.workspace_bytes = values + sums + int64_t{sizeof(uint32_t)};
  void* memory = nullptr;
  workspace->memory =
      allocate_memory(plan.device, static_cast<size_t>(plan.workspace_bytes), &memory);
  workspace->values = static_cast<float*>(memory);
  workspace->sums = reinterpret_cast<SplitSum*>(static_cast<char*>(memory) + values);
  workspace->counter = reinterpret_cast<uint32_t*>(workspace->sums + rows);
  fill_memory(plan.device, workspace->counter, 0, sizeof(uint32_t));
  plan.workspace = std::move(workspace);

  const hw::Type type = type_of(p);
  load(c.form == Choice::Form::dense     ? instance(type, c.tile).image
       : c.form == Choice::Form::general ? general_instance(type, c.tile).image
                                         : masked_instance(type, c.tile).image,
       plan.device);
  if (c.splits > 1) load(combine_instance(type).image, plan.device);
}

// What both forms are told.
void set_common(const AttentionProblem& p, const AttentionTensors& t, const DeviceProperties& chip,
                Params* params) {
  params->out = const_cast<uint16_t*>(t.out.data<uint16_t>());
  const int row_dim = t.out.rank() - 3;
  params->out_batch = row_dim == 0 ? 0 : t.out.stride(0);
  params->out_row = t.out.stride(row_dim), params->out_head = t.out.stride(row_dim + 1);
  if (p.lse) {
    params->lse = const_cast<float*>(t.lse.data<float>());
    params->lse_batch = t.lse.stride(0), params->lse_head = t.lse.stride(1);
    params->lse_row = t.lse.stride(2);
  }
  if (p.sinks) params->sinks = t.sinks.data<float>(), params->sink_stride = t.sinks.stride(0);
  params->batch = static_cast<uint32_t>(p.batch), params->heads = static_cast<uint32_t>(p.heads);
  params->group = static_cast<uint32_t>(p.heads / p.kv_heads);
  params->value_dim = static_cast<uint32_t>(value_dim(p));
  params->range = range_of(p);
  params->scale_log2 = softmax_scale(p) * kLog2e;
  // The keys and values of a section take half of the L2: the rest is Q, O and what comes next.
  const double bytes = static_cast<double>(p.key_length + 1) *
                       static_cast<double>(p.head_dim + value_dim(p)) * 2 / params->group;
  const double pairs = static_cast<double>(chip.l2_bytes) / 2 / bytes;
  params->section = pairs < 1 ? 1 : pairs > 65536 ? 65536 : static_cast<uint32_t>(pairs);
}

Rows rows_of(const Tensor& t) {
  const int row_dim = t.rank() - 3;
  return {t.data<uint16_t>(),    row_dim == 0 ? 0 : t.stride(0),    t.stride(row_dim),
          t.stride(row_dim + 1), static_cast<uint32_t>(t.size(-1)), aligned(t)};
}

void set_scores(const AttentionProblem& p, const AttentionTensors& t, ScoreRules* rules) {
  const float scale = softmax_scale(p);
  rules->given = p.mask || p.softcap != 0 || !(scale > 0);
  rules->scale_log2 = scale * kLog2e;
  if (p.softcap != 0) {
    rules->softcap_log2 = p.softcap * kLog2e;
    rules->softcap_exponent = 2 * kLog2e * std::abs(scale) / p.softcap;
  }
  if (!p.mask) return;
  rules->mask_kind = *p.mask == Format::u8     ? MaskKind::boolean
                     : *p.mask == Format::f32  ? MaskKind::f32
                     : *p.mask == Format::bf16 ? MaskKind::bf16
                                               : MaskKind::f16;
  const auto stride = [&](int dim) { return t.mask.size(dim) == 1 ? 0 : t.mask.stride(dim); };
  rules->mask = t.mask.data();
  rules->batch = stride(0), rules->head = stride(1), rules->query = stride(2);
  rules->key = stride(3);
}

void run_general(const AttentionPlan& plan, const AttentionTensors& t, const Choice& c,
                 Stream& stream) {
  const AttentionProblem& p = plan.problem;
  const Device& device = plan.device;
  const Tile& tile = c.shape();
  const hw::Type type = type_of(p);
  const DeviceProperties& chip = properties(device);
  auto& workspace = *static_cast<Workspace*>(plan.workspace.get());

  GeneralParams params{};
  set_common(p, t, chip, &params);
  set_scores(p, t, &params.scores);
  params.q_rows = rows_of(t.q), params.k_rows = rows_of(t.k), params.v_rows = rows_of(t.v);
  const auto lengths = [](const Tensor& x) { return x.defined() ? x.data<int32_t>() : nullptr; };
  params.cu_queries = lengths(t.cu_seqlens_q), params.cu_keys = lengths(t.cu_seqlens_k);
  params.used_keys = lengths(t.seqused_k);
  const int64_t query_rows = t.q.size(t.q.rank() - 3);
  int64_t key_rows = t.k.size(t.k.rank() - 3);
  params.query_rows = static_cast<int32_t>(std::min(query_rows, 2 * kLongest - 1));
  params.key_rows = static_cast<int32_t>(std::min(key_rows, 2 * kLongest - 1));
  if (p.paged) {
    params.pages = t.page_table.data<int32_t>(), params.pages_stride = t.page_table.stride(0);
    params.page_size = static_cast<uint32_t>(p.page_size);
    params.page_count = static_cast<uint32_t>(t.k.size(0));
    key_rows = t.page_table.size(1) * p.page_size;
  }
  params.range.count = static_cast<int32_t>(std::min<int64_t>(params.range.count, key_rows));
  params.pack = static_cast<uint32_t>(c.pack);
  params.splits = static_cast<uint32_t>(c.splits);
  params.split_tiles = static_cast<uint32_t>(c.split_tiles);
  params.partial_values = workspace.values, params.partial_sums = workspace.sums;
  params.partial_stride = partial_stride(p);
  params.counter = workspace.counter;
  params.out_by_elements = !aligned(t.out) || value_dim(p) % 8 != 0;

  // A swizzle's pattern is 8 rows: boxes are whole patterns.
  const uint32_t box =
      p.paged ? static_cast<uint32_t>(std::gcd<int64_t>(p.page_size, tile.keys)) : tile.keys;
  if (box % 8 == 0 && copied_by_engine(t.k) && copied_by_engine(t.v)) {
    params.key_box = box;
    params.k = workspace.maps.get(box_of(t.k, type, box, 1, t.k.size(t.k.rank() - 3)), device);
    params.v = workspace.maps.get(box_of(t.v, type, box, 1, t.v.size(t.v.rank() - 3)), device);
  }
  const uint32_t rows = 64 * tile.warpgroups;
  if (rows % params.pack == 0 && copied_by_engine(t.q)) {
    params.query_boxes = true;
    params.q =
        workspace.maps.get(box_of(t.q, type, rows / params.pack, params.pack, query_rows), device);
  }
  const uint32_t count = static_cast<uint32_t>(chip.sm_count);
  const auto forward = p.mask ? masked_instance(type, c.tile) : general_instance(type, c.tile);
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
  const bool direct = aligned(t.out) && copied_by_engine(t.q) &&
                      (p.key_length == 0 || (copied_by_engine(t.k) && copied_by_engine(t.v)));
  if (c.form != Choice::Form::dense) return run_general(plan, t, c, stream);
  if (!direct) return run_general(plan, t, general_choice(p, device), stream);
  const Tile& tile = c.shape();
  const hw::Type type = type_of(p);
  const DeviceProperties& chip = properties(device);
  Params params{};
  set_common(p, t, chip, &params);
  auto& maps = static_cast<Workspace*>(plan.workspace.get())->maps;
  params.q = maps.get(box_of(t.q, type, 64 * tile.warpgroups, 1, p.query_length), device);
  if (p.key_length > 0) {
    const uint32_t rows = tile.keys / tile.cluster;
    params.k = maps.get(box_of(t.k, type, rows, 1, p.key_length), device);
    params.v = maps.get(box_of(t.v, type, rows, 1, p.key_length), device);
  }
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
  if (p.head_dim > 256 || value_dim(p) > 256) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p),
                  "; attention_sm90 takes up to 256");
  }
  if (p.query_length > kLongest || p.key_length > kLongest) {
    return concat("query_length is ", p.query_length, " and key_length ", p.key_length,
                  "; attention_sm90 takes up to ", kLongest);
  }
  if (p.paged && p.page_size > kLongest) {
    return concat("page_size is ", p.page_size, "; attention_sm90 takes up to ", kLongest);
  }
  // Blocks number their tiles in 32 bits, each of 64 rows at least; rows that are combined, too.
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads) *
                      static_cast<double>(p.query_length < kFewRows ? kFewRows : p.query_length);
  if (rows >= 0x1p31) {
    return concat("batch ", p.batch, " x heads ", p.heads, " x query_length ", p.query_length,
                  " is too much; attention_sm90 takes fewer than 2^31 rows");
  }
  return {};
}

const AttentionGpu attention_sm90_gpu = {prepare_sm90, run_sm90, describe_sm90};

}  // namespace halftone
