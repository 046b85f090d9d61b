// Sampling on GPUs: penalties, top-k, top-p, min-p, typical-p and the draw, without a sort. A CTA
// has some segments (stretches) of a row. The token at which a filter cuts is found by radix select
// on its key, 11 bits a pass, from histograms of the count, or the weight, of tokens by digit; the
// last CTA of a row to finish continues from the totals. Where top-k leaves few tokens, one CTA
// compares all pairs. All sums are of integers, so their order does not matter. Buffers that are 0
// before a call are 0 again after it.
#pragma once
#include "hw/fence.h"
#include "hw/griddep.h"
#include "ops/sampling/draw.h"
#include "ops/sampling/fixed_point.h"
#include "ops/sampling/gpu.cuh"

namespace halftone {

enum class Filter : uint32_t { top_k, top_p, typical };

// Where a filter cuts: tokens stay whose key is above `key`, or is equal while the token is below
// `end`. During the search the digits of `key` are those found so far, and `least` is what is left
// to be reached among the tokens that share them; 0: every token stays.
struct alignas(16) Cut {
  uint32_t key = 0, end = 0xffffffff;
  uint64_t least = 0;
  HT_DEVICE bool keeps(uint32_t k, uint32_t token) const {
    return k > key || (k == key && token < end);
  }
};
// Sums of the tokens that typical-p chooses from: of their weights, and of weight x distance, which
// is how far a token's score is below the largest one.
struct alignas(16) WeightSums {
  uint64_t weight = 0, product = 0;
};

enum class Few : uint32_t { no, yes, done };  // done: the row's token is chosen

struct DrawParams {
  static constexpr uint32_t kFilters = 3, kLevels = 3, kBins = 2048;
  static constexpr uint32_t kFew = 256;  // as many as a CTA has threads
  static constexpr uint32_t kThreads = 256, kEach = 4, kStretch = kThreads * kEach;
  static constexpr uint32_t kResident = 4;  // CTAs a multiprocessor: 64 registers
  LogitRows logits;
  DrawRow* rows;
  const int32_t* counts;       // [rows, vocabulary]; null: nothing is adjusted
  const float* bias;           // likewise
  uint64_t* best;              // [rows, 2], keys of the largest score and, if adjusted, logit
  uint32_t* keys;              // [rows, stretches, kStretch], scores as order keys, 0: no token
  uint64_t* bins;              // [rows, kBins]
  Cut* cuts;                   // [rows, kFilters]
  WeightSums* weighed;         // [rows]
  double* means;               // [rows], of the distances
  uint64_t* sums;              // [rows, stretches]
  uint32_t* counters;          // [rows], CTAs that have finished
  Few* few;                    // [rows], whether few tokens are left
  uint64_t* listed;            // [rows, kFew], those: key and token
  uint32_t* list_counts;       // [rows]
  uint64_t *largest, *chosen;  // [rows], results
  uint32_t stretches;          // of a row
  uint32_t block_stretches;    // of a CTA
  int bits;                    // of weights
  Filter filter;
  uint32_t level;
};

// The tokens of a thread.
struct TokenKeys {
  static constexpr uint32_t kEach = DrawParams::kEach;
  uint32_t first;       // token
  uint32_t key[kEach];  // of the score
};

class DrawBlock {
 public:
  static constexpr uint32_t kThreads = DrawParams::kThreads, kEach = DrawParams::kEach;
  // After that of RowThreads.
  static constexpr uint32_t kScratch = pipe::RowThreads::kSharedBytes;
  static constexpr uint32_t kScratchBytes = kScratch + 128;
  // A stretch's weights are added in three parts of 18 bits, whose sums stay below 2^32.
  static constexpr uint32_t kParts = 3, kPartBits = 18, kPartBytes = DrawParams::kBins * 4;
  static constexpr uint32_t kSharedBytes = kScratchBytes + kParts * kPartBytes;

  // `first`: of the kernel whose CTAs find what later ones need.
  HT_DEVICE explicit DrawBlock(const DrawParams& p, bool first = false)
      : p_(p),
        row_(hw::block_index().y),
        thread_(hw::thread_index().x),
        scratch_(hw::shared_memory_base() + kScratch),
        options_(load_row(p.rows + row_)) {
    if (first) return;
    best_ = hw::load_global(p.best + 2 * row_), few_ = hw::load_global(p.few + row_);
    HT_UNROLL
    for (uint32_t f = 0; f < DrawParams::kFilters; ++f) {
      cuts_[f] = hw::load_global(cut_at(static_cast<Filter>(f)));
    }
  }

  HT_DEVICE int64_t row() const { return row_; }
  HT_DEVICE uint32_t thread() const { return thread_; }
  HT_DEVICE const DrawRow& options() const { return options_; }
  HT_DEVICE bool runs(Filter f) const {
    if (options_.temperature == 0) return false;
    if (f == Filter::top_k) return options_.top_k > 0;
    return (f == Filter::top_p ? options_.top_p : options_.typical_p) < 1;
  }
  HT_DEVICE Cut* cut_at(Filter f) const {
    return p_.cuts + row_ * p_.kFilters + static_cast<uint32_t>(f);
  }
  // What earlier kernels have found; all loads of a CTA are in flight at once.
  HT_DEVICE Cut cut(Filter f) const {
    if (!runs(f)) return {};
    return f == Filter::top_k ? cuts_[0] : f == Filter::top_p ? cuts_[1] : cuts_[2];
  }
  HT_DEVICE uint64_t best() const { return best_; }
  HT_DEVICE bool is_done() const { return runs(Filter::top_k) && few_ == Few::done; }
  HT_DEVICE bool are_few() const {
    return runs(Filter::top_k) && few_ == Few::yes && largest() - largest() == 0;
  }
  HT_DEVICE float largest() const { return pipe::number_of_key(best_) / options_.temperature; }
  HT_DEVICE uint32_t* keys_at(uint32_t stretch) const {
    return p_.keys + (row_ * p_.stretches + stretch) * p_.kStretch + kEach * thread_;
  }
  HT_DEVICE TokenKeys keys(uint32_t stretch) const {
    const auto four = hw::load_global(reinterpret_cast<const hw::Words4*>(keys_at(stretch)));
    return {stretch * p_.kStretch + kEach * thread_, {four[0], four[1], four[2], four[3]}};
  }

  // Calls body with each of the CTA's stretches.
  template <class Body>
  HT_DEVICE void for_stretches(const Body& body) const {
    const uint32_t first = hw::block_index().x * p_.block_stretches;
    for (uint32_t i = 0; i < p_.block_stretches && first + i < p_.stretches; ++i) body(first + i);
  }
  HT_DEVICE uint64_t* sum_at(uint32_t stretch) const {
    return p_.sums + row_ * p_.stretches + stretch;
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

  // Whether the other CTAs of the row have finished; what they wrote is visible then.
  HT_DEVICE bool is_last() const {
    hw::barrier_sync();
    if (thread_ == 0) {
      hw::fence_acq_rel<hw::Scope::gpu>();
      const uint32_t before = hw::atomic_global<hw::Atomic::add>(p_.counters + row_, 1u);
      hw::fence_acq_rel<hw::Scope::gpu>();
      const bool last = before + 1 == hw::grid_size().x;
      if (last) hw::store_global(p_.counters + row_, 0u);
      hw::store_shared(scratch_ + 96, last ? 1u : 0u);
    }
    hw::barrier_sync();
    return hw::load_shared<uint32_t>(scratch_ + 96) != 0;
  }

  // The stretch in which the prefix sum, in the order of the tokens, exceeds `wanted`, from which
  // the sums of the stretches before it are subtracted.
  HT_DEVICE uint32_t find_stretch(uint64_t& wanted) const {
    for (uint32_t first = 0;; first += kThreads) {
      const uint32_t i = first + thread_, count = p_.stretches;
      const uint64_t own = i < count ? hw::load_global(sum_at(i)) : 0;
      const Scan sums = scan(own);
      if (wanted >= sums.total && first + kThreads < count) {
        wanted -= sums.total;
        continue;
      }
      if (sums.before <= wanted && wanted < sums.before + own) {
        hw::store_shared(scratch_ + 64, uint64_t{i});
        hw::store_shared(scratch_ + 72, wanted - sums.before);
      }
      hw::barrier_sync();
      wanted = hw::load_shared<uint64_t>(scratch_ + 72);
      return static_cast<uint32_t>(hw::load_shared<uint64_t>(scratch_ + 64));
    }
  }
  // The same among the amounts of a stretch: take(k) for the amount in which the prefix sum exceeds
  // it.
  template <class Take>
  HT_DEVICE void find_token(const uint64_t (&amounts)[kEach], uint64_t wanted,
                            const Take& take) const {
    uint64_t own = 0;
    HT_UNROLL
    for (const uint64_t amount : amounts) own += amount;
    uint64_t before = scan(own).before;
    HT_UNROLL
    for (uint32_t k = 0; k < kEach; ++k) {
      if (before <= wanted && wanted < before + amounts[k]) take(k);
      before += amounts[k];
    }
  }

  // A search adds the amounts of this CTA's tokens to the bins of their digit, and the last CTA
  // finds the digit of the cut.
  HT_DEVICE void begin_search(Filter f) const {
    for (uint32_t i = thread_; i < parts_of(f) * p_.kBins; i += kThreads) {
      hw::store_shared(bins_at() + i * 4, 0u);
    }
    hw::barrier_sync();
  }
  // amounts: 0 for tokens that are already filtered out. Returns whether any counts.
  HT_DEVICE bool add(Filter f, uint32_t level, const Cut& now, const uint32_t (&keys)[kEach],
                     const uint64_t (&amounts)[kEach]) const {
    const uint32_t mask = level + 1 == p_.kLevels ? p_.kBins / 2 - 1 : p_.kBins - 1;
    // Digits above this level's: those of the token looked for.
    const uint32_t above = level == 0 ? 32 : level == 1 ? 21 : 10;
    bool any = false;
    HT_UNROLL
    for (uint32_t k = 0; k < kEach; ++k) {
      if (amounts[k] == 0 || (above < 32 && (keys[k] ^ now.key) >> above != 0)) continue;
      any = true;
      const hw::SharedAddress bin = bins_at() + (keys[k] >> shift_of(level) & mask) * 4;
      for (uint32_t part = 0; part < parts_of(f); ++part) {
        const auto some =
            static_cast<uint32_t>(amounts[k] >> kPartBits * part) & ((1u << kPartBits) - 1);
        if (some != 0) hw::reduce_shared<hw::Atomic::add>(bin + part * kPartBytes, some);
      }
    }
    return any;
  }
  HT_DEVICE void end_search(Filter f, uint32_t level, const Cut& now, bool any) const {
    if (hw::barrier_any(0, kThreads, any)) {
      for (uint32_t bin = thread_; bin < p_.kBins; bin += kThreads) {
        uint64_t sum = 0;
        for (uint32_t part = 0; part < parts_of(f); ++part) {
          const auto some = hw::load_shared<uint32_t>(bins_at() + part * kPartBytes + bin * 4);
          sum += uint64_t{some} << kPartBits * part;
        }
        if (sum != 0) hw::reduce_global<hw::Atomic::add>(p_.bins + row_ * p_.kBins + bin, sum);
      }
    }
    if (is_last()) find_digit(f, level, now);
  }

  // The end of a row: the key of its token; draws are counted where it was drawn.
  HT_DEVICE void choose(uint64_t key, bool drawn) const {
    hw::store_global(p_.chosen + row_, key);
    if (drawn) hw::store_global(&p_.rows[row_].draws, options_.draws + 1);
  }
  // The key of a token's logit as given.
  HT_DEVICE uint64_t key_of(int64_t token) const {
    const LogitRows& x = p_.logits;
    const char* at = x.base + row_ * x.row_stride + token * x.column_stride;
    return pipe::order_key(pipe::load_element(x.format, at), token);
  }
  // By one thread, when all CTAs have read `best`.
  HT_DEVICE void clear_best() const {
    const bool adjusted = p_.counts != nullptr;
    hw::store_global(p_.largest + row_, adjusted ? hw::load_global(p_.best + 2 * row_ + 1) : best_);
    hw::store_global(p_.best + 2 * row_, uint64_t{0});
    hw::store_global(p_.best + 2 * row_ + 1, uint64_t{0});
  }

 private:
  HT_DEVICE static DrawRow load_row(const DrawRow* row) {
    struct Pieces {
      hw::Words4 of[sizeof(DrawRow) / sizeof(hw::Words4)];
    } pieces;
    HT_UNROLL
    for (uint32_t i = 0; i < sizeof pieces.of / sizeof pieces.of[0]; ++i) {
      pieces.of[i] = hw::load_global(reinterpret_cast<const hw::Words4*>(row) + i);
    }
    return std::bit_cast<DrawRow>(pieces);
  }

  HT_DEVICE hw::SharedAddress bins_at() const { return scratch_ + (kScratchBytes - kScratch); }
  HT_DEVICE static uint32_t parts_of(Filter f) { return f == Filter::top_k ? 1 : kParts; }
  HT_DEVICE static uint32_t shift_of(uint32_t level) {
    return level == 0 ? 21 : level == 1 ? 10 : 0;
  }

  HT_DEVICE void find_digit(Filter f, uint32_t level, Cut now) const {
    // Eight digits a thread, the largest first.
    constexpr uint32_t kDigits = DrawParams::kBins / kThreads;
    const uint32_t highest = DrawParams::kBins - 1 - thread_ * kDigits;
    uint64_t* const bins = p_.bins + row_ * p_.kBins;
    uint64_t bin[kDigits], sum = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kDigits; ++i) sum += bin[i] = hw::load_global(bins + highest - i);
    HT_UNROLL
    for (uint32_t i = 0; i < kDigits; ++i) hw::store_global(bins + highest - i, uint64_t{0});
    const Scan s = scan(sum);
    if (level == 0 && f != Filter::top_k) {
      now.least = least_share(s.total, f == Filter::top_p ? options_.top_p : options_.typical_p);
    }
    if (now.least > s.total) {  // as many as there are, or more
      if (thread_ == 0) {
        hw::store_global(cut_at(f), Cut{});
        if (f == Filter::top_k) hw::store_global(p_.few + row_, Few::no);
      }
    } else if (s.before < now.least && now.least <= s.before + sum) {
      uint64_t least = now.least - s.before;
      uint64_t of_digit = bin[0];
      uint32_t i = 0;
      HT_UNROLL
      for (uint32_t k = 0; k + 1 < kDigits; ++k) {
        if (i == k && least > bin[k]) least -= bin[k], i = k + 1, of_digit = bin[k + 1];
      }
      now.key |= (highest - i) << shift_of(level);
      hw::store_global(cut_at(f), Cut{now.key, now.end, least});
      if (f == Filter::top_k) {  // those above the digit, and those that have it
        const uint64_t left = static_cast<uint64_t>(options_.top_k) - least + of_digit;
        hw::store_global(p_.few + row_, left <= p_.kFew ? Few::yes : Few::no);
      }
    }
  }

  const DrawParams& p_;
  int64_t row_;
  uint32_t thread_;
  hw::SharedAddress scratch_;
  DrawRow options_;
  uint64_t best_ = 0;
  Few few_ = Few::no;
  Cut cuts_[DrawParams::kFilters];
};

// The tokens that the filters before one have left, and their weights.
class TokensLeft {
 public:
  static constexpr uint32_t kEach = DrawParams::kEach;

  // Before filter `f`; `all`: behind the last one.
  HT_DEVICE TokensLeft(const DrawParams& p, const DrawBlock& block, Filter f, bool all = false)
      : bits_(p.bits), largest_(block.largest()), top_k_(block.cut(Filter::top_k)) {
    if (!all && f == Filter::top_p) return;
    top_p_ = block.cut(Filter::top_p);
    least_ = fixed_weight(static_cast<double>(block.options().min_p), bits_);
    if (!block.runs(Filter::typical)) return;
    is_typical_ = true;
    if (!all && p.level == kMeanLevel) return;
    mean_ = hw::load_global(p.means + block.row());
    if (all) typical_ = block.cut(Filter::typical);
  }
  static constexpr uint32_t kMeanLevel = 0xff;  // the mean is still to be found

  HT_DEVICE float largest() const { return largest_; }
  HT_DEVICE double distance(uint32_t key) const {
    return static_cast<double>(largest_) -
           static_cast<double>(pipe::number_of_key(uint64_t{key} << 32));
  }
  HT_DEVICE uint64_t weight(uint32_t key) const {
    return fixed_weight(portable_exp(-distance(key)), bits_);
  }
  // The order of typical-p: the nearest to the mean has the largest key.
  HT_DEVICE static uint32_t typical_key(double distance, double mean) {
    const double off = distance - mean;
    return ~std::bit_cast<uint32_t>(static_cast<float>(off < 0 ? -off : off));
  }
  HT_DEVICE uint32_t typical_key(uint32_t key) const { return typical_key(distance(key), mean_); }
  // 0: the token is filtered out.
  HT_DEVICE void weights(const TokenKeys& tokens, uint64_t (&weights)[kEach]) const {
    bool stays[kEach], any = false;
    HT_UNROLL
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint32_t key = tokens.key[k];
      stays[k] = key != 0 && key >= top_k_.key && top_p_.keeps(key, tokens.first + k);
      any |= stays[k];
      weights[k] = 0;
    }
    if (!any) return;
    HT_UNROLL
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t own = weight(tokens.key[k]);
      stays[k] = stays[k] && own >= least_;
      if (is_typical_ && typical_.key != 0) {
        stays[k] = stays[k] && typical_.keeps(typical_key(tokens.key[k]), tokens.first + k);
      }
      weights[k] = stays[k] ? own : 0;
    }
  }

 private:
  int bits_;
  float largest_;
  Cut top_k_, top_p_, typical_;
  uint64_t least_ = 0;
  bool is_typical_ = false;
  double mean_ = 0;
};

// Logits with their bias and penalties, divided by the temperature, as keys; the largest; and the
// first digits for top-k.
struct ScoreTokensGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawParams::kThreads, kMinBlocks = DrawParams::kResident;
  static constexpr uint32_t kEach = DrawParams::kEach;

  HT_DEVICE static void load(const LogitRows& rows, const char* row, int64_t first,
                             float (&x)[kEach]) {
    const uint32_t bytes = pipe::bytes_of(rows.format);
    const char* at = row + first * rows.column_stride;
    const bool together = rows.column_stride == bytes && first + kEach <= rows.vocabulary &&
                          pipe::is_aligned(at, kEach * bytes);
    if (together && rows.format == Format::f32) {
      const auto four = hw::load_global(reinterpret_cast<const hw::Vector<float, 4>*>(at));
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) x[k] = four[k];
    } else if (together) {
      const auto words = hw::load_global(reinterpret_cast<const hw::Vector<uint32_t, 2>*>(at));
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; k += 2) {
        pipe::widen_pair(rows.format, words[k / 2], x[k], x[k + 1]);
      }
    } else {
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        x[k] = first + k < rows.vocabulary
                   ? pipe::load_element(rows.format, at + k * rows.column_stride)
                   : 0;
      }
    }
  }

  // As Sampler::score does.
  HT_DEVICE static float adjusted(const DrawParams& p, const DrawRow& o, int64_t at, float x) {
    const int32_t count = hw::load_global(p.counts + at);
    float score = x + hw::load_global(p.bias + at);
    if (count == 0) return score;
    score = score < 0 ? score * o.repetition : score / o.repetition;
    return score - (static_cast<float>(count) * o.frequency + o.presence);
  }

  HT_DEVICE static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

  HT_DEVICE static void run(const DrawParams& p) {
    hw::launch_dependents_and_wait();
    const DrawBlock block(p, true);
    const DrawRow& o = block.options();
    const int64_t row = block.row(), vocabulary = p.logits.vocabulary;
    const bool searches = block.runs(Filter::top_k);
    const Cut none{0, 0xffffffff, static_cast<uint64_t>(o.top_k)};
    uint64_t best[2] = {};
    bool any = false;
    if (searches) block.begin_search(Filter::top_k);
    block.for_stretches([&](uint32_t stretch) {
      const int64_t first = int64_t{stretch} * p.kStretch + kEach * block.thread();
      float x[kEach];
      load(p.logits, p.logits.base + row * p.logits.row_stride, first, x);
      uint32_t keys[kEach];
      uint64_t ones[kEach];
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        const int64_t token = first + k;
        keys[k] = 0, ones[k] = 0;
        if (token >= vocabulary) continue;
        if (p.counts != nullptr) {
          best[1] = larger(best[1], pipe::order_key(x[k], token));
          x[k] = adjusted(p, o, row * vocabulary + token, x[k]);
        }
        best[0] = larger(best[0], pipe::order_key(x[k], token));
        keys[k] = static_cast<uint32_t>(pipe::order_key(x[k] / o.temperature, 0) >> 32);
        ones[k] = 1;
      }
      if (o.temperature != 0) {
        hw::store_global(reinterpret_cast<hw::Words4*>(block.keys_at(stretch)),
                         hw::Words4{{keys[0], keys[1], keys[2], keys[3]}});
      }
      if (searches) any |= block.add(Filter::top_k, 0, none, keys, ones);
    });
    pipe::RowThreads threads(kThreads);
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      if (i == 1 && p.counts == nullptr) continue;
      const uint64_t most = threads.reduce(best[i], larger);
      if (block.thread() == 0) hw::reduce_global<hw::Atomic::max>(p.best + 2 * row + i, most);
    }
    if (searches) block.end_search(Filter::top_k, 0, none, any);
  }
};

// The rest, where few tokens are left: they are listed, and the last CTA compares all pairs.
struct FewTokens {
  static constexpr uint32_t kEach = DrawParams::kEach;
  const DrawParams& p;
  const DrawBlock& block;

  HT_DEVICE void run() const {
    const uint32_t least = block.cut(Filter::top_k).key;
    uint64_t* const list = p.listed + block.row() * p.kFew;
    block.for_stretches([&](uint32_t stretch) {
      const TokenKeys tokens = block.keys(stretch);
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        if (tokens.key[k] < least || tokens.key[k] == 0) continue;
        const uint32_t place = hw::atomic_global<hw::Atomic::add>(p.list_counts + block.row(), 1u);
        hw::store_global(list + place, uint64_t{tokens.key[k]} << 32 | (tokens.first + k));
      }
    });
    if (!block.is_last()) return;
    const uint32_t count = hw::load_global(p.list_counts + block.row());
    choose(count, block.thread() < count ? hw::load_global(list + block.thread()) : 0);
    hw::barrier_sync();
    if (block.thread() != 0) return;
    hw::store_global(p.list_counts + block.row(), 0u);
    hw::store_global(p.few + block.row(), Few::done);
    block.clear_best();
  }

 private:
  using Pair = hw::Vector<uint64_t, 2>;  // an order, the larger the better, and an amount
  HT_DEVICE static hw::SharedAddress pair_at(uint32_t i) {
    return hw::shared_memory_base() + DrawBlock::kScratchBytes + i * sizeof(Pair);
  }
  // Of the amounts of all: the sum of those before this thread's, and of all.
  struct Sums {
    uint64_t before = 0, total = 0;
  };
  HT_DEVICE Sums sums_of(uint32_t count, uint64_t order, uint64_t amount) const {
    hw::store_shared(pair_at(block.thread()), Pair{{order, amount}});
    hw::barrier_sync();
    Sums sums;
    for (uint32_t i = 0; i < count; ++i) {
      const auto other = hw::load_shared<Pair>(pair_at(i));
      sums.before += other[0] > order ? other[1] : 0;
      sums.total += other[1];
    }
    hw::barrier_sync();
    return sums;
  }

  HT_DEVICE void choose(uint32_t count, uint64_t entry) const {
    const DrawRow& o = block.options();
    const auto key = static_cast<uint32_t>(entry >> 32), token = static_cast<uint32_t>(entry);
    // By a key, and of equals the lower token.
    const auto by = [&](uint32_t k) { return uint64_t{k} << 32 | (0xffffffffu - token); };
    const bool listed = block.thread() < count;
    // Equals of the k-th largest all stay: an order without the tokens.
    const Sums larger = sums_of(count, key, listed ? 1 : 0);
    const TokensLeft left(p, block, Filter::top_p);
    uint64_t weight = 0;
    if (listed && larger.before < static_cast<uint64_t>(o.top_k)) weight = left.weight(key);
    if (o.top_p < 1) {
      const Sums sums = sums_of(count, by(key), weight);
      if (sums.before >= least_share(sums.total, o.top_p)) weight = 0;
    }
    if (weight < fixed_weight(static_cast<double>(o.min_p), p.bits)) weight = 0;
    if (o.typical_p < 1) {
      const double distance = left.distance(key);
      const uint64_t part = weight == 0 ? 0 : weighted_distance(weight, distance);
      const double mean = mean_distance(block.scan(part).total, block.scan(weight).total);
      const Sums sums = sums_of(count, by(TokensLeft::typical_key(distance, mean)), weight);
      if (sums.before >= least_share(sums.total, o.typical_p)) weight = 0;
    }
    const Sums sums = sums_of(count, by(0), weight);  // in the order of the tokens
    const uint64_t drawn = draw_below(sums.total, draw_bits(o.key, o.draws));
    if (sums.before <= drawn && drawn < sums.before + weight) {
      block.choose(block.key_of(token), true);
    }
  }
};

// One radix pass of a filter's cut.
struct SearchTokensGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawParams::kThreads, kMinBlocks = DrawParams::kResident;
  static constexpr uint32_t kEach = DrawParams::kEach;

  HT_DEVICE static void run(const DrawParams& p) {
    hw::launch_dependents_and_wait();
    const DrawBlock block(p);
    if (block.is_done() || !block.runs(p.filter)) return;
    const bool top_k = p.filter == Filter::top_k;
    if (block.are_few() && (top_k || (p.filter == Filter::top_p && p.level == 0))) {
      return FewTokens{p, block}.run();
    }
    const Cut now = p.level == 0 ? Cut{} : block.cut(p.filter);
    if (p.level > 0 && now.least == 0) return;
    const TokensLeft left(p, block, p.filter);
    bool any = false;
    block.begin_search(p.filter);
    block.for_stretches([&](uint32_t stretch) {
      const TokenKeys tokens = block.keys(stretch);
      uint32_t keys[kEach];
      uint64_t amounts[kEach];
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        keys[k] = tokens.key[k], amounts[k] = keys[k] == 0 ? 0 : 1;
      }
      if (!top_k) left.weights(tokens, amounts);
      if (p.filter == Filter::typical) {
        HT_UNROLL
        for (uint32_t k = 0; k < kEach; ++k) keys[k] = left.typical_key(tokens.key[k]);
      }
      any |= block.add(p.filter, p.level, now, keys, amounts);
    });
    block.end_search(p.filter, p.level, now, any);
  }
};

// Of the tokens at a filter's cut, which weigh the same, the first ones stay: how many is a
// division, and which is the last one follows from their numbers in the stretches.
struct CutTiesGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawParams::kThreads, kMinBlocks = DrawParams::kResident;
  static constexpr uint32_t kEach = DrawParams::kEach;

  HT_DEVICE static void run(const DrawParams& p) {
    hw::launch_dependents_and_wait();
    const DrawBlock block(p);
    if (block.is_done() || !block.runs(p.filter)) return;
    const Cut cut = block.cut(p.filter);
    if (cut.least == 0) return;
    const TokensLeft left(p, block, p.filter);
    // Amounts of ties: weights, since those of typical-p may lie on both sides of the mean.
    const auto amounts_of = [&](uint32_t stretch, uint32_t& first, uint64_t(&amounts)[kEach]) {
      const TokenKeys tokens = block.keys(stretch);
      first = tokens.first;
      left.weights(tokens, amounts);
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        const bool typical = p.filter == Filter::typical;
        const uint32_t key = typical ? left.typical_key(tokens.key[k]) : tokens.key[k];
        if (key != cut.key) amounts[k] = 0;
      }
    };
    uint32_t first = 0;
    uint64_t amounts[kEach];
    block.for_stretches([&](uint32_t stretch) {
      amounts_of(stretch, first, amounts);
      const uint64_t sum = block.scan(amounts[0] + amounts[1] + amounts[2] + amounts[3]).total;
      if (block.thread() == 0) hw::store_global(block.sum_at(stretch), sum);
    });
    if (!block.is_last()) return;
    // The last token that stays is the one with which the sum reaches `least`.
    uint64_t wanted = cut.least - 1;
    amounts_of(block.find_stretch(wanted), first, amounts);
    block.find_token(amounts, wanted, [&](uint32_t k) {
      hw::store_global(&block.cut_at(p.filter)->end, first + k + 1);
    });
  }
};

// The mean distance, by weight, of the tokens that typical-p chooses from: their entropy less that
// of a sure token of the largest score.
struct MeanDistanceGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawParams::kThreads, kMinBlocks = DrawParams::kResident;
  static constexpr uint32_t kEach = DrawParams::kEach;

  HT_DEVICE static void run(const DrawParams& p) {
    hw::launch_dependents_and_wait();
    const DrawBlock block(p);
    if (block.is_done() || !block.runs(Filter::typical)) return;
    const TokensLeft left(p, block, Filter::typical);
    uint64_t weights[kEach], weight = 0, product = 0;
    block.for_stretches([&](uint32_t stretch) {
      const TokenKeys tokens = block.keys(stretch);
      left.weights(tokens, weights);
      HT_UNROLL
      for (uint32_t k = 0; k < kEach; ++k) {
        weight += weights[k];
        if (weights[k] != 0) product += weighted_distance(weights[k], left.distance(tokens.key[k]));
      }
    });
    weight = block.scan(weight).total, product = block.scan(product).total;
    WeightSums* const sums = p.weighed + block.row();
    if (block.thread() == 0 && weight != 0) {
      hw::reduce_global<hw::Atomic::add>(&sums->weight, weight);
      hw::reduce_global<hw::Atomic::add>(&sums->product, product);
    }
    if (!block.is_last() || block.thread() != 0) return;
    const WeightSums all = hw::load_global(sums);
    hw::store_global(sums, WeightSums{});
    hw::store_global(p.means + block.row(), mean_distance(all.product, all.weight));
  }
};

// The draw: the stretch, then the token at which the weights, added in the order of the tokens,
// pass what was drawn.
struct DrawTokenGpu {
  using Params = DrawParams;
  static constexpr uint32_t kThreads = DrawParams::kThreads, kMinBlocks = DrawParams::kResident;
  static constexpr uint32_t kEach = DrawParams::kEach;

  HT_DEVICE static void run(const DrawParams& p) {
    hw::launch_dependents_and_wait();
    const DrawBlock block(p);
    if (block.is_done()) return;
    const DrawRow& o = block.options();
    const float largest = o.temperature == 0 ? NAN : block.largest();
    const bool draws = largest - largest == 0;
    uint64_t weights[kEach] = {};
    const auto weigh = [&](uint32_t stretch) {
      const TokenKeys tokens = block.keys(stretch);
      TokensLeft(p, block, Filter::top_k, true).weights(tokens, weights);
      return tokens.first;
    };
    if (draws) {
      block.for_stretches([&](uint32_t stretch) {
        weigh(stretch);
        const uint64_t sum = block.scan(weights[0] + weights[1] + weights[2] + weights[3]).total;
        if (block.thread() == 0) hw::store_global(block.sum_at(stretch), sum);
      });
    }
    if (!block.is_last()) return;
    if (draws) {
      uint64_t total = 0;
      for (uint32_t i = block.thread(); i < p.stretches; i += kThreads) {
        total += hw::load_global(block.sum_at(i));
      }
      uint64_t drawn = draw_below(block.scan(total).total, draw_bits(o.key, o.draws));
      const uint32_t first = weigh(block.find_stretch(drawn));
      block.find_token(weights, drawn,
                       [&](uint32_t k) { block.choose(block.key_of(first + k), true); });
    } else if (block.thread() == 0) {
      const int64_t token = pipe::index_of_key(block.best());
      const float score = pipe::number_of_key(block.best());
      uint64_t chosen = block.best();
      if (score - score == 0) {  // NaN: it is the division by the temperature that overflows
        chosen = o.temperature == 0 ? block.key_of(token) : pipe::order_key(NAN, token);
      }
      block.choose(chosen, false);
    }
    if (block.thread() == 0) block.clear_best();
  }
};

// Scatters history counts and biases to their tokens, which are 0 before.
struct AdjustTokensGpu {
  struct Params {
    const TokenAdjustment* list;
    int64_t count, vocabulary;
    int32_t* counts;
    float* bias;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const int64_t i = int64_t{hw::block_index().x} * kThreads + hw::thread_index().x;
    if (i >= p.count) return;
    const TokenAdjustment a = hw::load_global(p.list + i);
    hw::store_global(p.counts + a.row * p.vocabulary + a.token, a.count);
    hw::store_global(p.bias + a.row * p.vocabulary + a.token, a.bias);
  }
};

}  // namespace halftone
