// Prepares the activations of the GEMMs on GPUs: rows of x of any format as rows of BF16 terms (or
// E4M3 values) and the scales that multiply the accumulator. A CTA takes a row; where x is
// quantised on the way, scales and values are those of quantize(), from the same functions.
#pragma once
#include "base/launch.h"
#include "formats/quantize_rows.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "ops/gemm/sm80/dequantise.h"
#include "ops/gemm/sm80/operand.h"

namespace halftone::gemm {

// How an element is stored: as the number it stands for (one BF16 term where quantised value times
// scale is exact), or as the quantised value, with the scale applied to the accumulator.
enum class GpuEntry : uint8_t { value, code };

struct GpuRowsParams {
  GpuLayout layout;  // of x as given
  GpuSource source;
  const int32_t* order = nullptr;  // [rows]: which row of x; null: the identity
  uint32_t rows = 0, columns = 0;
  uint32_t terms = 1;
  GpuEntry entry = GpuEntry::value;
  bool quantise = false;
  bool row_tensor_scale = false;  // NVFP4: a tensor scale for each row
  Recipe recipe;                  // of rows quantised here; group in elements, 0: the row
  float given = 0;                // above 0: a static scale of all values
  uint16_t* out = nullptr;        // [rows, terms, stride]
  int64_t out_row = 0;            // elements
  uint8_t* codes = nullptr;       // [rows, stride]: E4M3 values instead, one term
  float* scales = nullptr;        // [rows, groups], or null
  uint32_t groups = 1;
  float* row_scales = nullptr;  // [rows], or null
};

struct GpuRows {
  using Params = GpuRowsParams;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kWarps = kThreads / 32;
  static constexpr uint32_t kSharedBytes = kWarps * 4;

  static LaunchShape shape(const Params& p) {
    return {.grid = {p.rows, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = kSharedBytes};
  }

  HT_DEVICE static uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
  HT_DEVICE static uint32_t warp_max(uint32_t x, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
      const uint32_t other = hw::shuffle_xor(x, distance, 32, hw::kFullWarp, site);
      x = other > x ? other : x;
    }
    return x;
  }
  // Over the elements begin, begin + step, ... below end.
  HT_DEVICE static uint32_t amax(const Params& p, uint32_t row, uint32_t begin, uint32_t end,
                                 uint32_t step) {
    uint32_t most = 0;
    for (uint32_t k = begin; k < end; k += step) {
      const uint32_t x = magnitude(element_of(p.layout, p.source, row, k));
      most = x > most ? x : most;
    }
    return warp_max(most);
  }

  HT_DEVICE static void store(const Params& p, uint32_t row, uint32_t k, float value) {
    if (p.codes != nullptr) {
      const uint8_t code = encode_element(Format::fp8_e4m3, value, 0);
      return hw::store_global(p.codes + row * p.out_row + k, code);
    }
    uint16_t* out = p.out + int64_t{row} * p.terms * p.out_row + k;
    if (p.terms == 1) return hw::store_global(out, hw::cvt_bf16(value));
    uint32_t terms[3];
    split_pair(value, 0, terms);
    // The largest first: of an FP16 value the third is 0.
    for (uint32_t t = 0; t < p.terms; ++t) {
      hw::store_global(out + (p.terms - 1 - t) * p.out_row, static_cast<uint16_t>(terms[2 - t]));
    }
  }

  // Elements begin, begin + step, ... of a group, rounded with its scale.
  HT_DEVICE static void round(const Params& p, const Recipe& recipe, const BlockScale& scale,
                              uint32_t row, uint32_t begin, uint32_t end, uint32_t step) {
    const bool lost = poisoned(scale);
    for (uint32_t k = begin; k < end; k += step) {
      const float x = element_of(p.layout, p.source, row, k);
      const uint8_t code = lost ? 0 : encode_element(recipe.format, x * scale.multiplier, 0);
      const float value = decode_element(recipe.format, code, 0);
      store(p, row, k, p.entry == GpuEntry::code ? value : value * scale.value);
    }
  }

  HT_DEVICE static void quantise(const Params& p, uint32_t row) {
    const uint32_t thread = hw::thread_index().x, warp = hw::warp_index();
    const uint32_t lane = hw::lane_index();
    Recipe recipe = p.recipe;
    uint32_t whole = 0;
    if (p.given > 0) {
      round(p, recipe, {0, p.given, 1.0f / p.given}, row, thread, p.columns, kThreads);
    } else if (p.row_tensor_scale || recipe.group == 0) {
      const hw::SharedAddress base = hw::shared_memory_base();
      const uint32_t mine = amax(p, row, thread, p.columns, kThreads);
      if (lane == 0) hw::store_shared(base + warp * 4, mine);
      hw::barrier_sync();
      whole = warp_max(lane < kWarps ? hw::load_shared<uint32_t>(base + lane * 4) : 0);
    }
    if (p.row_tensor_scale && whole < kInfinityBits) set_tensor_amax(bits_float(whole), &recipe);
    float row_scale = p.given > 0 ? p.given : recipe.tensor_scale;
    if (p.given == 0 && recipe.group == 0) {
      const BlockScale scale =
          whole < kInfinityBits ? block_scale(recipe, whole) : poisoned_scale(recipe);
      round(p, recipe, scale, row, thread, p.columns, kThreads);
      row_scale *= scale.value;
    } else if (p.given == 0) {
      const auto group = static_cast<uint32_t>(recipe.group);
      for (uint32_t g = warp; g < p.groups; g += kWarps) {
        const uint32_t begin = g * group;
        const uint32_t end = begin + group < p.columns ? begin + group : p.columns;
        const uint32_t most = amax(p, row, begin + lane, end, 32);
        const BlockScale scale =
            most < kInfinityBits ? block_scale(recipe, most) : poisoned_scale(recipe);
        round(p, recipe, scale, row, begin + lane, end, 32);
        if (p.scales != nullptr && lane == 0) {
          hw::store_global(p.scales + int64_t{row} * p.groups + g, scale.value);
        }
      }
    }
    if (p.row_scales != nullptr && thread == 0) hw::store_global(p.row_scales + row, row_scale);
  }

  HT_DEVICE static void run(Params p) {
    hw::launch_dependents_and_wait();
    const uint32_t row = hw::block_index().x, thread = hw::thread_index().x;
    // Offsets x so that this row index reads the gathered row.
    if (p.order != nullptr) p.source.first_row = int64_t{hw::load_global(p.order + row)} - row;
    if (p.quantise) return quantise(p, row);
    const bool grouped = p.source.scales != nullptr && p.layout.group > 0;
    for (uint32_t k = thread; k < p.columns; k += kThreads) {
      float value = element_of(p.layout, p.source, row, k);
      if (grouped && p.entry == GpuEntry::value) value *= scale_of(p.layout, p.source, row, k);
      store(p, row, k, value);
    }
    if (p.scales != nullptr) {
      for (uint32_t g = thread; g < p.groups; g += kThreads) {
        hw::store_global(p.scales + int64_t{row} * p.groups + g,
                         scale_of(p.layout, p.source, row, g * p.layout.group));
      }
    }
    if (p.row_scales != nullptr && thread == 0) {
      hw::store_global(p.row_scales + row, row_scale(p.layout, p.source, row));
    }
  }
};

}  // namespace halftone::gemm
