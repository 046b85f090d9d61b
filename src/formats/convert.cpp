#include <cstring>

#include "base/message.h"
#include "formats/codec.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor convert(const Tensor& x, Format out, Stream&) {
  require(is_plain_float(x.format()) && is_plain_float(out),
          "convert goes between f32, f16 and "
          "bf16, not from ",
          name(x.format()), " to ", name(out));
  const Tensor source = x.contiguous_copy();
  Tensor result = Tensor::empty(x.shape(), out);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = source.format() == Format::f32   ? source.data<float>()[i]
                        : source.format() == Format::f16 ? decode_f16(source.data<uint16_t>()[i])
                                                         : decode_bf16(source.data<uint16_t>()[i]);
    switch (out) {
      case Format::f16:
        result.data<uint16_t>()[i] = encode_f16(value);
        break;
      case Format::bf16:
        result.data<uint16_t>()[i] = encode_bf16(value);
        break;
      default:
        result.data<float>()[i] = value;
    }
  }
  return result;
}

}  // namespace halftone
