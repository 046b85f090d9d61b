// Greedy decoding on GPUs, host side.
#include "ops/sampling/greedy.h"

#include "hw/image.h"
#include "ops/sampling/greedy.cuh"

namespace halftone {

void greedy_step(const GreedyStep& step, Stream& stream) {
  const int64_t sequences = step.logits.size(0), vocabulary = step.logits.size(1);
  const int64_t bytes = bits(step.logits.format()) / 8;
  constexpr int64_t kStretch = LargestLogitGpu::kStretch;
  launch(hw::image_of<LargestLogitGpu>("largest_logit"),
         with_pdl({.grid = {static_cast<uint32_t>((vocabulary + kStretch - 1) / kStretch),
                            static_cast<uint32_t>(sequences), 1},
                   .block = {LargestLogitGpu::kThreads, 1, 1},
                   .shared_bytes = pipe::RowThreads::kSharedBytes},
                  stream),
         LogitRows{step.logits.data<char>(), step.logits.stride(0) * bytes,
                   step.logits.stride(1) * bytes, step.logits.format(), vocabulary, kStretch,
                   step.best.data<uint64_t>(), nullptr},
         stream);
  next_token(step, stream);
}

void next_token(const GreedyStep& step, Stream& stream) {
  constexpr uint32_t kThreads = NextTokenGpu::kThreads;
  const auto count = static_cast<uint32_t>(step.logits.size(0));
  launch(hw::image_of<NextTokenGpu>("next_token"),
         with_pdl({.grid = {(count + kThreads - 1) / kThreads, 1, 1}, .block = {kThreads, 1, 1}},
                  stream),
         NextTokenGpu::Params{
             step.best.data<uint64_t>(), step.ids.data<int32_t>(), step.positions.data<int32_t>(),
             step.lengths.data<int32_t>(), step.picked.data<int32_t>(),
             step.counts.defined() ? step.counts.data<int32_t>() : nullptr, step.logits.size(1),
             count, static_cast<uint32_t>(step.picked.size(0)), fault_reporter(stream.device())},
         stream);
}

}  // namespace halftone
