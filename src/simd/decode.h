// Codes of the small formats to FP32 lanes and to BF16 pairs, exactly as formats/codec.h, for files
// of one ISA level. Scales are the caller's.
//
//   decode<F>(codes, i)         f32v    elements i .. i + kLanes - 1
//   decode_pairs<F>(codes, i)   bf16v   elements i .. i + 2 * kLanes - 1, the order of VDPBF16PS
//   decode_pairs_x2<F>(codes, i, out)   the next 2 * kLanes too; with VBMI cheaper than two calls
//   decode_int4(codes, i, zero), decode_int4_pairs(codes, i, zero): code - zero
//   decode_code<F>(code)        f32v    of codes in the lanes of a u32v
//   lookup_bytes<F>, lookup_nibbles<F>  words of BF16 by table, in the order of the codes
//
// F: fp8_e4m3, fp8_e5m2, mxfp8, mxfp4, nvfp4, int8, or int4 (symmetric: code - 8). `codes` is the
// byte of element 0; i is even for 4-bit formats. Reads exactly the bytes of those elements.
#pragma once
#include "simd/decode_lanes.h"
#include "simd/decode_pairs.h"
