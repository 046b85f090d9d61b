// Embedding lookup on the CPU, compiled for every ISA level: rows of quantised values times their
// scales.
#include "ops/embedding/kernels.h"

#include "formats/row_quantizer.h"
#include "simd/decode.h"
#include "simd/encode.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

typedef uint8_t u8half __attribute__((vector_size(kLanes / 2)));
typedef uint16_t u16half __attribute__((vector_size(kLanes)));

// Values i .. i + count - 1 of a row, i a multiple of kLanes from the start of the row or a group.
template <Format F>
HALFTONE_INLINE u32v load_codes(const char* row, int64_t i, int count) {
  unsigned char bytes[kLanes] = {};
  std::memcpy(bytes, row + code_offset(F, i), static_cast<size_t>((count * bits_of(F) + 7) / 8));
  if constexpr (bits_of(F) == 4) {
    const auto pair = __builtin_convertvector(load_raw<u8half>(bytes), u16half);
    const u8v codes = bits_as<u8v>((pair | (pair << 4)) & 0x0f0f);
    return __builtin_convertvector(codes, u32v);
  } else if constexpr (bits_of(F) == 6) {
    return widen_u8(load_sixes(bytes));
  } else {
    return __builtin_convertvector(load_raw<u8v>(bytes), u32v);
  }
}

HALFTONE_INLINE int64_t id_at(const EmbeddingArgs& args, int64_t token) {
  const int64_t where = token * args.id_stride;
  return args.wide_ids ? static_cast<const int64_t*>(args.ids)[where]
                       : static_cast<const int32_t*>(args.ids)[where];
}

template <Format F, Format O>
void quantised_rows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t block = args.block_columns == 0 ? args.columns : args.block_columns;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t id = id_at(args, token);
    const int64_t scale_row = args.block_rows == 0 ? 0 : id / args.block_rows;
    const char* codes = args.table + id * args.table_stride;
    char* out = args.out + token * args.out_stride;
    for (int64_t first = 0, b = 0; first < args.columns; first += block, ++b) {
      const int64_t last = first + block < args.columns ? first + block : args.columns;
      float scale = 1, zero_point = kInt4Zero;
      if (args.scales != nullptr) {
        const int64_t at = scale_row * args.scale_row_stride + b * args.scale_column_stride;
        scale = read_scale(args.scale_format, args.scales + at * scale_bytes(args.scale_format));
      }
      if (args.zero_points != nullptr) {
        zero_point =
            args.zero_points[scale_row * args.zero_row_stride + b * args.zero_column_stride];
      }
      for (int64_t i = first; i < last; i += kLanes) {
        const int count = last - i < kLanes ? static_cast<int>(last - i) : kLanes;
        const u32v code = load_codes<F>(codes, i, count);
        f32v value;
        if constexpr (element_of(F) == Element::int4) {
          value = float_from(bits_as<i32v>(code)) - broadcast(zero_point);
        } else {
          value = decode_code<F>(code);
        }
        const f32v scaled = value * broadcast(scale) * broadcast(args.tensor_scale);
        if (count == kLanes) {
          store<O>(out, i, scaled);
        } else {
          store_partial<O>(out, i, scaled, count);
        }
      }
    }
  }
}

template <Format F, Format O>
void plain_rows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const char* row = args.table + id_at(args, token) * args.table_stride;
    char* out = args.out + token * args.out_stride;
    if constexpr (F == O) {
      std::memcpy(out, row, static_cast<size_t>(args.columns) * (F == Format::f32 ? 4 : 2));
    } else {
      const int64_t whole = args.columns / kLanes * kLanes;
      const int rest = static_cast<int>(args.columns - whole);
      for (int64_t i = 0; i < whole; i += kLanes) store<O>(out, i, load<F>(row, i));
      if (rest > 0) store_partial<O>(out, whole, load_partial<F>(row, whole, rest), rest);
    }
  }
}

template <Format O>
void to_format(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return plain_rows<Format::f32, O>(args, begin, end);
    case Format::f16:
      return plain_rows<Format::f16, O>(args, begin, end);
    case Format::bf16:
      return plain_rows<Format::bf16, O>(args, begin, end);
    default:
      return with_element(args.format, [&]<Format F>() { quantised_rows<F, O>(args, begin, end); });
  }
}

}  // namespace

void embedding_rows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  switch (args.out_format) {
    case Format::f32:
      return to_format<Format::f32>(args, begin, end);
    case Format::f16:
      return to_format<Format::f16>(args, begin, end);
    default:
      return to_format<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
