// MoE router on GPUs: scores, top-k and routing weights. A warp takes a token or, of few tokens, a
// CTA; its scores and sort keys are in shared memory.
#pragma once
#include "base/launch.h"
#include "formats/recipe.h"
#include "halftone/moe.h"
#include "hw/barrier.h"
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
  const float* bias = nullptr;  // selection bias, or null
  int64_t bias_step = 0;
  int32_t* expert_ids = nullptr;  // [tokens, top_k]
  float* weights = nullptr;
  uint32_t tokens = 0, experts = 0;
  Format format = Format::f32;
  RoutingOptions options;
  // Hash routing: row ids[token] of the table is the choice. An id out of either range is reported,
  // and chosen as expert -1 with weight 0, which the experts skip.
  const int32_t* ids = nullptr;  // [tokens]
  int64_t id_step = 0;
  const void* table = nullptr;  // i32, or i64 if `wide`, [table_rows, top_k]; null: top-k
  int64_t table_rows = 0, table_row = 0, table_column = 0;
  bool wide = false;
  FaultReporter faults;
};

// A warp selects the best score top_k times. A CTA instead ranks: for every expert it counts how
// many are better, which is more work and, with four schedulers, the lower latency for a token that
// nothing else runs beside: 8 of 128 experts take a warp 5,700 clocks.
template <bool kPerCta>
struct GpuRoute {
  using Params = GpuRouteParams;
  static constexpr uint32_t kWarps = 4, kThreads = kWarps * 32, kMinBlocks = 1;  // at most
  static constexpr uint32_t kMembers = kPerCta ? kThreads : 32;                  // of a token
  static constexpr uint32_t kFloats = 48 * 1024 / 4;  // what every GPU gives a CTA
  static constexpr uint32_t kMaxRanked = 1024;        // experts that a CTA ranks, at most
  static constexpr uint32_t kKept = 8;                // keys of a lane in registers, at most
  static constexpr float kInfinity = __builtin_huge_valf(), kMost = kFloatMax;

  // Of a token: scores, selection keys, a copy of these for the selection of groups, and the
  // groups' own scores and whether they are kept; then partial results of warps.
  HT_HOST_DEVICE static uint32_t padded(uint32_t count) { return (count + 15) / 16 * 16; }
  HT_HOST_DEVICE static uint32_t floats(uint32_t experts, uint32_t groups) {
    return 3 * padded(experts) + 2 * groups + kWarps;
  }
  static LaunchShape shape(const Params& p) {
    const uint32_t each = floats(p.experts, static_cast<uint32_t>(p.options.groups));
    const uint32_t warps = kPerCta || kWarps * each <= kFloats ? kWarps : 1;
    const uint32_t tokens = kPerCta ? 1 : warps;
    return {.grid = {(p.tokens + tokens - 1) / tokens, 1, 1},
            .block = {warps * 32, 1, 1},
            .cluster = {},
            .shared_bytes = tokens * each * 4};
  }
  HT_DEVICE static uint32_t member() { return kPerCta ? hw::thread_index().x : hw::lane_index(); }
  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    if constexpr (kPerCta) {
      hw::barrier_sync(site);
    } else {
      hw::warp_sync(hw::kFullWarp, site);
    }
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
  // Calls f(i) for the lane's share of [begin, end), by a warp.
  template <class F>
  HT_DEVICE static void each_of_warp(uint32_t begin, uint32_t end, F f) {
    for (uint32_t i = begin + hw::lane_index(); i < end; i += 32) f(i);
  }
  // Calls f(i) for the member's share of [0, end); a member is a lane of the warp or a thread of
  // the CTA.
  template <class F>
  HT_DEVICE static void each(uint32_t end, F f) {
    for (uint32_t i = member(); i < end; i += kMembers) f(i);
  }
  // Calls f(i, load(i)) for the member's share of [0, end), with up to kKept loads in flight.
  template <class Load, class F>
  HT_DEVICE static void each_at_once(uint32_t end, Load load, F f) {
    constexpr uint32_t kCount = kPerCta ? 2 : kKept;
    for (uint32_t begin = member(); begin < end; begin += kMembers * kCount) {
      float x[kCount];
      HT_UNROLL
      for (uint32_t j = 0; j < kCount; ++j) {
        if (begin + j * kMembers < end) x[j] = load(begin + j * kMembers);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kCount; ++j) {
        if (begin + j * kMembers < end) f(begin + j * kMembers, x[j]);
      }
    }
  }
  // The maximum of the members' x; `words` are kWarps floats of their own.
  HT_DEVICE static float largest_of_all(float x, hw::SharedAddress words) {
    const auto join = [&](float y) { x = y > x ? y : x; };
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) join(hw::shuffle_xor(x, d));
    if constexpr (!kPerCta) return x;
    if (hw::lane_index() == 0) hw::store_shared(words + hw::warp_index() * 4, x);
    hw::barrier_sync();
    HT_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) join(hw::load_shared<float>(words + w * 4));
    return x;
  }

  // The index of the warp's largest `most`, broadcast to all lanes; ties: the lowest.
  HT_DEVICE static uint32_t first_of_most(uint32_t& most, uint32_t index,
                                          hw::Site site = hw::Site::current()) {
    const uint32_t mine = most;
    most = hw::redux<hw::Reduction::max>(mine, hw::kFullWarp, site);
    return hw::redux<hw::Reduction::min>(mine == most ? index : ~0u, hw::kFullWarp, site);
  }

  // The index of the largest of [begin, end), which is then removed; ties: the lower. Its key is
  // returned in `value`.
  HT_DEVICE static uint32_t take_best(const Row& keys, uint32_t begin, uint32_t end, float& value,
                                      hw::Site site = hw::Site::current()) {
    uint32_t most = 0, best = end;
    each_of_warp(begin, end, [&](uint32_t i) {
      const uint32_t order = pipe::order_of(keys.get(i, site));
      if (order > most) most = order, best = i;
    });
    best = first_of_most(most, best, site);
    value = pipe::number_of_order(most);
    // By the lane that read it: warp reductions do not order memory.
    if ((best - begin) % 32 == hw::lane_index()) keys.set(best, -kInfinity, site);
    hw::warp_sync(hw::kFullWarp, site);
    return best;
  }

  HT_DEVICE static Row keys_of(const Params& p, const Row& scores) {
    return {scores.base + padded(p.experts) * 4};
  }
  HT_DEVICE static Row rest_of(const Params& p, const Row& scores) {
    return {scores.base + 2 * padded(p.experts) * 4};
  }
  HT_DEVICE static Row groups_of(const Params& p, const Row& scores) {
    return {scores.base + 3 * padded(p.experts) * 4};
  }
  HT_DEVICE static hw::SharedAddress results_of_warps(const Params& p, const Row& scores) {
    return groups_of(p, scores).base + 2 * static_cast<uint32_t>(p.options.groups) * 4;
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
      each(p.experts, [&](uint32_t e) {
        const int64_t at = first + e * p.column;
        take(e, pipe::load_element(p.format, p.logits + at * pipe::bytes_of(p.format)));
      });
    }
    if (p.options.scoring == Scoring::sigmoid) {
      each(p.experts, [&](uint32_t e) { scores.set(e, pipe::sigmoid<false>(scores.get(e))); });
      return;
    }
    if (p.options.scoring == Scoring::sqrt_softplus) {
      each(p.experts, [&](uint32_t e) {
        const float x = scores.get(e), ramp = x > 0 ? x : 0;
        const float soft = pipe::log1p_unit(pipe::exponential<false>(x > 0 ? -x : x));
        scores.set(e, __builtin_sqrtf(ramp + soft));
      });
      return;
    }
    greatest = largest_of_all(greatest, results_of_warps(p, scores));
    const bool infinite = greatest == kInfinity || greatest == -kInfinity;
    float sum = 0;
    each(p.experts, [&](uint32_t e) {
      const float x = scores.get(e);
      const float weight =
          infinite ? (x == greatest ? 1.0f : 0.0f) : pipe::exponential<false>(x - greatest);
      scores.set(e, weight);
    });
    // In the order of a warp, so that a token's weights do not depend on the number of tokens.
    sync();
    each_of_warp(0, p.experts, [&](uint32_t e) { sum += scores.get(e); });
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) sum += hw::shuffle_xor(sum, d);
    sync();
    each(p.experts, [&](uint32_t e) { scores.set(e, scores.get(e) / sum); });
  }

  // Removes the experts of all but the best groups (group-limited routing).
  HT_DEVICE static void limit_groups(const Params& p, const Row& keys, const Row& rest,
                                     const Row& groups) {
    const auto count = static_cast<uint32_t>(p.options.groups);
    const auto kept_count = static_cast<uint32_t>(p.options.groups_kept);
    if (kept_count >= count) return;
    const uint32_t size = p.experts / count;
    const Row kept{groups.base + count * 4};
    each_of_warp(0, p.experts, [&](uint32_t e) { rest.set(e, keys.get(e)); });
    each_of_warp(0, count, [&](uint32_t g) { kept.set(g, 0); });
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
    each_of_warp(0, p.experts, [&](uint32_t e) {
      if (kept.get(e / size) == 0) keys.set(e, -kInfinity);
    });
    hw::warp_sync();
  }

  // Top-k by score and bias; the sum of their scores.
  HT_DEVICE static float choose(const Params& p, const Row& scores, int32_t* expert_ids) {
    const Row keys = keys_of(p, scores);
    if (p.bias == nullptr) {
      each(p.experts, [&](uint32_t e) { keys.set(e, scores.get(e)); });
    } else {
      each_at_once(
          p.experts, [&](uint32_t e) { return hw::load_global(p.bias + e * p.bias_step); },
          [&](uint32_t e, float bias) {
            const float key = scores.get(e) + bias;
            // A NaN or -infinity would leave fewer than top_k experts to choose from.
            keys.set(e, key > -kMost ? key : -kMost);
          });
    }
    if constexpr (kPerCta) return choose_by_rank(p, scores, keys, expert_ids);
    sync();
    limit_groups(p, keys, rest_of(p, scores), groups_of(p, scores));
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
      if (hw::lane_index() == 0) set_choice(p, scores, expert_ids, i, static_cast<int32_t>(best));
    }
    return sum;
  }
  // An expert's rank is the number of experts that are better.
  HT_DEVICE static float choose_by_rank(const Params& p, const Row& scores, const Row& keys,
                                        int32_t* expert_ids) {
    const uint32_t all = padded(p.experts), thread = hw::thread_index().x;
    if (thread < all - p.experts) keys.set(p.experts + thread, -kInfinity);
    sync();
    if (p.options.groups_kept < p.options.groups) {
      if (hw::warp_index() == 0) {
        limit_groups(p, keys, rest_of(p, scores), groups_of(p, scores));
      }
      sync();
    }
    const auto top_k = static_cast<uint32_t>(p.options.top_k);
    each(p.experts, [&](uint32_t e) {
      const float mine = keys.get(e);
      uint32_t counts[4] = {};
      HT_ROLLED
      for (uint32_t first = 0; first < all; first += 16) {
        hw::Vector<float, 4> others[4];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          others[i] = hw::load_shared<hw::Vector<float, 4>>(keys.base + (first + 4 * i) * 4);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 16; ++i) {
          const float other = others[i / 4].at[i % 4];
          counts[i % 4] += other > mine || (other == mine && first + i < e) ? 1 : 0;
        }
      }
      const uint32_t better = counts[0] + counts[1] + counts[2] + counts[3];
      if (better < top_k) set_choice(p, scores, expert_ids, better, static_cast<int32_t>(e));
    });
    sync();
    float sum = 0;
    for (uint32_t i = 0; i < top_k; ++i) {
      sum += score_of(p, scores, hw::load_shared<int32_t>(choices(p, scores) + i * 4));
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

  // Choice i of a token, for the lanes that compute its weight as well: where limit_groups had its
  // copy.
  HT_DEVICE static hw::SharedAddress choices(const Params& p, const Row& scores) {
    return rest_of(p, scores).base;
  }
  HT_DEVICE static void set_choice(const Params& p, const Row& scores, int32_t* expert_ids,
                                   uint32_t i, int32_t expert,
                                   hw::Site site = hw::Site::current()) {
    hw::store_shared(choices(p, scores) + i * 4, expert, site);
    hw::store_global(expert_ids + i, expert, site);
  }

  HT_DEVICE static float score_of(const Params& p, const Row& scores, int32_t expert) {
    const auto e = static_cast<uint32_t>(expert);
    return e < p.experts ? scores.get(e) : 0.0f;
  }
  // The choices of the token's row of the table (hash routing).
  HT_DEVICE static float look_up(const Params& p, uint32_t token, const Row& scores,
                                 int32_t* expert_ids) {
    sync();  // scores are read by other threads than wrote them
    const auto top_k = static_cast<uint32_t>(p.options.top_k);
    const bool first = member() == 0;
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
      if (first) set_choice(p, scores, expert_ids, i, expert);
    }
    return sum;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    uint32_t token = hw::block_index().x, place = 0;
    if constexpr (!kPerCta) {
      place = hw::warp_index();
      token = token * (hw::block_size().x / 32) + place;
    }
    if (token >= p.tokens) return;
    const auto top_k = static_cast<uint32_t>(p.options.top_k);
    const auto groups = static_cast<uint32_t>(p.options.groups);
    const Row scores{hw::shared_memory_base() + place * floats(p.experts, groups) * 4};
    score(p, token, scores);
    int32_t* expert_ids = p.expert_ids + int64_t{token} * top_k;
    float* weights = p.weights + int64_t{token} * top_k;
    const float sum =
        p.table != nullptr ? look_up(p, token, scores, expert_ids) : choose(p, scores, expert_ids);
    sync();
    each(top_k, [&](uint32_t i) {
      float weight = score_of(p, scores, hw::load_shared<int32_t>(choices(p, scores) + i * 4));
      if (p.options.renormalize && sum > 0) weight /= sum;
      hw::store_global(weights + i, weight * p.options.scale);
    });
  }
};

}  // namespace halftone
