// Top-k, top-p, min-p and the draw without a sort: the score of the last token that stays is found
// by its digits, 11 bits a pass, from histograms of how many tokens, or how much weight, each digit
// has. All sums are of integers, so their order does not matter.
#pragma once
#include "ops/sampling/draw.h"
#include "ops/sampling/fixed_point.h"
#include "ops/sampling/gpu.cuh"

namespace halftone {

enum class Filter : uint32_t { top_k, top_p };

// Where a search stands: digits of `key` are those of the token looked for, `least` what is left to
// be reached among the tokens that share them; 0: every token stays.
struct SearchState {
  uint32_t key = 0, padding = 0;
  uint64_t least = 0;
};
// Of tokens in the order of their indices: the weight of those above the threshold of top-p, and
// how many are at it, of which the first stay.
struct Share {
  uint64_t weight = 0, ties = 0;
};

struct DrawParams {
  static constexpr uint32_t kLevels = 3, kBins = 2048, kStretch = 4096;
  LogitRows logits;
  DrawRow* rows;
  uint64_t* weights;    // [rows, vocabulary]
  uint32_t* keys;       // [rows, vocabulary], scores in their order
  uint64_t* bins;       // [rows, 2, kLevels, kBins], 0 before
  SearchState* states;  // [rows, 2, kLevels]
  Share* stretches;     // [rows, stretches]
  uint64_t* chosen;     // [rows]
  uint32_t stretch_count;
  int bits;  // of weights
  Filter filter;
  uint32_t level;
};

struct DrawBlock {
  static constexpr uint32_t kThreads = 256, kScratchBytes = 128;

  HT_DEVICE DrawBlock(const DrawParams& p, int64_t row)
      : p_(p),
        row_(row),
        thread_(hw::thread_index().x),
        scratch_(hw::shared_memory_base()),
        options_(load_row(p.rows + row)) {}

  HT_DEVICE const DrawRow& options() const { return options_; }
  HT_DEVICE bool runs(Filter f) const {
    return f == Filter::top_k ? options_.top_k > 0 : options_.top_p < 1;
  }
  HT_DEVICE static uint32_t shift(uint32_t level) { return level == 0 ? 21 : level == 1 ? 10 : 0; }
  HT_DEVICE uint64_t* bins(Filter f, uint32_t level) const {
    return p_.bins + ((row_ * 2 + static_cast<uint32_t>(f)) * p_.kLevels + level) * p_.kBins;
  }
  HT_DEVICE SearchState* state(Filter f, uint32_t level) const {
    return p_.states + (row_ * 2 + static_cast<uint32_t>(f)) * p_.kLevels + level;
  }

  struct Scan {
    uint64_t before, total;
  };
  HT_DEVICE Scan scan(uint64_t x) const {
    const uint32_t lane = thread_ % 32, warp = thread_ / 32;
    uint64_t sum = x;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
      auto words = std::bit_cast<hw::Vector<uint32_t, 2>>(sum);
      words[0] = hw::shuffle_up(words[0], distance);
      words[1] = hw::shuffle_up(words[1], distance);
      sum += lane >= distance ? std::bit_cast<uint64_t>(words) : 0;
    }
    if (lane == 31) hw::store_shared(scratch_ + warp * 8, sum);
    hw::barrier_sync();
    Scan result{sum - x, 0};
    for (uint32_t w = 0; w < kThreads / 32; ++w) {
      const auto of_warp = hw::load_shared<uint64_t>(scratch_ + w * 8);
      result.before += w < warp ? of_warp : 0;
      result.total += of_warp;
    }
    hw::barrier_sync();
    return result;
  }

  // What level - 1 of a search has found; all of the block call it.
  HT_DEVICE SearchState after(Filter f, uint32_t level) const {
    if (!runs(f)) return {};
    SearchState now{0, 0, f == Filter::top_k ? static_cast<uint64_t>(options_.top_k) : 1};
    if (level == 0) return now;
    if (level > 1) now = hw::load_global(state(f, level - 1));
    // Eight digits a thread, the largest first.
    constexpr uint32_t kEach = DrawParams::kBins / kThreads;
    const uint32_t highest = DrawParams::kBins - 1 - thread_ * kEach;
    uint64_t bin[kEach], sum = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) sum += bin[i] = load_bin(f, level - 1, highest - i);
    if (thread_ == 0) store_found({});
    const Scan s = scan(sum);
    if (f == Filter::top_p && level == 1) now.least = least_share(s.total, options_.top_p);
    if (now.least > 0 && s.before < now.least && now.least <= s.before + sum) {
      uint64_t least = now.least - s.before;
      uint32_t i = 0;
      HT_UNROLL
      for (uint32_t k = 0; k + 1 < kEach; ++k) {
        if (i == k && least > bin[k]) least -= bin[k], i = k + 1;
      }
      store_found({now.key | (highest - i) << shift(level - 1), 0, least});
    }
    hw::barrier_sync();
    const auto found = hw::load_shared<SearchState>(scratch_ + 64);
    hw::barrier_sync();
    return found;
  }

  // 0: the token goes, 1: it stays, 2: it is at the threshold of top-p.
  HT_DEVICE uint32_t stays(uint64_t weight, uint32_t key, const SearchState& top_k,
                           const SearchState& top_p, uint64_t least) const {
    if (key < top_k.key || weight < least || key < top_p.key) return 0;
    return top_p.least > 0 && key == top_p.key ? 2 : 1;
  }

 private:
  HT_DEVICE static DrawRow load_row(const DrawRow* row) {
    return {hw::load_global(&row->temperature), hw::load_global(&row->top_k),
            hw::load_global(&row->top_p),       hw::load_global(&row->min_p),
            hw::load_global(&row->key),         hw::load_global(&row->draws)};
  }
  HT_DEVICE uint64_t load_bin(Filter f, uint32_t level, uint32_t digit) const {
    return hw::load_global(bins(f, level) + digit);
  }
  HT_DEVICE void store_found(const SearchState& s) const { hw::store_shared(scratch_ + 64, s); }

  const DrawParams& p_;
  int64_t row_;
  uint32_t thread_;
  hw::SharedAddress scratch_;
  DrawRow options_;
};

// Scores as keys, and their weights.
struct WeighTokensGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawBlock::kThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const DrawParams& p) {
    const int64_t row = hw::block_index().y, vocabulary = p.logits.vocabulary;
    const float temperature = hw::load_global(&p.rows[row].temperature);
    if (temperature == 0) return;
    const float largest = pipe::number_of_key(hw::load_global(p.logits.best + row)) / temperature;
    const int64_t begin = int64_t{hw::block_index().x} * p.kStretch;
    for (uint32_t i = hw::thread_index().x; i < p.kStretch; i += kThreads) {
      const int64_t token = begin + i;
      if (token >= vocabulary) return;
      const char* at = p.logits.base + row * p.logits.row_stride + token * p.logits.column_stride;
      const float score = pipe::load_element(p.logits.format, at) / temperature;
      const double e = portable_exp(static_cast<double>(score) - static_cast<double>(largest));
      hw::store_global(p.weights + row * vocabulary + token, fixed_weight(e, p.bits));
      hw::store_global(p.keys + row * vocabulary + token,
                       static_cast<uint32_t>(pipe::order_key(score, 0) >> 32));
    }
  }
};

// Counts, or weighs, the tokens by one digit of their scores. A stretch's weights are added in
// three parts of 18 bits, whose sums stay below 2^32.
struct SearchTokensGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawBlock::kThreads, kMinBlocks = 1, kParts = 3;
  static constexpr uint32_t kPartBits = 18, kPartBytes = DrawParams::kBins * 4;
  static constexpr uint32_t kSharedBytes = DrawBlock::kScratchBytes + kParts * kPartBytes;

  HT_DEVICE static void run(const DrawParams& p) {
    const int64_t row = hw::block_index().y, vocabulary = p.logits.vocabulary;
    const uint32_t thread = hw::thread_index().x;
    const DrawBlock block(p, row);
    const bool weighs = p.filter == Filter::top_p;
    if (block.options().temperature == 0 || !block.runs(p.filter)) return;
    const SearchState top_k = weighs ? block.after(Filter::top_k, p.kLevels) : SearchState{};
    const SearchState now = block.after(p.filter, p.level);
    if (p.level > 0 && hw::block_index().x == 0 && thread == 0) {
      hw::store_global(block.state(p.filter, p.level), now);
    }
    if (now.least == 0) return;
    const hw::SharedAddress parts = hw::shared_memory_base() + DrawBlock::kScratchBytes;
    for (uint32_t i = thread; i < kParts * p.kBins; i += kThreads) {
      hw::store_shared(parts + i * 4, 0u);
    }
    hw::barrier_sync();
    const int64_t begin = int64_t{hw::block_index().x} * p.kStretch;
    // Digits above this level's: those of the token looked for.
    const uint32_t above = p.level == 0 ? 32 : block.shift(p.level - 1);
    const uint32_t mask = p.level + 1 == p.kLevels ? p.kBins / 2 - 1 : p.kBins - 1;
    for (uint32_t i = thread; i < p.kStretch && begin + i < vocabulary; i += kThreads) {
      const int64_t at = row * vocabulary + begin + i;
      const auto key = hw::load_global(p.keys + at);
      if (key < top_k.key || (above < 32 && (key ^ now.key) >> above != 0)) continue;
      const hw::SharedAddress bin = parts + (key >> block.shift(p.level) & mask) * 4;
      if (!weighs) {
        hw::reduce_shared<hw::Atomic::add>(bin, 1u);
        continue;
      }
      const auto weight = hw::load_global(p.weights + at);
      HT_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) {
        const auto some =
            static_cast<uint32_t>(weight >> kPartBits * part) & ((1u << kPartBits) - 1);
        if (some != 0) hw::reduce_shared<hw::Atomic::add>(bin + part * kPartBytes, some);
      }
    }
    hw::barrier_sync();
    for (uint32_t bin = thread; bin < p.kBins; bin += kThreads) {
      uint64_t sum = 0;
      HT_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) {
        const auto some = hw::load_shared<uint32_t>(parts + part * kPartBytes + bin * 4);
        sum += uint64_t{some} << kPartBits * part;
      }
      if (sum != 0) hw::reduce_global<hw::Atomic::add>(block.bins(p.filter, p.level) + bin, sum);
    }
  }
};

// What stays of each stretch.
struct ShareTokensGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawBlock::kThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const DrawParams& p) {
    const int64_t row = hw::block_index().y, vocabulary = p.logits.vocabulary;
    const DrawBlock block(p, row);
    if (block.options().temperature == 0) return;
    const SearchState top_k = block.after(Filter::top_k, p.kLevels);
    const SearchState top_p = block.after(Filter::top_p, p.kLevels);
    const uint64_t least = fixed_weight(static_cast<double>(block.options().min_p), p.bits);
    const int64_t begin = int64_t{hw::block_index().x} * p.kStretch;
    Share share;
    for (uint32_t i = hw::thread_index().x; i < p.kStretch && begin + i < vocabulary;
         i += kThreads) {
      const int64_t at = row * vocabulary + begin + i;
      const auto weight = hw::load_global(p.weights + at);
      const uint32_t stays = block.stays(weight, hw::load_global(p.keys + at), top_k, top_p, least);
      share.weight += stays == 1 ? weight : 0;
      share.ties += stays == 2;
    }
    share.weight = block.scan(share.weight).total;
    share.ties = block.scan(share.ties).total;
    if (hw::thread_index().x == 0) {
      hw::store_global(p.stretches + row * p.stretch_count + hw::block_index().x, share);
    }
  }
};

// The draw: the stretch, then sixteen tokens, then the token at which the weights, added in the
// order of the tokens, pass what was drawn.
struct DrawTokenGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawBlock::kThreads, kMinBlocks = 1;
  static constexpr uint32_t kEach = DrawParams::kStretch / kThreads;

  struct Ties {
    uint64_t weight, kept;  // of one; how many stay in all
    HT_DEVICE uint64_t sum(const Share& s, uint64_t before) const {
      const uint64_t left = before < kept ? kept - before : 0;
      return s.weight + (s.ties < left ? s.ties : left) * weight;
    }
  };

  HT_DEVICE static void run(const DrawParams& p) {
    const int64_t row = hw::block_index().x, vocabulary = p.logits.vocabulary;
    const uint32_t thread = hw::thread_index().x;
    const DrawBlock block(p, row);
    const DrawRow& options = block.options();
    const uint64_t best = hw::load_global(p.logits.best + row);
    const float largest = pipe::number_of_key(best) / options.temperature;
    if (options.temperature == 0 || largest - largest != 0) {  // nothing to draw from
      const float logit = pipe::number_of_key(best);
      const bool overflows = options.temperature != 0 && logit - logit == 0;
      const uint64_t none = pipe::order_key(NAN, pipe::index_of_key(best));
      if (thread == 0) hw::store_global(p.chosen + row, overflows ? none : best);
      return;
    }
    const SearchState top_k = block.after(Filter::top_k, p.kLevels);
    const SearchState top_p = block.after(Filter::top_p, p.kLevels);
    const uint64_t least = fixed_weight(static_cast<double>(options.min_p), p.bits);
    Ties ties{0, 0};
    if (top_p.least > 0) {
      const float score = pipe::number_of_key(uint64_t{top_p.key} << 32);
      ties.weight = fixed_weight(
          portable_exp(static_cast<double>(score) - static_cast<double>(largest)), p.bits);
      ties.kept = ties.weight == 0 ? 0 : (top_p.least + ties.weight - 1) / ties.weight;
    }
    // The sum of all that stays.
    uint64_t weight = 0, tied = 0;
    for (uint32_t i = thread; i < p.stretch_count; i += kThreads) {
      const Share s = hw::load_global(p.stretches + row * p.stretch_count + i);
      weight += s.weight, tied += s.ties;
    }
    weight = block.scan(weight).total, tied = block.scan(tied).total;
    uint64_t drawn = draw_below(ties.sum({weight, tied}, 0), draw_bits(options.key, options.draws));
    uint64_t tied_before = 0;
    const uint32_t stretch =
        find(block, p.stretch_count, ties, drawn, tied_before,
             [&](uint32_t i) { return hw::load_global(p.stretches + row * p.stretch_count + i); });
    const int64_t begin = int64_t{stretch} * p.kStretch;
    const auto share_of = [&](int64_t token) {
      if (token >= vocabulary) return Share{};
      const auto own = hw::load_global(p.weights + row * vocabulary + token);
      const uint32_t stays =
          block.stays(own, hw::load_global(p.keys + row * vocabulary + token), top_k, top_p, least);
      return Share{stays == 1 ? own : 0, stays == 2 ? uint64_t{1} : 0};
    };
    const uint32_t group = find(block, kThreads, ties, drawn, tied_before, [&](uint32_t i) {
      Share sum;
      for (uint32_t k = 0; k < kEach; ++k) {
        const Share s = share_of(begin + i * kEach + k);
        sum.weight += s.weight, sum.ties += s.ties;
      }
      return sum;
    });
    if (thread != 0) return;
    int64_t token = begin + int64_t{group} * kEach;
    for (uint32_t k = 0; k + 1 < kEach; ++k, ++token) {
      const Share s = share_of(token);
      const uint64_t sum = ties.sum(s, tied_before);
      if (drawn < sum) break;
      drawn -= sum, tied_before += s.ties;
    }
    const float logit =
        pipe::load_element(p.logits.format, p.logits.base + row * p.logits.row_stride +
                                                token * p.logits.column_stride);
    hw::store_global(p.chosen + row, pipe::order_key(logit, token));
    hw::store_global(&p.rows[row].draws, options.draws + 1);
  }

  // The item in which the sum passes `drawn`, from which those before it are taken.
  template <class Item>
  HT_DEVICE static uint32_t find(const DrawBlock& block, uint32_t count, const Ties& ties,
                                 uint64_t& drawn, uint64_t& tied_before, const Item& item) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress place = hw::shared_memory_base() + 64;
    for (uint32_t first = 0;; first += kThreads) {
      const Share s = first + thread < count ? item(first + thread) : Share{};
      const DrawBlock::Scan tied = block.scan(s.ties);
      const uint64_t own = ties.sum(s, tied_before + tied.before);
      const DrawBlock::Scan sums = block.scan(own);
      if (drawn < sums.total || first + kThreads >= count) {
        if (sums.before <= drawn && drawn < sums.before + own) {
          hw::store_shared(place, uint64_t{first + thread});
          hw::store_shared(place + 8, drawn - sums.before);
          hw::store_shared(place + 16, tied_before + tied.before);
        }
        hw::barrier_sync();
        const auto found = hw::load_shared<uint64_t>(place);
        drawn = hw::load_shared<uint64_t>(place + 8);
        tied_before = hw::load_shared<uint64_t>(place + 16);
        hw::barrier_sync();
        return static_cast<uint32_t>(found);
      }
      drawn -= sums.total, tied_before += tied.total;
    }
  }
};

}  // namespace halftone
