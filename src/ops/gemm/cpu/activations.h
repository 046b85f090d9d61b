// Prepares the activations of the GEMMs on CPUs: x as given, given quantised, or quantised row by
// row on the way; packed for the kernels, with the scales that they multiply by.
//
// Quantised values whose product with their scale is a BF16 number (power-of-two scales, or E4M3
// times E2M1) enter as that number. 8-bit values with one scale a row enter as they are, and the
// scale multiplies the sum. Other scales within a row multiply the accumulators of their groups.
#pragma once
#include <optional>
#include <string>

#include "formats/quantize_rows.h"
#include "ops/gemm/cpu/kernels.h"

namespace halftone::gemm {

// The format of x in a problem.
struct XSpec {
  Format format = Format::bf16;
  bool scaled = false;  // given with scales
  Scaling scaling;
  std::optional<QuantizeOptions> quantize;  // quantisation of an unquantised x on the way
};
// Empty, or why no kernel takes such rows of k elements.
std::string refuse_x(const XSpec&, int64_t k);

class XRows {
 public:
  // `octets`: as of the weight (octet_order).
  XRows() = default;
  XRows(const XSpec&, bool octets, int64_t k);

  // The format that the kernels see: that of x, BF16 for quantised values, or INT8 for the integer
  // kernels.
  Format packed() const { return packed_; }
  bool has_row_scales() const { return kind_ != Kind::plain && kind_ != Kind::rounded; }
  bool integer() const { return packed_ == Format::int8; }
  // For weights that the integer kernels take.
  void use_integers() { packed_ = Format::int8; }
  bool can_use_integers() const { return kind_ == Kind::row && codes_ == Format::int8; }

  int64_t panel_bytes(const Kernels&, int64_t m) const;
  int64_t scale_bytes(const Kernels&, int64_t m) const;  // of a panel; 0: no scales within rows

  struct Panel {
    int64_t m = 0;
    void* x = nullptr;
    float* scales = nullptr;          // vectors [block][m][block_chunks]
    float* row_scales = nullptr;      // [m], when has_row_scales()
    uint32_t* row_offsets = nullptr;  // [m], of the integer kernels
  };
  // Packs row `row` of a tensor of the spec as row `to` of the panel.
  void pack(const Kernels&, const Tensor& x, int64_t row, const Panel&, int64_t to) const;
  // The same of a plain row in memory.
  void pack(const Kernels&, const void* x, Format, const Panel&, int64_t to) const;

 private:
  // How values and scales enter: see above. `rounded`: the product with the scale, rounded to FP32.
  enum class Kind { plain, row, exact, lanes, rounded };

  void pack_codes(const Kernels&, const uint8_t* codes, const float* scales, float row_scale,
                  const Panel&, int64_t to) const;
  void spread(const Kernels&, const float* scales, const Panel&, int64_t to) const;

  XSpec spec_;
  Recipe recipe_;  // of a row quantised on the way
  Kind kind_ = Kind::plain;
  Format codes_ = Format::bf16, packed_ = Format::bf16;
  bool octets_ = false;
  int64_t k_ = 0, group_ = 0, groups_ = 1;
};

}  // namespace halftone::gemm
