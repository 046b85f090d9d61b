// The router on a GPU: a warp takes a token, its scores and keys lie in shared memory.
#pragma once
#include "base/launch.h"
#include "formats/recipe.h"
#include "halftone/moe.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/vote.h"
#include "hw/warp.h"
#include "pipe/elements.h"
#include "pipe/fault.h"
#include "pipe/math.h"
#include "pipe/order_key.h"

namespace halftone {

struct GpuRouteParams {
  const char* logits = nullptr;  // [tokens, experts], strides in elements
  int64_t row = 0, column = 0;
  const float* bias = nullptr;  // of the choice, or null
  int64_t bias_step = 0;
  int32_t* chosen = nullptr;  // [tokens, top_k]
  float* weights = nullptr;
  uint32_t tokens = 0, experts = 0;
  Format format = Format::f32;
  RoutingOptions options;
  // Hash routing: row ids[token] of the table is the choice. What is in neither is reported, and
  // chosen as -1 with the weight 0, which the experts leave out.
  const int32_t* ids = nullptr;  // [tokens]
  int64_t id_step = 0;
  const void* table = nullptr;  // i32, or i64 if `wide`, [table_rows, top_k]; null: the best
  int64_t table_rows = 0, table_row = 0, table_column = 0;
  bool wide = false;
  FaultReporter faults;
};

struct GpuRoute {
  using Params = GpuRouteParams;
  static constexpr uint32_t kWarps = 4, kThreads = kWarps * 32, kMinBlocks = 1;  // at most
  static constexpr uint32_t kFloats = 48 * 1024 / 4;  // what every GPU gives a block
  static constexpr uint32_t kKept = 8;                // keys of a lane in registers, at most
  static constexpr float kInfinity = __builtin_huge_valf(), kMost = kFloatMax;

  // Of a warp: scores, keys of the choice, the same once more for the choice of groups, and the
  // groups' own scores and whether they stay.
  HT_HOST_DEVICE static uint32_t floats(uint32_t experts, uint32_t groups) {
    return 3 * experts + 2 * groups;
  }
  static LaunchShape shape(const Params& p) {
    const uint32_t each = floats(p.experts, static_cast<uint32_t>(p.options.groups));
    const uint32_t warps = kWarps * each <= kFloats ? kWarps : 1;
    return {.grid = {(p.tokens + warps - 1) / warps, 1, 1},
            .block = {warps * 32, 1, 1},
            .cluster = {},
            .shared_bytes = warps * each * 4};
  }

  struct Row {
    hw::SharedAddress base;
    HT_DEVICE float get(uint32_t i, hw::Site site = hw::Site::current()) const {
      return hw::load_shared<float>(base + i * 4, site);
    }
    HT_DEVICE void set(uint32_t i, float x, hw::Site site = hw::Site::current()) const {
      hw::store_shared(base + i * 4, x, site);
    }
  };
  // Calls f(i) for the lane's share of [begin, end).
  template <class F>
  HT_DEVICE static void each(uint32_t begin, uint32_t end, F f) {
    for (uint32_t i = begin + hw::lane_index(); i < end; i += 32) f(i);
  }
  // Calls f(i, load(i)) for the lane's share of [0, end); the loads of up to kKept wait together.
  template <class Load, class F>
  HT_DEVICE static void each_at_once(uint32_t end, Load load, F f) {
    for (uint32_t begin = hw::lane_index(); begin < end; begin += 32 * kKept) {
      float x[kKept];
      HT_UNROLL
      for (uint32_t j = 0; j < kKept; ++j) {
        if (begin + j * 32 < end) x[j] = load(begin + j * 32);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kKept; ++j) {
        if (begin + j * 32 < end) f(begin + j * 32, x[j]);
      }
    }
  }
  HT_DEVICE static float warp_sum(float x, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) x += hw::shuffle_xor(x, d, 32, hw::kFullWarp, site);
    return x;
  }

  // The index of the warp's largest `most`, which all lanes get; ties: the lowest.
  HT_DEVICE static uint32_t first_of_most(uint32_t& most, uint32_t index,
                                          hw::Site site = hw::Site::current()) {
    const uint32_t mine = most;
    most = hw::redux<hw::Reduction::max>(mine, hw::kFullWarp, site);
    return hw::redux<hw::Reduction::min>(mine == most ? index : ~0u, hw::kFullWarp, site);
  }

  // The index of the largest of [begin, end), which then leaves the choice; ties: the lower. What
  // it was comes back in `value`.
  HT_DEVICE static uint32_t take_best(const Row& keys, uint32_t begin, uint32_t end, float& value,
                                      hw::Site site = hw::Site::current()) {
    uint32_t most = 0, best = end;
    each(begin, end, [&](uint32_t i) {
      const uint32_t order = pipe::order_of(keys.get(i, site));
      if (order > most) most = order, best = i;
    });
    best = first_of_most(most, best, site);
    value = pipe::number_of_order(most);
    // By the lane that read it: reductions of a warp do not order memory.
    if ((best - begin) % 32 == hw::lane_index()) keys.set(best, -kInfinity, site);
    hw::warp_sync(hw::kFullWarp, site);
    return best;
  }

  HT_DEVICE static void score(const Params& p, uint32_t token, const Row& scores) {
    float greatest = -kInfinity;
    const int64_t first = token * p.row;
    const auto take = [&](uint32_t e, float x) {
      if (x != x) x = -kInfinity;
      greatest = x > greatest ? x : greatest;
      scores.set(e, x);
    };
    if (p.format == Format::f32) {
      const auto* logits = reinterpret_cast<const float*>(p.logits) + first;
      each_at_once(
          p.experts, [&](uint32_t e) { return hw::load_global(logits + e * p.column); }, take);
    } else {
      each(0, p.experts, [&](uint32_t e) {
        const int64_t at = first + e * p.column;
        take(e, pipe::load_element(p.format, p.logits + at * pipe::bytes_of(p.format)));
      });
    }
    if (p.options.scoring == Scoring::sigmoid) {
      each(0, p.experts, [&](uint32_t e) { scores.set(e, pipe::sigmoid<false>(scores.get(e))); });
      return;
    }
    if (p.options.scoring == Scoring::sqrt_softplus) {
      each(0, p.experts, [&](uint32_t e) {
        const float x = scores.get(e), ramp = x > 0 ? x : 0;
        const float soft = pipe::log1p_unit(pipe::exponential<false>(x > 0 ? -x : x));
        scores.set(e, __builtin_sqrtf(ramp + soft));
      });
      return;
    }
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) {
      const float other = hw::shuffle_xor(greatest, d);
      greatest = other > greatest ? other : greatest;
    }
    const bool infinite = greatest == kInfinity || greatest == -kInfinity;
    float sum = 0;
    each(0, p.experts, [&](uint32_t e) {
      const float x = scores.get(e);
      const float weight =
          infinite ? (x == greatest ? 1.0f : 0.0f) : pipe::exponential<false>(x - greatest);
      sum += weight;
      scores.set(e, weight);
    });
    sum = warp_sum(sum);
    each(0, p.experts, [&](uint32_t e) { scores.set(e, scores.get(e) / sum); });
  }

  // Removes the experts of all but the best groups.
  HT_DEVICE static void limit_groups(const Params& p, const Row& keys, const Row& rest,
                                     const Row& groups) {
    const auto count = static_cast<uint32_t>(p.options.groups);
    const auto kept_count = static_cast<uint32_t>(p.options.groups_kept);
    if (kept_count >= count) return;
    const uint32_t size = p.experts / count;
    const Row kept{groups.base + count * 4};
    each(0, p.experts, [&](uint32_t e) { rest.set(e, keys.get(e)); });
    each(0, count, [&](uint32_t g) { kept.set(g, 0); });
    hw::warp_sync();
    for (uint32_t g = 0; g < count; ++g) {
      float total = 0;
      for (int i = 0; i < p.options.group_top; ++i) {
        float value;
        take_best(rest, g * size, (g + 1) * size, value);
        total += value;
      }
      if (hw::lane_index() == 0) groups.set(g, total > -kMost ? total : -kMost);
    }
    hw::warp_sync();
    for (uint32_t i = 0; i < kept_count; ++i) {
      float value;
      const uint32_t best = take_best(groups, 0, count, value);
      if (hw::lane_index() == 0) kept.set(best, 1);
    }
    hw::warp_sync();
    each(0, p.experts, [&](uint32_t e) {
      if (kept.get(e / size) == 0) keys.set(e, -kInfinity);
    });
    hw::warp_sync();
  }

  // The best by score and bias; the sum of their scores.
  HT_DEVICE static float choose(const Params& p, const Row& scores, int32_t* chosen) {
    const Row keys{scores.base + p.experts * 4}, rest{keys.base + p.experts * 4};
    if (p.bias == nullptr) {
      each(0, p.experts, [&](uint32_t e) { keys.set(e, scores.get(e)); });
    } else {
      each_at_once(
          p.experts, [&](uint32_t e) { return hw::load_global(p.bias + e * p.bias_step); },
          [&](uint32_t e, float bias) {
            const float key = scores.get(e) + bias;
            // A NaN or -infinity would leave fewer than top_k experts to choose from.
            keys.set(e, key > -kMost ? key : -kMost);
          });
    }
    hw::warp_sync();
    limit_groups(p, keys, rest, {rest.base + p.experts * 4});
    uint32_t order[kKept] = {};
    const bool kept = p.experts <= kKept * 32;
    if (kept) {
      HT_UNROLL
      for (uint32_t j = 0; j < kKept; ++j) {
        const uint32_t e = hw::lane_index() + j * 32;
        if (e < p.experts) order[j] = pipe::order_of(keys.get(e));
      }
    }
    float sum = 0;
    for (uint32_t i = 0; i < static_cast<uint32_t>(p.options.top_k); ++i) {
      float key;
      const uint32_t best = kept ? take_kept(order) : take_best(keys, 0, p.experts, key);
      sum += scores.get(best);
      if (hw::lane_index() == 0) set_choice(p, scores, chosen, i, static_cast<int32_t>(best));
    }
    return sum;
  }
  // As take_best, of keys in registers.
  HT_DEVICE static uint32_t take_kept(uint32_t (&order)[kKept]) {
    uint32_t most = 0, best = 0;
    HT_UNROLL
    for (uint32_t j = 0; j < kKept; ++j) {
      if (order[j] > most) most = order[j], best = hw::lane_index() + j * 32;
    }
    best = first_of_most(most, best);
    HT_UNROLL
    for (uint32_t j = 0; j < kKept; ++j) {
      if (best == hw::lane_index() + j * 32) order[j] = 0;
    }
    return best;
  }

  // Choice i of a token, for the lanes that weigh it as well: where limit_groups had its copy.
  HT_DEVICE static hw::SharedAddress choices(const Params& p, const Row& scores) {
    return scores.base + 2 * p.experts * 4;
  }
  HT_DEVICE static void set_choice(const Params& p, const Row& scores, int32_t* chosen, uint32_t i,
                                   int32_t expert, hw::Site site = hw::Site::current()) {
    hw::store_shared(choices(p, scores) + i * 4, expert, site);
    hw::store_global(chosen + i, expert, site);
  }

  HT_DEVICE static float score_of(const Params& p, const Row& scores, int32_t expert) {
    const auto e = static_cast<uint32_t>(expert);
    return e < p.experts ? scores.get(e) : 0.0f;
  }
  // Those of the token's row of the table.
  HT_DEVICE static float look_up(const Params& p, uint32_t token, const Row& scores,
                                 int32_t* chosen) {
    hw::warp_sync();  // scores are read by other lanes than wrote them
    const auto top_k = static_cast<uint32_t>(p.options.top_k);
    const bool first = hw::lane_index() == 0;
    const int32_t id = hw::load_global(p.ids + token * p.id_step);
    const bool known = id >= 0 && id < p.table_rows;
    if (!known && first) pipe::report_fault(p.faults, Fault::moe_token, token, id, p.table_rows);
    float sum = 0;
    for (uint32_t i = 0; i < top_k; ++i) {
      const int64_t at = id * p.table_row + i * p.table_column;
      const int64_t entry = known ? pipe::load_index(p.table, p.wide, at) : -1;
      const bool exists = entry >= 0 && entry < p.experts;
      if (known && !exists && first) {
        pipe::report_fault(p.faults, Fault::moe_table, id, entry, p.experts);
      }
      const int32_t expert = exists ? static_cast<int32_t>(entry) : -1;
      sum += score_of(p, scores, expert);
      if (first) set_choice(p, scores, chosen, i, expert);
    }
    return sum;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::take_turns();
    const uint32_t token = hw::block_index().x * (hw::block_size().x / 32) + hw::warp_index();
    if (token >= p.tokens) return;
    const auto top_k = static_cast<uint32_t>(p.options.top_k);
    const auto groups = static_cast<uint32_t>(p.options.groups);
    const Row scores{hw::shared_memory_base() + hw::warp_index() * floats(p.experts, groups) * 4};
    score(p, token, scores);
    int32_t* chosen = p.chosen + int64_t{token} * top_k;
    float* weights = p.weights + int64_t{token} * top_k;
    const float sum =
        p.table != nullptr ? look_up(p, token, scores, chosen) : choose(p, scores, chosen);
    hw::warp_sync();
    each(0, top_k, [&](uint32_t i) {
      float weight = score_of(p, scores, hw::load_shared<int32_t>(choices(p, scores) + i * 4));
      if (p.options.renormalize && sum > 0) weight /= sum;
      hw::store_global(weights + i, weight * p.options.scale);
    });
  }
};

}  // namespace halftone
