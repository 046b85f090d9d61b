// Embedding kernels of GPUs, host side: which instance takes a problem, and the launch.
#include "ops/embedding/gpu.cuh"

namespace halftone {

namespace {

ScaledCodes codes_of(const EmbeddingArgs& args, int64_t vocabulary) {
  ScaledCodes codes;
  codes.format = args.format, codes.scale_format = args.scale_format;
  codes.rows = vocabulary, codes.columns = args.columns;
  codes.block_rows = args.block_rows, codes.block_columns = args.block_columns;
  codes.scales = args.scales, codes.zeros = args.zero_points;
  codes.scale_row = args.scale_row_stride, codes.scale_column = args.scale_column_stride;
  codes.zero_row = args.zero_row_stride, codes.zero_column = args.zero_column_stride;
  codes.tensor_scale = args.tensor_scale_at;
  return codes;
}

bool copies(const EmbeddingArgs& args) {
  const auto places = reinterpret_cast<uintptr_t>(args.table) |
                      reinterpret_cast<uintptr_t>(args.out) |
                      static_cast<uintptr_t>(args.table_stride | args.out_stride);
  return args.format == args.out_format && places % 16 == 0 &&
         args.columns * pipe::bytes_of(args.format) % 16 == 0 && args.columns < int64_t{1} << 31;
}

// As dequantisation into the result, which has no gaps.
DequantizeArgs expanded(const EmbeddingArgs& args, const ScaledCodes& codes) {
  DequantizeArgs from;
  static_cast<ScaledCodes&>(from) = codes;
  from.codes = {const_cast<char*>(args.table), 1, args.table_stride, 0};
  from.out_format = args.out_format, from.out = args.out;
  return from;
}

template <pipe::Access kAccess>
using ExpandSm80 = EmbeddingExpandGpu<kAccess, false>;
template <pipe::Access kAccess>
using ExpandSm89 = EmbeddingExpandGpu<kAccess, true>;

}  // namespace

void embedding_gpu(const EmbeddingArgs& args, const EmbeddingRange& range, Stream& stream) {
  if (range.tokens == 0 || args.columns == 0) return;
  EmbeddingParams p{
      args,
      codes_of(args, range.vocabulary),
      {args.ids, args.id_stride, args.wide_ids, range.vocabulary, fault_reporter(stream.device())},
      range.tokens,
      pipe::threads_of_row(args.columns)};
  const DequantizeArgs from = expanded(args, p.codes);
  if (args.out_stride == args.columns * pipe::bytes_of(args.out_format) &&
      expands(from, range.tokens)) {
    const ExpandParams made = expand_params(from, range.tokens, true);
    const bool converts = stream.device().arch() >= Arch::sm_89;
    return launch(converts ? pipe::image_for_whole<ExpandSm89>(args.out_format, "embedding_expand",
                                                               Arch::sm_89)
                           : pipe::image_for_whole<ExpandSm80>(args.out_format, "embedding_expand"),
                  with_pdl(expand_shape(made), stream),
                  EmbeddingExpandGpu<pipe::Access::bf16, false>::Params{made, p.ids}, stream);
  }
  if (!copies(args)) {
    return launch(hw::image_of<EmbeddingGpu>("embedding"),
                  with_pdl(pipe::RowThreads::shape(range.tokens, p.row_threads), stream), p,
                  stream);
  }
  const int64_t each = EmbeddingCopyGpu::kPieces * 16;  // bytes of a thread
  p.row_threads = 4;
  while (p.row_threads < EmbeddingCopyGpu::kThreads &&
         p.row_threads * each < args.columns * pipe::bytes_of(args.format)) {
    p.row_threads *= 2;
  }
  launch(hw::image_of<EmbeddingCopyGpu>("embedding_copy"),
         with_pdl(pipe::RowThreads::shape(range.tokens, p.row_threads), stream), p, stream);
}

}  // namespace halftone
