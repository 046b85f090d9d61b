#include "ops/sampling/draw.h"

#include <algorithm>

#include "base/device_memory.h"
#include "hw/image.h"
#include "ops/sampling/draw.cuh"

namespace halftone {

namespace {

constexpr int64_t kStretch = DrawParams::kStretch;
static_assert(kStretch == LargestLogitGpu::kStretch, "both share a row among as many blocks");

int64_t stretches_of(int64_t vocabulary) { return (vocabulary + kStretch - 1) / kStretch; }

Tensor of_bytes(int64_t bytes, const Device& device) {
  return Tensor::zeros({bytes / 8}, Format::i64, device);
}

}  // namespace

TokenDraw::TokenDraw(int64_t rows, int64_t vocabulary, const Device& device)
    : rows_(of_bytes(rows * int64_t{sizeof(DrawRow)}, device)),
      largest_(Tensor::zeros({rows}, Format::i64, device)),
      chosen_(Tensor::zeros({rows}, Format::i64, device)),
      weights_(Tensor::empty({rows * vocabulary}, Format::i64, device)),
      keys_(Tensor::empty({rows * vocabulary}, Format::i32, device)),
      bins_(of_bytes(rows * 2 * DrawParams::kLevels * DrawParams::kBins * 8, device)),
      states_(of_bytes(rows * 2 * DrawParams::kLevels * int64_t{sizeof(SearchState)}, device)),
      stretches_(of_bytes(rows * stretches_of(vocabulary) * int64_t{sizeof(Share)}, device)) {}

void TokenDraw::set(std::span<const DrawRow> rows, Stream& stream) {
  top_k_ = std::any_of(rows.begin(), rows.end(), [](const DrawRow& r) { return r.top_k > 0; });
  top_p_ = std::any_of(rows.begin(), rows.end(), [](const DrawRow& r) { return r.top_p < 1; });
  copy(Tensor::view(const_cast<DrawRow*>(rows.data()), rows_.shape(), Format::i64), rows_, stream);
  stream.synchronize();
}

void TokenDraw::run(const Tensor& logits, Stream& stream) const {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  const int64_t bytes = bits(logits.format()) / 8, stretches = stretches_of(vocabulary);
  DrawParams p{{logits.data<char>(), logits.stride(0) * bytes, logits.stride(1) * bytes,
                logits.format(), vocabulary, kStretch, largest_.data<uint64_t>(), nullptr},
               rows_.data<DrawRow>(),
               weights_.data<uint64_t>(),
               keys_.data<uint32_t>(),
               bins_.data<uint64_t>(),
               states_.data<SearchState>(),
               stretches_.data<Share>(),
               chosen_.data<uint64_t>(),
               static_cast<uint32_t>(stretches),
               weight_bits(static_cast<uint64_t>(vocabulary)),
               Filter::top_k,
               0};
  constexpr uint32_t kThreads = DrawBlock::kThreads;
  const Dim3 grid{static_cast<uint32_t>(stretches), static_cast<uint32_t>(rows), 1};
  const auto clear = [&](const Tensor& t) {
    fill_memory(stream.device(), t.data(), 0, static_cast<size_t>(t.bytes()), &stream);
  };
  clear(largest_);
  if (top_k_ || top_p_) clear(bins_);
  launch(hw::image_of<LargestLogitGpu>("largest_logit"),
         {.grid = grid,
          .block = {LargestLogitGpu::kThreads, 1, 1},
          .shared_bytes = pipe::RowThreads::kSharedBytes},
         p.logits, stream);
  launch(hw::image_of<WeighTokensGpu>("weigh_tokens"), {.grid = grid, .block = {kThreads, 1, 1}}, p,
         stream);
  for (const Filter filter : {Filter::top_k, Filter::top_p}) {
    if (!(filter == Filter::top_k ? top_k_ : top_p_)) continue;
    p.filter = filter;
    for (p.level = 0; p.level < DrawParams::kLevels; ++p.level) {
      launch(
          hw::image_of<SearchTokensGpu>("search_tokens"),
          {.grid = grid, .block = {kThreads, 1, 1}, .shared_bytes = SearchTokensGpu::kSharedBytes},
          p, stream);
    }
  }
  launch(hw::image_of<ShareTokensGpu>("share_tokens"),
         {.grid = grid, .block = {kThreads, 1, 1}, .shared_bytes = DrawBlock::kScratchBytes}, p,
         stream);
  launch(hw::image_of<DrawTokenGpu>("draw_token"),
         {.grid = {static_cast<uint32_t>(rows), 1, 1},
          .block = {kThreads, 1, 1},
          .shared_bytes = DrawBlock::kScratchBytes},
         p, stream);
}

int64_t TokenDraw::bytes() const {
  int64_t total = 0;
  for (const Tensor* t :
       {&rows_, &largest_, &chosen_, &weights_, &keys_, &bins_, &states_, &stretches_}) {
    if (t->defined()) total += t->bytes();
  }
  return total;
}

}  // namespace halftone
