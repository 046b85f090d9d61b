// What the forms of attention on Hopper have in common on the host.
#pragma once
#include "base/device_memory.h"
#include "ops/attention/kernels.h"
#include "ops/attention/sm90/general/general.cuh"
#include "pipe/tensor_map.h"

namespace halftone::attention_sm90 {

// With fewer a row tile is mostly empty.
inline constexpr int64_t kFewRows = 64;

// Whether some row does not see every key.
bool masked(const AttentionProblem&);
// Whether 16-byte accesses, and so tensor copies, reach every row.
bool aligned(const Tensor&);
// A tensor copy also wants strides that go forward.
bool copied_by_engine(const Tensor&);

// [batch, length, heads, dim], or without the batch, in boxes of `rows` x `heads` x what is as wide
// as the swizzle. Rows from `length` on are filled with zeros.
pipe::TensorBox box_of(const Tensor&, uint32_t rows, uint32_t heads, int64_t length,
                       tile::Swizzle = tile::Swizzle::b128);

// Whether a mask [batch, heads, queries, keys] comes by tensor copies; as bytes, in boxes of 128 of
// 64 queries.
bool copied_by_engine_as_mask(const Tensor&, int64_t keys);
pipe::TensorBox mask_box(const Tensor&);

// Sets what all forms are told.
void set_common(const AttentionProblem&, const AttentionTensors&, const DeviceProperties&, Params*);

// And what the general form and those made of it are, but for copies and splits.
void set_general(const AttentionProblem&, const AttentionTensors&, const DeviceProperties&,
                 GeneralParams*);

// "" or the argument that is beyond what all forms take.
std::string size_error(const AttentionProblem&, const char* kernel);

}  // namespace halftone::attention_sm90
