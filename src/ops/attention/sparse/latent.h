// Bytes of a token in a latent (MLA) cache; see halftone/sparse_attention.h.
#pragma once
#include <cstring>
#include <string>

#include "halftone/sparse_attention.h"

namespace halftone {

// How the elements of a token are stored: `fp8_dims` in E4M3, then the rest in BF16.
struct LatentEncoding {
  int64_t fp8_dims, group;  // elements in E4M3 and how many of them share a scale
  int64_t row_bytes;        // from a token to the next
  int64_t scale_offset;     // of fp8_656, within the token
};
LatentEncoding latent_encoding(const LatentLayout&);
int64_t latent_page_bytes(const LatentLayout&);
// "", or which rule the layout breaks; `what` names it.
std::string latent_error(const char* what, const LatentLayout&);

// A checked cache.
struct LatentView {
  LatentLayout layout;
  LatentEncoding encoding;
  uint8_t* data = nullptr;
  int64_t pages = 0, page_bytes = 0;
  uint8_t* scales = nullptr;  // fp8: FP32 a token
  int64_t scale_row_bytes = 0, scale_page_bytes = 0;

  int64_t tokens() const { return pages * layout.page_size; }
  uint8_t* row(int64_t slot) const {
    return data + slot / layout.page_size * page_bytes +
           slot % layout.page_size * encoding.row_bytes;
  }
  // Scales of the E4M3 elements; FP32 or E8M0.
  uint8_t* row_scales(int64_t slot) const {
    const int64_t page = slot / layout.page_size, offset = slot % layout.page_size;
    if (layout.format == LatentFormat::fp8) {
      return scales + page * scale_page_bytes + offset * scale_row_bytes;
    }
    if (layout.format == LatentFormat::fp8_656) return row(slot) + encoding.scale_offset;
    return data + page * page_bytes + layout.page_size * encoding.row_bytes + offset * 8;
  }
  // First byte of the BF16 elements.
  uint8_t* bf16_elements(int64_t slot) const {
    return row(slot) + encoding.fp8_dims + (layout.format == LatentFormat::fp8_656 ? 16 : 0);
  }
};
// Error names `what`.
LatentView latent_view(const char* what, const LatentLayout&, const Tensor& cache);

inline float load_f32(const uint8_t* p) {
  float x;
  std::memcpy(&x, p, 4);
  return x;
}

}  // namespace halftone
