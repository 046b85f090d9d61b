// The epilogue of a GEMM on CPUs: row scales, bias, activation, residual, conversion. A file of its
// own, so that the activations are compiled once an ISA level and not for every arithmetic.
#include "ops/gemm/cpu/epilogue.h"

#include "simd/activate.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

HALFTONE_INLINE f32v load_any(Format format, const void* p, int64_t i, int count) {
  if (count == kLanes) {
    if (format == Format::f32) return load<Format::f32>(p, i);
    return format == Format::bf16 ? load<Format::bf16>(p, i) : load<Format::f16>(p, i);
  }
  if (format == Format::f32) return load_partial<Format::f32>(p, i, count);
  return format == Format::bf16 ? load_partial<Format::bf16>(p, i, count)
                                : load_partial<Format::f16>(p, i, count);
}
HALFTONE_INLINE void store_any(Format format, void* p, int64_t i, f32v x, int count) {
  if (count == kLanes) {
    if (format == Format::f32) return store<Format::f32>(p, i, x);
    return format == Format::bf16 ? store<Format::bf16>(p, i, x) : store<Format::f16>(p, i, x);
  }
  if (format == Format::f32) return store_partial<Format::f32>(p, i, x, count);
  return format == Format::bf16 ? store_partial<Format::bf16>(p, i, x, count)
                                : store_partial<Format::f16>(p, i, x, count);
}

// Full precision: the result may be FP32, and a GEMM costs far more than its epilogue.
void activate_row(const ActivationFunction& f, float* x, int64_t n) {
  with_activation(f.kind, [&]<Activation kKind>() {
    for (int64_t i = 0; i < n; i += kLanes) {
      store_raw(x + i, activate<kKind, false>(load_raw<f32v>(x + i), f));
    }
  });
}

void gate_row(const GatedActivation& g, float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_raw(gate + i, clamp_gate(load_raw<f32v>(gate + i), g));
  }
  activate_row(g.function, gate, n);
  for (int64_t i = 0; i < n; i += kLanes) {
    store_raw(gate + i, load_raw<f32v>(gate + i) * gated_factor(load_raw<f32v>(up + i), g));
  }
}

// Rows in pieces that stay in the L1 cache, so that each step is a loop of its own and the
// activation is selected once a piece.
void epilogue_by_pieces(const gemm::EpilogueArgs& f) {
  constexpr int kPiece = 512;
  alignas(64) float rows[2][kPiece];
  for (int64_t from = 0; from < f.count; from += kPiece) {
    const int64_t piece = f.count - from < kPiece ? f.count - from : kPiece;
    const auto affine = [&](const float* sums, const float* scale, const void* bias, int64_t i,
                            int count) {
      f32v y = load_any(Format::f32, sums, i, count);
      if (f.integer) {
        y = __builtin_convertvector(bits_as<i32v>(bits_as<u32v>(y) - broadcast_u32(f.offset)),
                                    f32v);
      }
      if (scale != nullptr) y = y * load_any(Format::f32, scale, i, count);
      y = y * broadcast(f.row_scale);
      return bias != nullptr ? y + load_any(f.bias_format, bias, i, count) : y;
    };
    const auto each = [&](const auto& body) {
      for (int64_t i = 0; i < piece; i += kLanes) {
        body(i, piece - i < kLanes ? static_cast<int>(piece - i) : kLanes);
      }
    };
    each([&](int64_t i, int count) {
      store_raw(rows[0] + i, affine(f.sums, f.scale, f.bias, from + i, count));
      if (f.up == nullptr) return;
      store_raw(rows[1] + i, affine(f.up, f.up_scale, f.up_bias, from + i, count));
    });
    if (f.up != nullptr) {
      gate_row(f.gated, rows[0], rows[1], piece);
    } else if (f.activation.kind != Activation::identity) {
      activate_row(f.activation, rows[0], piece);
    }
    each([&](int64_t i, int count) {
      f32v y = load_raw<f32v>(rows[0] + i);
      if (f.residual != nullptr) y = y + load_any(f.residual_format, f.residual, from + i, count);
      store_any(f.out_format, f.out, from + i, y, count);
    });
  }
}

}  // namespace

void epilogue_row(const gemm::EpilogueArgs& f) { epilogue_by_pieces(f); }

}  // namespace halftone::HALFTONE_LEVEL
