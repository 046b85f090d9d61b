#include "ops/gemm/sm90/fused_gemms.h"

namespace halftone::gemm {

bool can_fuse_sm90(const GpuGemm& first, const GpuGemm& next) {
  const GpuLayout &a = first.weight, &b = next.weight;
  const GpuEpilogue &f = first.epilogue, &g = next.epilogue;
  return first.x == next.x && first.x_row == next.x_row && first.m == next.m && first.k == next.k &&
         first.static_weights == next.static_weights && first.alpha == next.alpha &&
         a.format == b.format && a.row_bytes == b.row_bytes && a.row_step == b.row_step &&
         a.scale_format == b.scale_format && a.scale_row == b.scale_row &&
         a.scale_step == b.scale_step && a.block_rows == b.block_rows && a.group == b.group &&
         !f.gate && !g.gate && f.residual == nullptr && g.residual == nullptr &&
         f.activation == g.activation && f.out_format == g.out_format &&
         (f.bias[0] == nullptr || g.bias[0] == nullptr ||
          (f.bias_format == g.bias_format && f.bias_step == g.bias_step));
}

SpecialisedEpilogue specialised_epilogue(std::span<const GpuGemm> gemms) {
  const GpuEpilogue& f = gemms[0].epilogue;
  const auto by_fours = [](const char* at, int64_t row) {
    return reinterpret_cast<uintptr_t>(at) % 8 == 0 && row % 8 == 0;
  };
  for (const GpuGemm& p : gemms) {
    const GpuEpilogue& g = p.epilogue;
    if (g.out_format == Format::f32 || p.n % 4 != 0 || !by_fours(g.out, g.out_row)) {
      return SpecialisedEpilogue::none;
    }
    if (g.residual == nullptr) continue;
    if (g.residual_format == Format::f32 || !by_fours(g.residual, g.residual_row)) {
      return SpecialisedEpilogue::none;
    }
  }
  if (f.gate)
    return f.gated == GatedActivation::swiglu() ? SpecialisedEpilogue::swiglu
                                                : SpecialisedEpilogue::none;
  return f.activation.kind == Activation::identity ? SpecialisedEpilogue::affine
                                                   : SpecialisedEpilogue::none;
}

uint32_t fuse_sm90(std::span<const GpuGemm> gemms, uint32_t rows_of_tile, GpuGemm* first,
                   Sm90FusedGemm (&fused_gemms)[kSm90MaxFused]) {
  *first = gemms[0];
  first->epilogue.specialised = specialised_epilogue(gemms);
  uint32_t tiles = (first->n + rows_of_tile - 1) / rows_of_tile;
  for (size_t i = 1; i < gemms.size(); ++i) {
    const GpuGemm& next = gemms[i];
    const GpuEpilogue& f = next.epilogue;
    fused_gemms[i - 1] = {next.source[0], f.out, f.out_row, f.bias[0], tiles, next.n};
    tiles += (next.n + rows_of_tile - 1) / rows_of_tile;
    if (f.bias[0] == nullptr) continue;
    first->epilogue.bias_format = f.bias_format, first->epilogue.bias_step = f.bias_step;
  }
  return tiles;
}

}  // namespace halftone::gemm
