#include "ops/moe/gpu_grouped.h"

#include "base/message.h"
#include "ops/gemm/sm90/small_m/launch.h"

namespace halftone::experts {

GroupedGemm::GroupedGemm(const gemm::XSpec& spec, const gemm::Sm90Problem& problem,
                         const Device& device)
    : weight(gemm::gpu_weight(spec, problem.weight, problem.scaled, problem.scaling)),
      x(spec, weight, problem.k),
      sm90(problem) {
  // A row or two for each of a few experts: blocks of 16 rows of W spread over the chip, tiles of
  // 128 do not fill it.
  constexpr int64_t kFew = 16;
  const bool sm90a = device.arch() == Arch::sm_90a;
  dozens = sm90a && takes_sm90_grouped_small_m(sm90, weight, x);
  // The kernel for few rows is the faster one while few experts have any, and takes more formats.
  few = sm90a && takes_sm90_grouped_gemv(sm90, weight, x) &&
        (!dozens || sm90.m < fewest_rows_sm90_grouped_small_m(sm90, weight));
  one_small_m = sm90a && sm90.experts == 0 && refuse_sm90_small_m(sm90, weight, x).empty();
  hopper = sm90a && sm90.m >= kFew && refuse_sm90(sm90, weight, x).empty();
  const int64_t average = sm90.experts > 0 ? gemm::ceil_div(sm90.m, sm90.experts) : sm90.m;
  many = !gemm::fits_gemv(average * x.terms());
  chunk_rows = gemm::rows_of_chunk(x.terms(), many, average);
}

GroupedGemm::Choice GroupedGemm::choose(const gemm::GpuLayout& layout,
                                        const gemm::Sm90Matrices& matrices, const Tensor& given,
                                        bool copied) const {
  Choice c;
  c.few = few && fits_sm90_grouped_gemv(weight, layout, matrices, given);
  const Tensor as_given = copied ? Tensor() : given;
  c.dozens = !c.few && dozens && fits_sm90_grouped_small_m(weight, layout, matrices, as_given);
  c.hopper =
      !c.few && !c.dozens && hopper && fits_sm90(sm90, weight, x, layout, matrices, as_given);
  if (sm90.experts == 0) return c;
  c.chunk_rows = c.few      ? chunk_rows_sm90_grouped_gemv(sm90, weight)
                 : c.dozens ? chunk_rows_sm90_grouped_small_m(sm90)
                 : c.hopper ? chunk_rows_sm90(sm90, weight, x)
                            : chunk_rows;
  c.max_chunks = static_cast<uint32_t>(max_chunks(c.chunk_rows));
  return c;
}

int64_t GroupedGemm::max_chunks() const {
  int64_t most = max_chunks(chunk_rows);
  if (few) most = std::max(most, max_chunks(chunk_rows_sm90_grouped_gemv(sm90, weight)));
  if (dozens) most = std::max(most, max_chunks(chunk_rows_sm90_grouped_small_m(sm90)));
  return hopper ? std::max(most, max_chunks(chunk_rows_sm90(sm90, weight, x))) : most;
}

void GroupedGemm::launch(const gemm::GpuGemm& g, const gemm::Sm90Matrices& matrices,
                         const Choice& c, Stream& stream) const {
  if (one_small_m && fits_sm90_small_m(weight, g)) {
    return launch_sm90_small_m(weight, {&g, 1}, stream);
  }
  if (c.few) return launch_sm90_grouped_gemv(sm90, weight, g, matrices, c.max_chunks, stream);
  if (c.dozens) return launch_sm90_grouped_small_m(sm90, weight, g, matrices, c.max_chunks, stream);
  if (!c.hopper) return launch_gemm(weight, g, many, c.max_chunks, stream);
  launch_sm90(sm90, weight, x, g, matrices, c.max_chunks, stream);
}

std::string GroupedGemm::describe(const Device& device) const {
  if (few) {
    return concat("parts of up to ", chunk_rows_sm90_grouped_gemv(sm90, weight),
                  " rows, lines of W to each warp");
  }
  if (dozens) {
    return concat("tiles of 128 x ", chunk_rows_sm90_grouped_small_m(sm90), ", codes in order");
  }
  return hopper ? describe_sm90(sm90, weight, x, properties(device).sm_count)
                : concat("parts of ", chunk_rows, " rows");
}

}  // namespace halftone::experts
