#include "formats/row_reader.h"

#include <algorithm>

#include "base/message.h"
#include "formats/codec.h"

namespace halftone {

namespace {

template <class T>
void widen(const char* from, int64_t step, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * step, sizeof value);
    to[i] = static_cast<float>(value);
  }
}

template <class T, class Decode>
void decode(const char* from, int64_t step, int64_t count, float* to, Decode value_of) {
  for (int64_t i = 0; i < count; ++i) {
    T code;
    std::memcpy(&code, from + i * step, sizeof code);
    to[i] = value_of(code);
  }
}

}  // namespace

std::string RowReader::refuse(Format format, bool scaled) {
  if (is_plain_float(format) || is_integer_index(format) || format == Format::u8) {
    return scaled ? concat(name(format), " takes no scales") : std::string();
  }
  if (format == Format::ue8m0) return "ue8m0 holds scales, not numbers";
  if (!scaled && (is_block(format) || format == Format::int4)) {
    return concat(name(format), " without scales; attach them with Tensor::quantized");
  }
  return "";
}

RowReader::RowReader(const Tensor& x) : x_(x), kernels_(&format_kernels()) {
  if (!x.has_scales()) return;
  scales_.emplace(x_);
  factor_ = x.tensor_scale_value();
  // As in dequantize(): two products round once only when the first is exact.
  const Format scale = x.scaling().format;
  if (factor_ != 1.0f && scale != Format::fp8_e4m3 && scale != Format::f16) {
    kernels_ = &scalar_format_kernels();
  }
}

const void* RowReader::dense(int64_t row, int64_t begin) const {
  if (!is_plain_float(x_.format()) || (x_.size(-1) > 1 && x_.stride(-1) != 1)) return nullptr;
  return address(x_, row_offset(x_, row) + begin);
}

void RowReader::prefetch(int64_t row, int64_t begin, int64_t count) const {
  const char* from = address(x_, row_offset(x_, row) + begin * x_.stride(-1));
  const int64_t bytes = count * bits(x_.format()) / 8;
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line, 0, 2);
}

const float* RowReader::read(int64_t row, int64_t begin, int64_t count, float* buffer) const {
  const Format format = x_.format();
  const int64_t last = x_.rank() > 0 && x_.size(-1) > 1 ? x_.stride(-1) : 1;
  const char* from = address(x_, row_offset(x_, row) + begin * last);
  const int64_t step = last * bits(format) / 8;
  if (scales_) {
    const int64_t group = scales_->group();
    const bool asymmetric = x_.scaling().asymmetric;
    // Up to the next group, then whole groups.
    int64_t done = 0;
    float scales[kMost];
    uint8_t zeros[kMost];
    while (done < count) {
      const int64_t at = begin + done, into = at % group;
      const int64_t n = into == 0 ? count - done : std::min(count - done, group - into);
      scales_->read(row, at / group, (into + n + group - 1) / group, scales, zeros);
      const RowScales parts{scales, asymmetric ? zeros : nullptr, into == 0 ? group : n, factor_};
      const auto* codes = reinterpret_cast<const uint8_t*>(from) + done * bits(format) / 8;
      kernels_->dequantize_row(format, codes, n, parts, Format::f32, buffer + done);
      done += n;
    }
    return buffer;
  }
  switch (format) {
    case Format::f32:
      if (step == 4) return reinterpret_cast<const float*>(from);
      widen<float>(from, step, count, buffer);
      break;
    case Format::f16:
    case Format::bf16:
      if (last == 1) {
        kernels_->convert(format, Format::f32, from, count, buffer);
      } else if (format == Format::f16) {
        decode<uint16_t>(from, step, count, buffer, [](uint16_t c) { return decode_f16(c); });
      } else {
        decode<uint16_t>(from, step, count, buffer, [](uint16_t c) { return decode_bf16(c); });
      }
      break;
    case Format::fp8_e4m3:
      decode<uint8_t>(from, step, count, buffer, [](uint8_t c) { return decode_e4m3(c); });
      break;
    case Format::fp8_e5m2:
      decode<uint8_t>(from, step, count, buffer, [](uint8_t c) { return decode_e5m2(c); });
      break;
    case Format::int8:
      widen<int8_t>(from, step, count, buffer);
      break;
    case Format::u8:
      widen<uint8_t>(from, step, count, buffer);
      break;
    case Format::i32:
      widen<int32_t>(from, step, count, buffer);
      break;
    default:
      widen<int64_t>(from, step, count, buffer);
  }
  return buffer;
}

}  // namespace halftone
