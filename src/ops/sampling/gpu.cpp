#include "ops/sampling/gpu.h"

#include <algorithm>
#include <vector>

#include "base/device_memory.h"
#include "base/message.h"
#include "hw/image.h"
#include "ops/sampling/gpu.cuh"

namespace halftone {

void largest_logits_gpu(const Tensor& logits, std::span<SampledToken> tokens, Stream& stream) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  require(vocabulary > 0, "sampling: logits are empty");
  require(rows <= 65535, "sampling: ", rows, " rows; a GPU takes at most 65535 at a time");
  require(vocabulary < int64_t{1} << 31, "sampling: the vocabulary of ", vocabulary,
          " is above 2^31 - 1 tokens");
  constexpr int64_t kStretch = LargestLogitGpu::kStretch;
  const int64_t blocks = (vocabulary + kStretch - 1) / kStretch;
  const Tensor found = Tensor::zeros({rows * (1 + blocks)}, Format::i64, stream.device());
  const int64_t bytes = bits(logits.format()) / 8;
  const LogitRows p{logits.data<char>(),
                    logits.stride(0) * bytes,
                    logits.stride(1) * bytes,
                    logits.format(),
                    vocabulary,
                    kStretch,
                    found.data<uint64_t>(),
                    found.data<double>() + rows};
  const Dim3 grid{static_cast<uint32_t>(blocks), static_cast<uint32_t>(rows), 1};
  launch(hw::image_of<LargestLogitGpu>("largest_logit"),
         {.grid = grid,
          .block = {LargestLogitGpu::kThreads, 1, 1},
          .shared_bytes = pipe::RowThreads::kSharedBytes},
         p, stream);
  launch(hw::image_of<LogitSumGpu>("logit_sum"),
         {.grid = grid,
          .block = {LogitSumGpu::kThreads, 1, 1},
          .shared_bytes = LogitSumGpu::kSharedBytes},
         p, stream);
  const Tensor host = Tensor::empty(found.shape(), Format::i64);
  copy(found, host, stream);
  stream.synchronize();
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t best = host.data<uint64_t>()[row];
    const int64_t token = pipe::index_of_key(best);
    const float largest = pipe::number_of_key(best);
    require(largest < __builtin_huge_valf(), "sampling: logits[", token, "] is ", largest,
            "; only finite values and -inf have a meaning");
    require(largest > -__builtin_huge_valf(),
            "sampling: every logit is -inf; at least one token must be possible");
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sum += host.data<double>()[rows + row * blocks + i];
    tokens[static_cast<size_t>(row)] = {static_cast<int32_t>(token),
                                        static_cast<float>(-portable_log(sum))};
  }
}

}  // namespace halftone
