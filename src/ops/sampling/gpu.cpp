// Largest logit and log-sum-exp on GPUs, host side.
#include "ops/sampling/gpu.h"

#include <algorithm>
#include <vector>

#include "base/device_memory.h"
#include "base/message.h"
#include "hw/image.h"
#include "ops/sampling/gpu.cuh"

namespace halftone {

void sample_rows_gpu(const Tensor& logits, std::span<const DrawRow> draws,
                     std::span<const TokenAdjustment> adjustments, std::span<SampledToken> tokens,
                     Stream& stream) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  require(vocabulary > 0, "sampling: logits are empty");
  require(rows <= 65535, "sampling: ", rows, " rows; a GPU takes at most 65535 at a time");
  require(vocabulary < int64_t{1} << 31, "sampling: the vocabulary of ", vocabulary,
          " is above 2^31 - 1 tokens");
  constexpr int64_t kStretch = LargestLogitGpu::kStretch;
  const int64_t blocks = (vocabulary + kStretch - 1) / kStretch;
  TokenDraw draw(rows, vocabulary, stream.device());
  draw.set(draws, adjustments, stream);
  draw.run(logits, stream);
  const Tensor sums = Tensor::empty({rows * blocks}, Format::i64, stream.device());
  const int64_t bytes = bits(logits.format()) / 8;
  launch(hw::image_of<LogitSumGpu>("logit_sum"),
         with_pdl({.grid = {static_cast<uint32_t>(blocks), static_cast<uint32_t>(rows), 1},
                   .block = {LogitSumGpu::kThreads, 1, 1},
                   .shared_bytes = LogitSumGpu::kSharedBytes},
                  stream),
         LogitRows{logits.data<char>(), logits.stride(0) * bytes, logits.stride(1) * bytes,
                   logits.format(), vocabulary, kStretch, draw.largest().data<uint64_t>(),
                   sums.data<double>()},
         stream);
  stream.synchronize();
  const Tensor host_sums = sums.to(Device::cpu()), largest = draw.largest().to(Device::cpu());
  const Tensor chosen = draw.chosen().to(Device::cpu());
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t best = largest.data<uint64_t>()[row], taken = chosen.data<uint64_t>()[row];
    const float highest = pipe::number_of_key(best), logit = pipe::number_of_key(taken);
    require(highest < __builtin_huge_valf(), "sampling: logits[", pipe::index_of_key(best), "] is ",
            highest, "; only finite values and -inf have a meaning");
    require(highest > -__builtin_huge_valf() && !(logit == -__builtin_huge_valf()),
            "sampling: every logit is -inf; at least one token must be possible");
    const auto at = static_cast<size_t>(row);
    require(logit == logit, "sampling: temperature is ", draws[at].temperature,
            ", so small that a logit overflows; use 0 for greedy");
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sum += host_sums.data<double>()[row * blocks + i];
    tokens[at] = {static_cast<int32_t>(pipe::index_of_key(taken)),
                  static_cast<float>(double{logit} - double{highest} - portable_log(sum))};
  }
}

}  // namespace halftone
