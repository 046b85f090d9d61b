// Fused norm and quantisation: norms whose rows are quantised in the same kernel, host side.
#include "hw/image.h"
#include "ops/norm/gpu.cuh"
#include "ops/norm/whole_rows.h"

namespace halftone {

namespace {

template <pipe::Access kAccess, bool kConvert>
KernelImage image_of_quantize(const WholeRows& w, Arch arch) {
  using Codes = RowCodes<kAccess, kConvert>;
  if (w.two) {
    return hw::image_of<NormWholeGpu<kAccess, true, true, 4, true, Codes>>("norm_quantize", arch);
  }
  if (w.pieces <= 2) {
    return hw::image_of<NormWholeGpu<kAccess, true, true, 2, false, Codes>>("norm_quantize", arch);
  }
  return hw::image_of<NormWholeGpu<kAccess, true, true, 8, false, Codes>>("norm_quantize", arch);
}
template <bool kConvert>
KernelImage image_of_quantize(const NormArgs& args, const WholeRows& w, Arch arch) {
  return args.format == Format::f16 ? image_of_quantize<pipe::Access::f16, kConvert>(w, arch)
                                    : image_of_quantize<pipe::Access::bf16, kConvert>(w, arch);
}

}  // namespace

bool norm_quantize_gpu(const NormArgs& args, int64_t rows, const QuantizeArgs& to, Stream& stream) {
  const WholeRows w = whole_rows(args, rows);
  NormQuantizeParams p;
  if (!w.kept || !take_row_codes(to, args.format, stream, &p.codes)) return false;
  if (rows == 0) return true;
  p.args = args, p.rows = rows, p.row_threads = w.threads;
  p.same_weight = args.weight != nullptr && args.weight_format == args.format;
  LaunchShape shape = pipe::RowThreads::shape(rows, w.threads);
  const uint32_t kept = w.two ? 4 : w.pieces <= 2 ? 2 : 8;
  shape.shared_bytes = RowCodes<pipe::Access::bf16, false>::shared_bytes(kept, shape.block.x);
  launch(stream.device().arch() >= Arch::sm_89 ? image_of_quantize<true>(args, w, Arch::sm_89)
                                               : image_of_quantize<false>(args, w, Arch::sm_80),
         with_pdl(shape, stream), p, stream);
  return true;
}

}  // namespace halftone
