// Host side common to the attention kernels of sm_90a: parameters, TMA descriptors, size limits.
#pragma once
#include "base/device_memory.h"
#include "ops/attention/kernels.h"
#include "ops/attention/sm90/general/general.cuh"
#include "pipe/tensor_map.h"

namespace halftone::attention_sm90 {

// With fewer queries a tile of 64 rows is mostly empty: heads are packed (PackGQA) and K/V split.
inline constexpr int64_t kMinFullTileQueries = 64;

// Whether some key is masked for some row.
bool masked(const AttentionProblem&);
// Whether every row begins at a multiple of 16 bytes, for 16-byte accesses and TMA.
bool aligned(const Tensor&);
// TMA also wants positive strides.
bool tma_compatible(const Tensor&);

// The TMA box of [batch, length, heads, dim], or without batch: `rows` x `heads` x one swizzle
// span. Rows from `length` on are filled with zeros.
pipe::TensorBox box_of(const Tensor&, uint32_t rows, uint32_t heads, int64_t length,
                       tile::Swizzle = tile::Swizzle::b128);

// Whether TMA can load a mask [batch, heads, queries, keys]: as bytes, in boxes of 128 bytes x 64
// queries.
bool mask_tma_compatible(const Tensor&, int64_t keys);
pipe::TensorBox mask_box(const Tensor&);

// Sets the parameters of every form.
void set_common(const AttentionProblem&, const AttentionTensors&, const DeviceProperties&, Params*);

// Sets those of the general form and the kernels made of it, except tensor maps and splits.
void set_general(const AttentionProblem&, const AttentionTensors&, const DeviceProperties&,
                 GeneralParams*);

// "", or the argument that is beyond the limits of every form.
std::string size_error(const AttentionProblem&, const char* kernel);

}  // namespace halftone::attention_sm90
