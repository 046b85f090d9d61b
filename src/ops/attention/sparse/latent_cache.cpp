// Latent (MLA) caches: their layouts, and functions that write and read tokens.
#include <algorithm>
#include <cmath>

#include "base/arguments.h"
#include "base/message.h"
#include "formats/codec.h"
#include "halftone/quantize.h"
#include "ops/attention/sparse/latent.h"

namespace halftone {

const char* name(LatentFormat format) {
  switch (format) {
    case LatentFormat::bf16:
      return "bf16";
    case LatentFormat::fp8:
      return "fp8";
    case LatentFormat::fp8_656:
      return "fp8_656";
    default:
      return "fp8_584";
  }
}

LatentEncoding latent_encoding(const LatentLayout& layout) {
  switch (layout.format) {
    case LatentFormat::bf16:
      return {0, 0, 2 * layout.dim, 0};
    case LatentFormat::fp8:
      return {layout.dim, layout.dim, layout.dim, 0};
    case LatentFormat::fp8_656:
      return {512, 128, 656, 512};
    default:
      return {448, 64, 576, 0};
  }
}

int64_t latent_page_bytes(const LatentLayout& layout) {
  const int64_t tokens = layout.page_size * latent_encoding(layout).row_bytes;
  if (layout.format != LatentFormat::fp8_584) return tokens;
  return (tokens + layout.page_size * 8 + 575) / 576 * 576;
}

std::string latent_error(const char* what, const LatentLayout& layout) {
  if (layout.page_size < 1 || layout.page_size > (int64_t{1} << 30)) {
    return concat(what, ".page_size is ", layout.page_size, "; it must be from 1 to 2^30");
  }
  const int64_t fixed = layout.format == LatentFormat::fp8_656   ? 576
                        : layout.format == LatentFormat::fp8_584 ? 512
                                                                 : 0;
  if (fixed != 0 && layout.dim != fixed) {
    return concat(what, ".dim is ", layout.dim, "; a token of ", name(layout.format), " has ",
                  fixed);
  }
  if (layout.dim < 1 || layout.dim > 1024) {
    return concat(what, ".dim is ", layout.dim, "; it must be from 1 to 1024");
  }
  return {};
}

Support can_run(const LatentLayout& layout, const Device& device) {
  if (!device.is_cpu()) {
    return {false, concat("caches of one head live on the cpu, not on ", device.name())};
  }
  const std::string error = latent_error("layout", layout);
  return error.empty() ? Support{} : Support{false, error};
}

Tensor latent_cache(const LatentLayout& layout, int64_t pages) {
  require_support(can_run(layout, Device::cpu()));
  require(pages >= 0, "pages is ", pages, "; it must be at least 0");
  switch (layout.format) {
    case LatentFormat::bf16:
      return Tensor::zeros({pages, layout.page_size, layout.dim}, Format::bf16);
    case LatentFormat::fp8:
      return Tensor::zeros({pages, layout.page_size, layout.dim}, Format::fp8_e4m3)
          .quantized({Format::f32, 1, 0}, Tensor::zeros({pages, layout.page_size, 1}, Format::f32));
    case LatentFormat::fp8_656:
      return Tensor::zeros({pages, layout.page_size, 656}, Format::u8);
    default:
      return Tensor::zeros({pages, latent_page_bytes(layout)}, Format::u8);
  }
}

LatentView latent_view(const char* what, const LatentLayout& layout, const Tensor& cache) {
  const std::string error = latent_error(what, layout);
  require(error.empty(), error);
  require(cache.defined(), what, " is missing");
  require(cache.device().is_cpu(), what, " is on ", cache.device().name(), "; it must be on cpu");
  const bool paged_bytes = layout.format == LatentFormat::fp8_584;
  const Format format = layout.format == LatentFormat::bf16  ? Format::bf16
                        : layout.format == LatentFormat::fp8 ? Format::fp8_e4m3
                                                             : Format::u8;
  require(cache.format() == format, what, " is ", name(cache.format()), "; a cache of ",
          name(layout.format), " is ", name(format));
  LatentView view{layout, latent_encoding(layout)};
  const int64_t numbers = layout.format == LatentFormat::fp8_656 ? 656 : layout.dim;
  const bool shaped = paged_bytes ? cache.rank() == 2
                                  : cache.rank() == 3 && cache.size(1) == layout.page_size &&
                                        cache.size(2) == numbers;
  if (paged_bytes) {
    require(shaped && cache.size(1) >= layout.page_size * 584, what, " has shape ",
            to_string(cache.shape()), "; it must be [pages, bytes of a page], here at least ",
            layout.page_size * 584, " bytes");
  } else {
    require(shaped, what, " has shape ", to_string(cache.shape()), "; it must be [pages, ",
            layout.page_size, ", ", numbers, "]");
  }
  require(cache.stride(-1) == 1 || cache.size(-1) == 1, what, " has stride ", cache.stride(-1),
          " in its last dimension; it must be 1");
  if (!paged_bytes) {
    const int64_t bytes = bits(format) / 8;
    require(cache.stride(1) == numbers || layout.page_size == 1, what, " has stride ",
            cache.stride(1), " from token to token; it must be ", numbers);
    view.encoding.row_bytes = numbers * bytes;
  }
  view.data = cache.data<uint8_t>();
  view.pages = cache.size(0);
  view.page_bytes = cache.stride(0) * bits(format) / 8;
  if (layout.format == LatentFormat::fp8) {
    require(cache.has_scales() && cache.scaling().format == Format::f32 &&
                cache.scales().rank() == 3 && cache.scales().size(0) == view.pages &&
                cache.scales().size(1) == layout.page_size && cache.scales().size(2) == 1,
            what, " in fp8 needs f32 scales [pages, ", layout.page_size, ", 1], one a token");
    view.scales = cache.scales().data<uint8_t>();
    view.scale_page_bytes = cache.scales().stride(0) * 4;
    view.scale_row_bytes = cache.scales().stride(1) * 4;
  }
  return view;
}

namespace {

const int32_t* check_slots(const LatentView& view, const Tensor& slots, int64_t tokens) {
  check_tensor("latent cache", "slots", slots, {tokens}, Format::i32, Device::cpu());
  const auto* slot = slots.data<int32_t>();
  for (int64_t i = 0; i < tokens; ++i) {
    require(slot[i] < view.tokens(), "slots[", i, "] is ", slot[i], "; the cache has ",
            view.tokens(), " tokens");
  }
  return slot;
}

void write_row(const LatentView& view, int64_t slot, const float* x) {
  const LatentEncoding& encoding = view.encoding;
  uint8_t* values = view.row(slot);
  for (int64_t g = 0; g < encoding.fp8_dims; g += encoding.group) {
    float max_abs = 0;
    for (int64_t i = g; i < g + encoding.group; ++i) max_abs = std::max(max_abs, std::abs(x[i]));
    float scale = 0;
    if (view.layout.format == LatentFormat::fp8) {
      scale = std::max(max_abs, 1e-4f) / 448.0f;
      std::memcpy(view.row_scales(slot), &scale, 4);
    } else {
      const uint8_t exponent = encode_ue8m0_up(std::max(max_abs / 448.0f, 1e-4f));
      scale = decode_ue8m0(exponent);
      uint8_t* scales = view.row_scales(slot);
      if (view.layout.format == LatentFormat::fp8_656) {
        std::memcpy(scales + g / encoding.group * 4, &scale, 4);
      } else {
        scales[g / encoding.group] = exponent;
      }
    }
    for (int64_t i = g; i < g + encoding.group; ++i) values[i] = encode_e4m3(x[i] / scale);
  }
  uint8_t* bf16_elements = view.bf16_elements(slot);
  for (int64_t i = encoding.fp8_dims; i < view.layout.dim; ++i) {
    const uint16_t bits16 = encode_bf16(x[i]);
    std::memcpy(bf16_elements + (i - encoding.fp8_dims) * 2, &bits16, 2);
  }
}

void read_row(const LatentView& view, int64_t slot, float* x) {
  const LatentEncoding& encoding = view.encoding;
  const uint8_t* values = view.row(slot);
  for (int64_t i = 0; i < encoding.fp8_dims; ++i) {
    const uint8_t* scales = view.row_scales(slot);
    const float scale = view.layout.format == LatentFormat::fp8_584
                            ? decode_ue8m0(scales[i / encoding.group])
                            : load_f32(scales + i / encoding.group * 4);
    x[i] = decode_e4m3(values[i]) * scale;
  }
  const uint8_t* bf16_elements = view.bf16_elements(slot);
  for (int64_t i = encoding.fp8_dims; i < view.layout.dim; ++i) {
    uint16_t bits16;
    std::memcpy(&bits16, bf16_elements + (i - encoding.fp8_dims) * 2, 2);
    x[i] = decode_bf16(bits16);
  }
}

}  // namespace

void latent_write(const LatentLayout& layout, const Tensor& cache, const Tensor& rows,
                  const Tensor& slots, Stream& stream) {
  require(stream.device().is_cpu(), "latent_write runs on the cpu, not on ",
          stream.device().name());
  const LatentView view = latent_view("cache", layout, cache);
  require(rows.defined() && rows.rank() == 2 && is_plain_float(rows.format()) &&
              rows.size(1) == layout.dim,
          "rows is ", rows.defined() ? to_string(rows) : "missing",
          "; it must be f32, f16 or bf16 [tokens, ", layout.dim, "]");
  const int64_t tokens = rows.size(0);
  const int32_t* slot = check_slots(view, slots, tokens);
  const Tensor f32_rows =
      rows.format() == Format::f32 ? rows.contiguous_copy() : convert(rows, Format::f32, stream);
  // One thread: two tokens may share a slot, and the later one stays.
  for (int64_t i = 0; i < tokens; ++i) {
    if (slot[i] >= 0) write_row(view, slot[i], f32_rows.data<float>() + i * layout.dim);
  }
}

Tensor latent_read(const LatentLayout& layout, const Tensor& cache, const Tensor& slots) {
  const LatentView view = latent_view("cache", layout, cache);
  require(slots.defined() && slots.rank() == 1, "slots is ",
          slots.defined() ? to_string(slots) : "missing", "; it must be i32 [tokens]");
  const int32_t* slot = check_slots(view, slots, slots.size(0));
  const Tensor x = Tensor::zeros({slots.size(0), layout.dim}, Format::f32);
  for (int64_t i = 0; i < slots.size(0); ++i) {
    if (slot[i] >= 0) read_row(view, slot[i], x.data<float>() + i * layout.dim);
  }
  return x;
}

}  // namespace halftone
