// Elementwise operations, host side: broadcasting, merging of dimensions, and the run.
#include "ops/map/map.h"

#include "base/arguments.h"
#include "formats/kernels.h"

namespace halftone {

MapOperand map_operand(const char* operation, const char* argument, const Tensor& x,
                       const Shape& shape, Format format, const Device& device) {
  require(x.defined(), operation, ": ", argument, " is undefined; pass a tensor of ", name(format));
  require(x.format() == format, operation, ": ", argument, " is ", name(x.format()),
          ", the plan was made for ", name(format));
  require(x.device() == device, operation, ": ", argument, " is on ", x.device().name(),
          ", the plan was made for ", device.name());
  MapOperand operand;
  operand.base = x.data<char>();
  operand.format = format;
  const int64_t bytes = bits(format) / 8;
  const int missing = shape.rank() - x.rank();
  bool fits = missing >= 0;
  for (int i = 0; fits && i < x.rank(); ++i) {
    const bool repeats = x.size(i) == 1 && shape[missing + i] != 1;
    fits = repeats || x.size(i) == shape[missing + i];
    operand.stride[missing + i] = repeats ? 0 : x.stride(i) * bytes;
  }
  require(fits, operation, ": ", argument, " has shape ", shown(x.shape()),
          ", which does not broadcast to ", shown(shape));
  return operand;
}

void run_map(const MapFunctions& function, MapArgs& args, const Shape& shape, Stream& stream) {
  if (element_count(shape) == 0) return;
  // Dimensions of one element are dropped; neighbours that every operand steps through evenly are
  // merged.
  MapOperand* const all[] = {&args.in[0], &args.in[1], &args.in[2], &args.out};
  int rank = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    bool merges = rank > 0;
    for (const MapOperand* x : all) {
      merges = merges && x->stride[rank - 1] == x->stride[d] * shape[d];
    }
    if (!merges) ++rank;
    args.extent[rank - 1] = merges ? args.extent[rank - 1] * shape[d] : shape[d];
    for (MapOperand* x : all) x->stride[rank - 1] = x->stride[d];
  }
  if (rank == 0) {
    rank = 1;
    args.extent[0] = 1;
  }
  args.rank = rank;
  const int64_t columns = args.extent[rank - 1], count = element_count(shape);
  const int64_t rows = count / columns;
  if (function.gpu != nullptr) return function.gpu(args, rows, stream);
  int64_t bytes = count * bits(args.out.format) / 8;
  bool in_place = false;
  for (int k = 0; k < args.operands; ++k) {
    bytes += count * bits(args.in[k].format) / 8;
    in_place = in_place || args.in[k].base == args.out.base;
  }
  args.streamed = bytes >= kStreamFrom && !in_place;  // the inputs are not read again
  args.pieces = (columns + kMapPiece - 1) / kMapPiece;
  for_rows(stream, rows * args.pieces, std::min(columns, kMapPiece),
           [&](int64_t begin, int64_t end) { function.cpu(args, begin, end); });
}

}  // namespace halftone
