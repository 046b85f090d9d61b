#include "ops/gemm/sm90/fused_gemms.h"

namespace halftone::product {

bool joins_sm90(const GpuProduct& first, const GpuProduct& next) {
  const GpuLayout &a = first.weight, &b = next.weight;
  const GpuFinish &f = first.finish, &g = next.finish;
  return first.x == next.x && first.x_row == next.x_row && first.m == next.m && first.k == next.k &&
         first.constant_weight == next.constant_weight && first.factor == next.factor &&
         a.format == b.format && a.row_bytes == b.row_bytes && a.row_step == b.row_step &&
         a.scale_format == b.scale_format && a.scale_row == b.scale_row &&
         a.scale_step == b.scale_step && a.block_rows == b.block_rows && a.group == b.group &&
         !f.gate && !g.gate && f.residual == nullptr && g.residual == nullptr &&
         f.activation == g.activation && f.out_format == g.out_format &&
         (f.bias[0] == nullptr || g.bias[0] == nullptr ||
          (f.bias_format == g.bias_format && f.bias_step == g.bias_step));
}

CommonEnd common_end(std::span<const GpuProduct> products) {
  const GpuFinish& f = products[0].finish;
  const auto by_fours = [](const char* at, int64_t row) {
    return reinterpret_cast<uintptr_t>(at) % 8 == 0 && row % 8 == 0;
  };
  for (const GpuProduct& p : products) {
    const GpuFinish& g = p.finish;
    if (g.out_format == Format::f32 || p.n % 4 != 0 || !by_fours(g.out, g.out_row)) {
      return CommonEnd::none;
    }
    if (g.residual == nullptr) continue;
    if (g.residual_format == Format::f32 || !by_fours(g.residual, g.residual_row)) {
      return CommonEnd::none;
    }
  }
  if (f.gate) return f.gated == GatedActivation::swiglu() ? CommonEnd::swiglu : CommonEnd::none;
  return f.activation.kind == Activation::identity ? CommonEnd::affine : CommonEnd::none;
}

uint32_t join_sm90(std::span<const GpuProduct> products, uint32_t rows_of_tile, GpuProduct* first,
                   Sm90More (&more)[kSm90More]) {
  *first = products[0];
  first->finish.common = common_end(products);
  uint32_t tiles = (first->n + rows_of_tile - 1) / rows_of_tile;
  for (size_t i = 1; i < products.size(); ++i) {
    const GpuProduct& next = products[i];
    const GpuFinish& f = next.finish;
    more[i - 1] = {next.source[0], f.out, f.out_row, f.bias[0], tiles, next.n};
    tiles += (next.n + rows_of_tile - 1) / rows_of_tile;
    if (f.bias[0] == nullptr) continue;
    first->finish.bias_format = f.bias_format, first->finish.bias_step = f.bias_step;
  }
  return tiles;
}

}  // namespace halftone::product
