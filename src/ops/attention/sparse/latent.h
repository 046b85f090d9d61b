// The bytes of a token in a cache of one head; see halftone/sparse_attention.h.
#pragma once
#include <cstring>
#include <string>

#include "halftone/sparse_attention.h"

namespace halftone {

// How the numbers of a token are stored: `codes` E4M3, then the rest in bf16.
struct LatentForm {
  int64_t codes, group;  // numbers in E4M3 and how many of them share a scale
  int64_t row_bytes;     // from a token to the next
  int64_t scale_offset;  // of fp8_656, within the token
};
LatentForm latent_form(const LatentLayout&);
int64_t latent_page_bytes(const LatentLayout&);
// "" or the rule that the layout breaks; `what` names it.
std::string latent_error(const char* what, const LatentLayout&);

// A checked cache.
struct LatentView {
  LatentLayout layout;
  LatentForm form;
  uint8_t* data = nullptr;
  int64_t pages = 0, page_bytes = 0;
  uint8_t* scales = nullptr;  // fp8: f32 a token
  int64_t scale_row_bytes = 0, scale_page_bytes = 0;

  int64_t tokens() const { return pages * layout.page_size; }
  uint8_t* row(int64_t slot) const {
    return data + slot / layout.page_size * page_bytes + slot % layout.page_size * form.row_bytes;
  }
  // Of the E4M3 numbers; f32 or E8M0.
  uint8_t* row_scales(int64_t slot) const {
    const int64_t page = slot / layout.page_size, place = slot % layout.page_size;
    if (layout.format == LatentFormat::fp8) {
      return scales + page * scale_page_bytes + place * scale_row_bytes;
    }
    if (layout.format == LatentFormat::fp8_656) return row(slot) + form.scale_offset;
    return data + page * page_bytes + layout.page_size * form.row_bytes + place * 8;
  }
  // First byte of the numbers in bf16.
  uint8_t* plain(int64_t slot) const {
    return row(slot) + form.codes + (layout.format == LatentFormat::fp8_656 ? 16 : 0);
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
