// Elementwise operations on strided operands, which activations, gates and elementwise arithmetic
// share. Kernels of every CPU ISA level, and those of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "halftone/activation_function.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;
struct QuantizeArgs;

enum class MapOperation : uint8_t {
  activation,  // f(a)
  gated,       // f(a) * b, clamped
  // The order of Elementwise from here on.
  copy,
  add,       // a + alpha b
  subtract,  // a - alpha b
  multiply,
  divide,
  minimum,
  maximum,
  multiply_add,  // a * b + c
  affine,        // alpha a + beta
  negate,
  absolute,
  square,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  log,
};

struct MapOperand {
  char* base = nullptr;
  int64_t stride[8] = {};  // bytes; the last one is that of a row's elements
  Format format = Format::f32;
};
struct MapArgs {
  MapOperation operation = MapOperation::copy;
  GatedActivation function = {};  // of activations; only its function when there is one operand
  float alpha = 1, beta = 0;
  int operands = 1;
  bool streamed = false;  // larger than the caches: results by streaming stores
  MapOperand in[3], out;
  int rank = 1;  // at least 1
  int64_t extent[8] = {};
  int64_t pieces = 1;  // segments of kMapPiece elements of a row (the last dimension)
};
inline constexpr int64_t kMapPiece = 16 * 1024;

// Computes segments [begin, end) of the pieces * rows there are.
using MapFunction = void (*)(const MapArgs&, int64_t begin, int64_t end);
HALFTONE_DECLARE_LEVELS(void map_pieces(const MapArgs&, int64_t begin, int64_t end))

// `rows`: the product of all extents but the last.
using MapGpuFunction = void (*)(const MapArgs&, int64_t rows, Stream&);
void map_gpu(const MapArgs&, int64_t rows, Stream&);
// Fused activation or gate and quantisation, by its operation, function, count of operands and
// their bases, all row-major in `format`; interleaved: in[0] has pairs of gate and up. False, and
// nothing is done, where no kernel does both.
bool map_quantize_gpu(const MapArgs&, bool interleaved, Format format, const QuantizeArgs&,
                      Stream&);

}  // namespace halftone
