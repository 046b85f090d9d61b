// Sampling on GPUs, host side: which kernels a batch needs, and the launches.
#include "ops/sampling/draw.h"

#include <algorithm>

#include "base/device_memory.h"
#include "base/message.h"
#include "hw/image.h"
#include "ops/sampling/draw.cuh"

namespace halftone {

namespace {

constexpr int64_t kStretch = DrawParams::kStretch;

int64_t stretches_of(int64_t vocabulary) { return (vocabulary + kStretch - 1) / kStretch; }

Tensor zeros(int64_t bytes, const Device& device) {
  return Tensor::zeros({(bytes + 7) / 8}, Format::i64, device);
}

template <class T>
void upload(std::span<const T> from, const Tensor& to, Stream& stream) {
  copy(Tensor::view(const_cast<T*>(from.data()), to.shape(), Format::i64), to, stream);
  stream.synchronize();
}

}  // namespace

TokenDraw::TokenDraw(int64_t rows, int64_t vocabulary, const Device& device)
    : vocabulary_(vocabulary),
      rows_(zeros(rows * int64_t{sizeof(DrawRow)}, device)),
      largest_(Tensor::zeros({rows}, Format::i64, device)),
      chosen_(Tensor::zeros({rows}, Format::i64, device)),
      keys_(zeros(rows * stretches_of(vocabulary) * kStretch * 4, device)),
      best_(zeros(rows * 2 * 8, device)),
      bins_(zeros(rows * DrawParams::kBins * 8, device)),
      weighed_(zeros(rows * int64_t{sizeof(WeightSums)}, device)),
      counters_(zeros(rows * 4, device)),
      list_counts_(zeros(rows * 4, device)),
      few_(zeros(rows * 4, device)),
      listed_(zeros(rows * DrawParams::kFew * 8, device)),
      cuts_(zeros(rows * DrawParams::kFilters * int64_t{sizeof(Cut)}, device)),
      means_(zeros(rows * 8, device)),
      sums_(zeros(rows * stretches_of(vocabulary) * 8, device)) {}

void TokenDraw::set(std::span<const DrawRow> rows, std::span<const TokenAdjustment> adjustments,
                    Stream& stream) {
  const auto any = [&](auto asks) { return std::any_of(rows.begin(), rows.end(), asks); };
  stages_.top_k = any([](const DrawRow& r) { return r.top_k > 0; });
  stages_.top_p = any([](const DrawRow& r) { return r.top_p < 1; });
  stages_.typical = any([](const DrawRow& r) { return r.typical_p < 1; });
  stages_.adjusts = !adjustments.empty() || any([](const DrawRow& r) {
    return r.repetition != 1 || r.frequency != 0 || r.presence != 0;
  });
  upload(rows, rows_, stream);
  if (!stages_.adjusts) return;
  if (!counts_.defined()) {
    counts_ = Tensor::empty({largest_.size(0), vocabulary_}, Format::i32, stream.device());
    bias_ = Tensor::empty({largest_.size(0), vocabulary_}, Format::f32, stream.device());
  }
  for (const Tensor* t : {&counts_, &bias_}) {
    fill_memory(stream.device(), t->data(), 0, static_cast<size_t>(t->bytes()), &stream);
  }
  if (adjustments.empty()) return;
  const auto entries = static_cast<int64_t>(adjustments.size());
  const Tensor list = zeros(entries * int64_t{sizeof(TokenAdjustment)}, stream.device());
  upload(adjustments, list, stream);
  constexpr uint32_t kThreads = AdjustTokensGpu::kThreads;
  launch(hw::image_of<AdjustTokensGpu>("adjust_tokens"),
         {.grid = {static_cast<uint32_t>((entries + kThreads - 1) / kThreads), 1, 1},
          .block = {kThreads, 1, 1}},
         AdjustTokensGpu::Params{list.data<TokenAdjustment>(), entries, vocabulary_,
                                 counts_.data<int32_t>(), bias_.data<float>()},
         stream);
  stream.synchronize();  // the list goes out of scope
}

void TokenDraw::run(const Tensor& logits, Stream& stream) const {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  const int64_t bytes = bits(logits.format()) / 8;
  DrawParams p{};
  p.logits = {logits.data<char>(),
              logits.stride(0) * bytes,
              logits.stride(1) * bytes,
              logits.format(),
              vocabulary,
              kStretch,
              nullptr,
              nullptr};
  p.rows = rows_.data<DrawRow>();
  if (stages_.adjusts) p.counts = counts_.data<int32_t>(), p.bias = bias_.data<float>();
  p.best = best_.data<uint64_t>(), p.keys = keys_.data<uint32_t>();
  p.bins = bins_.data<uint64_t>(), p.cuts = cuts_.data<Cut>();
  p.weighed = weighed_.data<WeightSums>(), p.means = means_.data<double>();
  p.sums = sums_.data<uint64_t>(), p.counters = counters_.data<uint32_t>();
  p.largest = largest_.data<uint64_t>(), p.chosen = chosen_.data<uint64_t>();
  p.few = few_.data<Few>(), p.listed = listed_.data<uint64_t>();
  p.list_counts = list_counts_.data<uint32_t>();
  p.bits = weight_bits(static_cast<uint64_t>(vocabulary));
  // As many CTAs as are resident at a time, where rows have more segments than that; parts of
  // weights are summed in 32 bits over at most 16 of them.
  const int64_t stretches = stretches_of(vocabulary);
  const int64_t blocks = int64_t{properties(stream.device()).sm_count} * DrawParams::kResident;
  const int64_t each = std::clamp<int64_t>((rows * stretches + blocks - 1) / blocks, 1, 16);
  p.stretches = static_cast<uint32_t>(stretches);
  p.block_stretches = static_cast<uint32_t>(each);
  const auto start = [&](const KernelImage& kernel, uint32_t shared_bytes) {
    launch(kernel,
           with_pdl({.grid = {static_cast<uint32_t>((stretches + each - 1) / each),
                              static_cast<uint32_t>(rows), 1},
                     .block = {DrawParams::kThreads, 1, 1},
                     .shared_bytes = shared_bytes},
                    stream),
           p, stream);
  };
  constexpr uint32_t kFew = DrawBlock::kScratchBytes, kSearch = DrawBlock::kSharedBytes;
  const auto search = [&](Filter filter, uint32_t first_level) {
    p.filter = filter;
    for (p.level = first_level; p.level < DrawParams::kLevels; ++p.level) {
      start(hw::image_of<SearchTokensGpu>("search_tokens"), kSearch);
    }
    if (filter != Filter::top_k) start(hw::image_of<CutTiesGpu>("cut_ties"), kFew);
  };
  start(hw::image_of<ScoreTokensGpu>("score_tokens"), stages_.top_k ? kSearch : kFew);
  if (stages_.top_k) search(Filter::top_k, 1);
  if (stages_.top_p) search(Filter::top_p, 0);
  if (stages_.typical) {
    p.level = TokensLeft::kMeanLevel;
    start(hw::image_of<MeanDistanceGpu>("mean_distance"), kFew);
    search(Filter::typical, 0);
  }
  start(hw::image_of<DrawTokenGpu>("draw_token"), kFew);
}

int64_t TokenDraw::bytes() const {
  int64_t total = 0;
  for (const Tensor* t :
       {&rows_, &largest_, &chosen_, &keys_, &counts_, &bias_, &best_, &bins_, &weighed_,
        &counters_, &list_counts_, &few_, &listed_, &cuts_, &means_, &sums_}) {
    if (t->defined()) total += t->bytes();
  }
  return total;
}

}  // namespace halftone
