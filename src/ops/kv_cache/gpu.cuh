// KV cache append for every GPU: converts or quantises K and V rows into the pages of the cache. A
// group of threads has a block of elements that share a scale, or a head's row where the cache is
// not quantised, eight elements a thread. Positions are read on the device, so that a captured
// graph can be replayed.
#pragma once
#include "formats/gpu/blocks.cuh"
#include "hw/griddep.h"
#include "ops/kv_cache/kernels.h"

namespace halftone {

struct AppendGpu {
  struct Params {
    AppendArgs args;
    int64_t groups, wide;  // groups of a row; elements of a group
    uint32_t group_threads;
  };
  // Eight elements a thread, and rows have at most 1024.
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const AppendArgs& args = p.args;
    const CacheShape& shape = args.shape;
    pipe::RowThreads threads(p.group_threads);
    const int64_t per_part = args.rows * shape.heads * p.groups;
    const int64_t index = threads.row(), part = index < per_part ? 0 : 1;
    const int64_t in_part = index - part * per_part;
    const int64_t group = in_part % p.groups, source_row = in_part / p.groups;
    const int64_t row = source_row / shape.heads, head = source_row % shape.heads;

    int64_t slot = -1;
    if (index < 2 * per_part) {
      const int64_t position = args.positions != nullptr ? hw::load_global(args.positions + row)
                                                         : args.first + row % args.tokens;
      slot = shape.slot(row / args.tokens, position);
    }
    const bool live = slot >= 0;
    const int64_t first = group * p.wide + int64_t{8} * threads.rank();
    const int64_t end = (group + 1) * p.wide;
    const pipe::Quads at{first, first + 4};
    float v[8] = {};
    if (live && first < end) pipe::load_eight(args.source, args.x[part][source_row], at, end, v);
    const int64_t target = slot * shape.heads + head;
    if (args.scales[part] == nullptr) {
      char* to = reinterpret_cast<char*>(args.codes[part]) +
                 target * shape.head_dim * pipe::bytes_of(args.format);
      if (live && first < end) pipe::store_eight(args.format, to, at, end, v);
      return;
    }

    uint32_t largest = 0;  // as bits: a NaN is above everything
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t bits = magnitude(v[i]);
      largest = bits > largest ? bits : largest;
    }
    largest = threads.reduce(largest, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
    if (!live) return;
    const bool finite = largest < kInfinityBits;
    const float fixed = args.static_scale[part];
    const BlockScale scale = fixed > 0 ? scale_near(args.recipe, fixed)
                             : finite  ? block_scale(args.recipe, largest)
                                       : poisoned_scale(args.recipe);
    if (threads.rank() == 0) {
      store_scale(args.recipe.scale_format, args.scales[part], target * p.groups + group,
                  scale.code);
    }
    if (first >= end) return;
    const int64_t pitch = code_offset(args.format, shape.head_dim);
    Quantize::store_codes(
        args.format, args.codes[part] + target * pitch, first, end,
        finite || fixed > 0 ? encode_eight<false>(args.recipe, v, scale.multiplier, 0) : 0);
  }

 private:
  using Quantize = QuantizeBlocksGpu<false>;
};

}  // namespace halftone
