// Products of FP8 by FP8 by few rows on Hopper, for the simulator and for a GPU.
#pragma once
#include "matmul/gpu_cases.h"

namespace halftone::test {

inline const WeightSpec kFewBlocks{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
inline const WeightSpec kFewGroups{Format::fp8_e4m3, true, {Format::f32, 1, 128}};
inline const WeightSpec kFewRow{Format::fp8_e4m3, true, {Format::f32, 1, 0}};
inline const WeightSpec kFewTensor{Format::fp8_e4m3, true, {Format::f32, 0, 0}};
inline const WeightSpec kFewBf16Blocks{Format::fp8_e4m3, true, {Format::bf16, 64, 256}};

struct Fp8FewCase {
  GpuCase problem;
  const char* kernel;  // what its description says on a chip of 132 multiprocessors
};
// Every tile, with all of its rows of x and with few of them; split-K, even and uneven, and none;
// rings that are used more than once; outputs and K that end within a tile and a stage; results
// that are rounded and no more, and such as are finished in any way.
inline const Fp8FewCase kFp8FewCases[] = {
    {{kFewBlocks, kFewGroups, 64, 140, 400, Format::f32}, "tiles of 64 x 64 in FP8"},
    {{kFewBlocks, kFewRow, 20, 264, 464, Format::f16}, "tiles of 64 x 64 in FP8"},
    {{kFewRow, kFewTensor, 9, 24, 1296, Format::bf16}, "tiles of 64 x 64 in FP8, split-K 3"},
    {{kFewBf16Blocks, kFewGroups, 35, 70, 9 * 1024 - 112, Format::f32},
     "tiles of 64 x 64 in FP8, split-K 6"},
    {{kFewTensor, kFewGroups, 60, 4096, 1024, Format::bf16}, "tiles of 64 x 64 in FP8, split-K 2"},
    {{kFewBlocks, kFewRow, 11, 264 * 64 + 8, 272, Format::bf16}, "tiles of 128 x 64 in FP8"},
    {{kFewBf16Blocks, kFewGroups, 9, 264 * 64 + 8, 784, Format::f32}, "tiles of 128 x 64 in FP8"},
    {{kFewTensor, kFewGroups, 65, 130, 528, Format::bf16}, "tiles of 64 x 128 in FP8"},
    {{kFewBlocks, kFewGroups, 128, 104, 9 * 1024, Format::bf16},
     "tiles of 64 x 128 in FP8, split-K 8"},
    {{kFewBlocks, kFewGroups, 65, 264 * 64 + 8, 784, Format::bf16}, "tiles of 192 x 128 in FP8"},
};

}  // namespace halftone::test
