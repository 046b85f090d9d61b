// Reductions of numbers in any format for every GPU. Eight elements of a row, or four of a column,
// are summed in FP32, everything else in FP64: the order of the sums costs no accuracy, however
// long they are. The order depends on the number of elements alone.
#pragma once
#include "formats/gpu/rows.cuh"
#include "hw/pair.h"
#include "ops/reduce/gpu.h"
#include "ops/reduce/operations.h"
#include "pipe/order_key.h"
#include "pipe/row_threads.h"

namespace halftone {

// The minimum is the maximum of the negated.
HT_HOST_DEVICE float sign_of(Reduction r) {
  return r == Reduction::min || r == Reduction::argmin ? -1.0f : 1.0f;
}

// What one element adds to an FP32 sum.
HT_DEVICE float add_term(Reduction r, float sum, float x, float y) {
  if (r == Reduction::sum_of_squares) return hw::fma(x, x, sum);
  return r == Reduction::dot ? hw::fma(x, y, sum) : sum + x;
}
// body(operation), where rows are whole with a constant, so that the loops are specialised for it:
// the mean is a sum, every extreme a maximum.
template <pipe::Access kAccess, class Body>
HT_DEVICE void for_operation(Reduction r, const Body& body) {
  if (kAccess == pipe::Access::any) return body(r);
  if (r == Reduction::sum_of_squares) return body(Reduction::sum_of_squares);
  if (r == Reduction::dot) return body(Reduction::dot);
  body(is_extreme(r) ? Reduction::max : Reduction::sum);
}

// The maximum so far and its index: the first of equals, if they come in order; a NaN is above
// every number. `where` begins at the first.
struct Largest {
  uint32_t where;
  float value = -INFINITY;

  HT_DEVICE void take(float x, uint32_t at) {
    // Not below or equal: above, or NaN; without a branch.
    const bool better = !(x <= value) & (value == value);
    value = better ? x : value;
    where = better ? at : where;
  }
};

// Where a thread's eight lie: of two operands as the quantised one has it, unless both are FP32.
HT_DEVICE Format format_of_quads(const ReduceGpuArgs& args) {
  const bool both = args.operation != Reduction::dot || args.y.codes.format == Format::f32;
  return both ? format_of_quads(args.x.codes.format) : Format::bf16;
}

// Partial results: bits of FP64, or order keys.
HT_DEVICE uint64_t join_results(bool extreme, uint64_t a, uint64_t b) {
  if (extreme) return a > b ? a : b;
  return std::bit_cast<uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
}

// Writes the result of output `at`. Where groups of 4 or 8 were compared, a key names the group
// that has the maximum.
HT_DEVICE void store_result(const ReduceGpuArgs& args, int64_t at, uint64_t result) {
  const Reduction r = args.operation;
  if (is_arg(r)) {
    const int64_t first = pipe::index_of_key(result);
    int64_t index = first;
    const float value = pipe::number_of_key(result) * sign_of(r);
    if (args.pieces) {
      const Format f = args.x.codes.format;
      const uint32_t bytes = pipe::bytes_of(f), count = 16 / bytes;
      const char* piece = args.x.base + at * args.x.stride[0] + first * bytes;
      float x[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        x[i] = i < count ? pipe::load_element(f, piece + i * bytes) : 0;
      }
      HT_UNROLL
      for (uint32_t i = 8; i-- > 0;) {
        const bool same = x[i] == value || (x[i] != x[i] && value != value);
        if (i < count && same) index = first + i;
      }
    }
    return hw::store_global(reinterpret_cast<int64_t*>(args.out) + at, index);
  }
  float value = pipe::number_of_key(result) * sign_of(r);
  if (!is_extreme(r)) {
    const auto sum = std::bit_cast<double>(result);
    value = static_cast<float>(r == Reduction::mean ? sum / static_cast<double>(args.n) : sum);
  }
  pipe::store_element(args.out_format, args.out + at * pipe::bytes_of(args.out_format), value);
}

// Along the last dimension: the threads of a row, or of a chunk of it, share it.
template <pipe::Access kAccess>
struct ReduceRowsGpu {
  struct Params {
    ReduceGpuArgs args;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = kAccess == pipe::Access::any ? 2 : 5;
  // 64 bytes a thread in flight. Formats decided at run time are loaded eight by eight.
  static constexpr uint32_t kEights = kAccess == pipe::Access::any   ? 1
                                      : kAccess == pipe::Access::f32 ? 2
                                                                     : 4;
  static constexpr int64_t kThreadElements = 32;

  HT_DEVICE static void run(const Params& p) {
    const ReduceGpuArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t unit = threads.row();
    const int64_t row = args.chunks == 1 ? unit : unit / args.chunks;
    const int64_t chunk = args.chunks == 1 ? 0 : unit - row * args.chunks;
    const bool inside = row < args.outer;
    const bool extreme = is_extreme(args.operation);
    uint64_t result = 0;  // of FP64 too
    if (inside) {
      const int64_t begin = chunk * args.chunk, last = begin + args.chunk;
      for_operation<kAccess>(args.operation, [&](Reduction r) {
        result = reduce(r, args, threads, row, begin, last < args.n ? last : args.n);
      });
    }
    result = extreme ? threads.largest(result) : threads.reduce(result, [](uint64_t a, uint64_t b) {
      return join_results(false, a, b);
    });
    if (!inside || threads.rank() != 0) return;
    if (args.chunks == 1) return store_result(args, row, result);
    hw::store_global(args.partial + chunk * args.outer + row, result);
  }

  static constexpr bool kHalf = kAccess == pipe::Access::f16 || kAccess == pipe::Access::bf16;
  // The maximum of eight 16-bit elements, or of the negated where `flip` has their signs; a NaN is
  // above all.
  HT_DEVICE static float largest_of(const hw::Words4& pairs, uint32_t flip) {
    constexpr bool kBf16 = kAccess == pipe::Access::bf16;
    const auto larger = [](uint32_t a, uint32_t b) {
      return hw::max_nan_pair < kBf16 ? hw::Type::bf16x2 : hw::Type::f16x2 > (a, b);
    };
    float low, high;
    pipe::widen_pair(
        kBf16 ? Format::bf16 : Format::f16,
        larger(larger(pairs[0] ^ flip, pairs[1] ^ flip), larger(pairs[2] ^ flip, pairs[3] ^ flip)),
        low, high);
    return hw::max_nan(low, high);
  }

  // Elements begin .. end - 1, those that are this thread's.
  HT_DEVICE static uint64_t reduce(Reduction r, const ReduceGpuArgs& args,
                                   const pipe::RowThreads& threads, int64_t row, int64_t begin,
                                   int64_t end) {
    const bool dot = r == Reduction::dot;
    const Format quads = format_of_quads(args);
    const float sign = sign_of(args.operation);
    const int64_t start = begin + pipe::quads_of(quads, threads.rank(), threads.threads(), 0).first;
    const uint32_t flip = sign < 0 ? 0x80008000 : 0;
    double sum = 0;
    Largest largest{static_cast<uint32_t>(start)};
    for (uint32_t step = 0; begin + int64_t{8} * threads.threads() * step < end; step += kEights) {
      EightNumbers<kAccess> x_eight[kEights], y_eight[kEights];
      pipe::Quads at[kEights];
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) {
        at[i] = pipe::quads_of(quads, threads.rank(), threads.threads(), step + i);
        at[i].first += begin, at[i].second += begin;
        if (at[i].first >= end) continue;
        x_eight[i].load(args.x, row, at[i], end);
        if (dot) y_eight[i].load(args.y, row, at[i], end);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) {
        if (at[i].first >= end) break;
        if constexpr (kHalf) {
          if (is_extreme(r)) {
            largest.take(largest_of(x_eight[i].pairs(), flip), static_cast<uint32_t>(at[i].first));
            continue;
          }
        }
        float x[8], y[8];
        x_eight[i].widen(x);
        if (dot) y_eight[i].widen(y);
        if (is_extreme(r)) {
          HT_UNROLL
          for (uint32_t quad = 0; quad < 8; quad += 4) {
            const auto first = static_cast<uint32_t>(at[i].column(quad));
            if (first >= end) continue;
            if constexpr (kAccess == pipe::Access::any) {
              HT_UNROLL
              for (uint32_t k = 0; k < 4; ++k) {
                if (first + k < end) largest.take(sign * x[quad + k], first + k);
              }
            } else {  // one comparison a quad; store_result looks which of the four
              float most = sign * x[quad];
              HT_UNROLL
              for (uint32_t k = 1; k < 4; ++k) most = hw::max_nan(most, sign * x[quad + k]);
              largest.take(most, first);
            }
          }
        } else {
          float part[2] = {};  // elements past the row are 0
          HT_UNROLL
          for (uint32_t k = 0; k < 8; ++k) {
            part[k / 4] = add_term(r, part[k / 4], x[k], dot ? y[k] : 0);
          }
          sum += part[0] + part[1];
        }
      }
    }
    if (!is_extreme(r)) return std::bit_cast<uint64_t>(sum);
    return start < end ? pipe::order_key(largest.value, largest.where) : 0;
  }
};

// Combines eight warps' results of 32 lanes in the order of the warps; the first warp has them.
struct JoinWarps {
  static constexpr uint32_t kWarps = 8, kBytes = kWarps * 32 * 8;
  HT_DEVICE static void put(uint32_t place, uint64_t result) {
    hw::store_shared(hw::shared_memory_base() + place * 8, result);
  }
  HT_DEVICE static uint64_t get(bool extreme, uint32_t place, uint32_t stride) {
    uint64_t result = hw::load_shared<uint64_t>(hw::shared_memory_base() + place * 8);
    HT_UNROLL
    for (uint32_t warp = 1; warp < kWarps; ++warp) {
      result = join_results(
          extreme, result,
          hw::load_shared<uint64_t>(hw::shared_memory_base() + (place + warp * stride) * 8));
    }
    return result;
  }
};

// Along another dimension: a lane has eight columns, the warps of a CTA every eighth row of its
// chunk, four of them in flight at a time.
template <pipe::Access kAccess>
struct ReduceColumnsGpu {
  using Params = ReduceGpuArgs;
  static constexpr uint32_t kThreads = 256, kWarps = JoinWarps::kWarps;
  static constexpr uint32_t kMinBlocks = kAccess == pipe::Access::any ? 1 : 2;
  static constexpr uint32_t kSharedBytes = 8 * JoinWarps::kBytes;
  static constexpr int64_t kStretch = 256;  // columns of a CTA
  static constexpr uint32_t kRows = 4;
  static constexpr uint32_t kReads = kAccess == pipe::Access::any ? 1 : kRows;  // in flight

  HT_DEVICE static void run(const ReduceGpuArgs& args) {
    const uint32_t lane = hw::thread_index().x % 32, warp = hw::thread_index().x / 32;
    const int64_t stretches = (args.width + kStretch - 1) / kStretch;
    const int64_t unit = hw::block_index().x, chunk = hw::block_index().y;
    const int64_t out_row = unit / stretches, stretch = unit - out_row * stretches;
    const int64_t o = out_row / args.inner, in = out_row - o * args.inner;
    const pipe::Quads at =
        pipe::quads_of(format_of_quads(args), lane, 32, static_cast<uint32_t>(stretch));
    const int64_t begin = chunk * args.chunk, last = begin + args.chunk;
    const bool extreme = is_extreme(args.operation);
    for_operation<kAccess>(args.operation, [&](Reduction r) {
      reduce(r, args, o * args.n * args.inner + in, at, begin + warp, last < args.n ? last : args.n,
             warp * 256 + lane);
    });
    hw::barrier_sync();
    const uint64_t result = JoinWarps::get(extreme, warp * 32 + lane, 256);
    const int64_t column = at.column(warp);
    if (column >= args.width) return;
    const int64_t to = out_row * args.width + column;
    if (args.chunks == 1) return store_result(args, to, result);
    const int64_t results = args.outer * args.inner * args.width;
    hw::store_global(args.partial + chunk * results + to, result);
  }

  // Rows begin, begin + 8, ... below `end`; x and y of row i are i * inner after `first_row`.
  HT_DEVICE static void reduce(Reduction r, const ReduceGpuArgs& args, int64_t first_row,
                               const pipe::Quads& at, int64_t begin, int64_t end, uint32_t place) {
    const bool dot = r == Reduction::dot, extreme = is_extreme(r);
    const float sign = sign_of(args.operation);
    double sum[8] = {};
    Largest largest[8];
    HT_UNROLL
    for (Largest& l : largest) l.where = static_cast<uint32_t>(begin);
    for (int64_t i = begin; i < end && at.first < args.width; i += kRows * kWarps) {
      float part[8] = {};
      for (uint32_t read = 0; read < kRows; read += kReads) {  // once, where rows are whole
        EightNumbers<kAccess> x_eight[kReads], y_eight[kReads];
        HT_UNROLL
        for (uint32_t k = 0; k < kReads; ++k) {
          const int64_t row = i + (read + k) * kWarps;
          if (row >= end) continue;
          x_eight[k].load(args.x, first_row + row * args.inner, at, args.width);
          if (dot) {
            y_eight[k].load(args.y, first_row + row * args.inner, at, args.width);
          }
        }
        HT_UNROLL
        for (uint32_t k = 0; k < kReads; ++k) {
          const int64_t row = i + (read + k) * kWarps;
          if (row >= end) continue;
          float x[8], y[8];
          x_eight[k].widen(x);
          if (dot) y_eight[k].widen(y);
          HT_UNROLL
          for (uint32_t c = 0; c < 8; ++c) {
            if (extreme) {
              largest[c].take(sign * x[c], static_cast<uint32_t>(row));
            } else {
              part[c] = add_term(r, part[c], x[c], dot ? y[c] : 0);
            }
          }
        }
      }
      HT_UNROLL
      for (uint32_t c = 0; c < 8; ++c) sum[c] += part[c];
    }
    HT_UNROLL
    for (uint32_t c = 0; c < 8; ++c) {
      const uint64_t key = begin < end ? pipe::order_key(largest[c].value, largest[c].where) : 0;
      JoinWarps::put(place + c * 32, extreme ? key : std::bit_cast<uint64_t>(sum[c]));
    }
  }
};

// Combines the results of the chunks: 32 outputs a CTA, each warp has every eighth chunk.
struct ReduceChunksGpu {
  struct Params {
    ReduceGpuArgs args;
    int64_t results;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1, kSharedBytes = JoinWarps::kBytes;

  HT_DEVICE static void run(const Params& p) {
    const ReduceGpuArgs& args = p.args;
    const uint32_t lane = hw::thread_index().x % 32, warp = hw::thread_index().x / 32;
    const int64_t place = int64_t{hw::block_index().x} * 32 + lane;
    const bool extreme = is_extreme(args.operation);
    constexpr uint32_t kReads = 8;
    uint64_t result = 0;
    for (int64_t chunk = warp; chunk < args.chunks; chunk += kReads * JoinWarps::kWarps) {
      uint64_t read[kReads];
      HT_UNROLL
      for (uint32_t k = 0; k < kReads; ++k) {
        const int64_t c = chunk + k * JoinWarps::kWarps;
        read[k] = place < p.results && c < args.chunks
                      ? hw::load_global(args.partial + c * p.results + place)
                      : 0;
      }
      HT_UNROLL
      for (uint32_t k = 0; k < kReads; ++k) result = join_results(extreme, result, read[k]);
    }
    JoinWarps::put(hw::thread_index().x, result);
    hw::barrier_sync();
    if (warp != 0 || place >= p.results) return;
    store_result(args, place, JoinWarps::get(extreme, lane, 32));
  }
};

}  // namespace halftone
