// The members of FormatKernels of one ISA level, and the files that define them.
#pragma once
#include "formats/kernels.h"

namespace halftone::HALFTONE_LEVEL {

// vector_kernels.cpp
uint32_t amax(Format source, const void* x, int64_t n);
void encode(Format source, Format target, const void* x, int64_t n, float multiplier, int zero,
            uint8_t* codes);
void encode_ue8m0(const float* x, int64_t n, bool down, uint8_t* codes);
double squared_error(Format source, Format target, const void* x, int64_t n, float multiplier,
                     int zero, float scale, float tensor_scale);
bool quantize_band(const Recipe&, Format source, const Band&);
void convert(Format source, Format out, const void* x, int64_t n, void* y);

// vector_rows.cpp
bool quantize_row(const Recipe&, Format source, const void* x, int64_t columns, uint8_t* codes,
                  uint8_t* scales, uint8_t* zeros);

// vector_dequantize.cpp
void dequantize_row(Format, const uint8_t* codes, int64_t columns, const RowScales&, Format out,
                    void* y);
void decode_scales(Format, const void* codes, int64_t n, float* scales);
void decode_bf16(Format, const uint8_t* codes, int64_t n, uint16_t* y);

}  // namespace halftone::HALFTONE_LEVEL
