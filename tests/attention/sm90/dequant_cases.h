// Problems for attention over quantised keys on sm_90a, on a GPU or a simulated one.
#pragma once
#include <cmath>

#include "attention/sm80/cases.h"
#include "attention/sm90/fp8_cases.h"
#include "attention/token_scales.h"

namespace halftone::test {

// Every mode of quantised keys with BF16 products that the kernel takes: keys of 6 bits have the
// kernel of every GPU.
inline std::vector<AttentionMode> dequant_modes() {
  std::vector<AttentionMode> modes;
  for (const AttentionMode& mode : attention_modes()) {
    const bool plain = mode.qk == Format::bf16 || is_plain_float(mode.qk) || bits(mode.qk) == 6;
    if (!plain && (mode.pv == Format::nvfp4 || mode.qk != mode.pv)) modes.push_back(mode);
  }
  return modes;
}

// Tile sizes of what the kernel multiplies in E4M3, and rounds to NVFP4.
inline HopperTiles dequant_tiles(const AttentionProblem& p) {
  HopperTiles tiles;
  if (p.mode.pv == Format::nvfp4) {
    tiles.nvfp4_keys = std::max(p.head_dim, p.value_dim) <= 64   ? 96
                       : p.head_dim <= 192 && p.value_dim <= 128 ? 128
                                                                 : 64;
  }
  if (!p.variable_length && p.softcap == 0) {  // the dense form
    tiles.fp8_scores = p.q == Format::fp8_e4m3 && p.k == p.q && p.mode.pv == Format::bf16;
    const bool values = p.v == Format::fp8_e4m3 && p.mode.pv == p.v && is_block(p.k) &&
                        p.head_dim <= 192 && p.value_dim <= 128;
    if (values) tiles.fp8_keys = 192;
  }
  return tiles;
}
inline void expect_dequant(Stream& stream, const Case& c) {
  expect_on(stream, c, bounded(c, dequant_tiles(c.problem)));
}

// The same quantised values with a scale for each head.
inline Case with_head_scales(Case c) {
  for (Tensor* each : {&c.tensors.q, &c.tensors.k, &c.tensors.v}) {
    const Tensor scales = Tensor::empty({1, 1, each->size(2), 1}, Format::f32);
    auto* values = const_cast<float*>(scales.data<float>());
    for (int64_t i = 0; i < scales.numel(); ++i) values[i] = 0.01f * static_cast<float>(i + 1);
    *each = each->quantized(each->scaling(), scales);
  }
  return c;
}

// Keys and values whose rows have powers of two for scales, but for the one before the last, which
// is large, so that its part is not lost. Tiles of the others alone are multiplied without.
inline Case with_power_of_two_scales(Case c) {
  for (Tensor* each : {&c.tensors.k, &c.tensors.v}) {
    const Tensor scales = Tensor::empty(each->scales().shape(), Format::f32);
    auto* values = const_cast<float*>(scales.data<float>());
    for (int64_t i = 0; i < scales.numel(); ++i) {
      values[i] = std::ldexp(1.0f, static_cast<int>(i % 5) - 9);
    }
    values[scales.numel() - 2] = 40.0f / 512;
    *each = each->quantized(each->scaling(), scales);
  }
  return c;
}

// Every mode and instance, around the edges of tiles of 64, 96 and 128 keys; Q and V in bf16 and
// quantised, scales of tensors and of rows.
inline std::vector<Case> dequant_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool causal, int64_t left = -1) {
    c.problem.out = Format::bf16;
    c.problem.causal = causal, c.problem.window_left = left;
    cases.push_back(c);
  };
  uint64_t seed = 1;
  for (const AttentionMode& mode : dequant_modes()) {
    const Format f = mode.qk, bf16 = Format::bf16, v = mode.pv == bf16 ? f : mode.pv;
    add(make_case({1, 70, 130, 2, 1, 64}, mode, ++seed, Data::outliers), true);
    add(make_case({1, 130, 260, 2, 2, 128}, mode, f, f, v, ++seed), false);
    add(make_case({2, 64, 129, 2, 1, 96, 128}, mode, bf16, f, mode.pv, ++seed), true, 50);
  }
  const AttentionMode fp8{Format::fp8_e4m3, Format::bf16}, nvfp4{Format::nvfp4, Format::bf16};
  add(make_case({1, 66, 100, 1, 1, 256}, nvfp4, ++seed), true);
  add(make_case({1, 66, 100, 1, 1, 192, 128}, fp8, ++seed), true);
  add(make_case({1, 66, 200, 1, 1, 128}, fp8, fp8.qk, fp8.qk, fp8.qk, ++seed, Data::normal, false),
      true);
  add(make_case({1, 66, 90, 4, 2, 128}, fp8, ++seed), true);
  cases.back().problem.softcap = 20;
  add(make_case({1, 300, 400, 2, 1, 256}, fp8, fp8.qk, fp8.qk, fp8.qk, ++seed), false);
  add(with_head_scales(make_case({2, 66, 100, 4, 2, 64}, fp8, fp8.qk, fp8.qk, fp8.qk, ++seed)),
      true);
  add(token_case({2, 140, 300, 4, 2, 128}, fp8, ++seed), true);
  const AttentionMode int8{Format::int8, Format::bf16};
  for (const AttentionMode& mode : {fp8, int8}) {
    for (const int64_t dim : {64, 128, 256}) {
      add(with_power_of_two_scales(
              make_case({1, 130, 400, 1, 1, dim}, mode, mode.qk, mode.qk, mode.qk, ++seed)),
          dim == 128);
    }
  }
  // V in E4M3 is multiplied as it is, by itself beside the K of each instance: tile after tile,
  // some with a part of their keys, and whatever shares the scales of V.
  const Format e4m3 = Format::fp8_e4m3;
  const AttentionMode beside[] = {
      {Format::nvfp4, e4m3}, {Format::mxfp8, e4m3}, {Format::mxfp4, e4m3}};
  for (const Shared shared :
       {Shared::none, Shared::tensor, Shared::head, Shared::row, Shared::block}) {
    Case c = make_case({2, 140, 450, 4, 2, 128}, beside[0], ++seed);
    c.tensors.v = fp8_operand({2, 450, 2, 128}, shared, ++seed, Data::normal).tensor;
    add(c, shared == Shared::head);
  }
  for (const Shared shared : {Shared::row, Shared::head, Shared::block}) {
    Case narrow = make_case({1, 200, 500, 2, 1, 64}, beside[1], ++seed);
    narrow.tensors.v = fp8_operand({1, 500, 1, 64}, shared, ++seed, Data::normal).tensor;
    add(narrow, false);
    Case uneven = make_case({1, 140, 300, 2, 1, 192, 128}, beside[1], ++seed);
    uneven.tensors.v = fp8_operand({1, 300, 1, 128}, shared, ++seed, Data::normal).tensor;
    add(uneven, true);
  }
  add(make_case({1, 140, 300, 2, 1, 256}, beside[2], ++seed), false);
  add(make_case({1, 140, 260, 2, 1, 256}, beside[0], Format::bf16, beside[0].qk, e4m3, ++seed),
      true, 70);
  // P in NVFP4, tile after tile, and where most tiles are far below the largest score, before it
  // and behind.
  const AttentionMode four{Format::nvfp4, Format::nvfp4};
  add(make_case({1, 200, 500, 2, 1, 64}, four, ++seed), false);
  add(make_case({1, 140, 450, 2, 1, 128}, four, ++seed), true);
  add(make_case({1, 140, 300, 1, 1, 192, 128}, four, ++seed), false);
  add(make_case({1, 140, 300, 1, 1, 256}, four, ++seed), true, 90);
  add(make_case({1, 130, 700, 1, 1, 128}, four, ++seed), false);
  cases.back().problem.softmax_scale = 4;
  add(make_case({1, 130, 300, 2, 1, 128}, four, ++seed), true);
  cases.back().problem.softcap = 20;
  return cases;
}

}  // namespace halftone::test
