// With batch_invariant a sequence in decode has the same bits alone and among others, whose number
// decides into how many splits its keys are cut otherwise: of every architecture and head size.
#include <cstring>

#include "base/message.h"
#include "halftone/attention.h"
#include "halftone/simulator.h"
#include "support/compare.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
constexpr Arch kArchs[] = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};

struct Operands {
  Tensor q, k, v;
};

// The last `batch` sequences.
Tensor decoded(Stream& stream, const Operands& o, int64_t batch, bool invariant,
               AttentionMode mode = {F::bf16, F::bf16}) {
  const int64_t all = o.q.size(0);
  AttentionProblem p;
  p.batch = batch, p.query_length = o.q.size(1), p.heads = o.q.size(2);
  p.key_length = o.k.size(1), p.kv_heads = o.k.size(2), p.head_dim = o.q.size(3);
  p.k = mode.qk, p.v = mode.pv, p.mode = mode;
  p.causal = true, p.batch_invariant = invariant;
  const Device& device = stream.device();
  const auto last = [&](const Tensor& t) { return t.slice(0, all - batch, all).to(device); };
  AttentionTensors t;
  t.q = last(o.q), t.k = last(o.k), t.v = last(o.v);
  t.out = Tensor::empty(t.q.shape(), F::bf16, device);
  run(plan(p, device), t, stream);
  stream.synchronize();
  return t.out.to(Device::cpu());
}
bool ends_with(const Tensor& all, const Tensor& some) {
  return std::memcmp(all.data<char>() + all.bytes() - some.bytes(), some.data(),
                     static_cast<size_t>(some.bytes())) == 0;
}
Operands operands(int64_t batch, int64_t keys, int64_t heads, int64_t kv_heads, int64_t dim) {
  return {random_tensor({batch, 1, heads, dim}, F::bf16, 1),
          random_tensor({batch, keys, kv_heads, dim}, F::bf16, 2),
          random_tensor({batch, keys, kv_heads, dim}, F::bf16, 3)};
}

TEST(AttentionBatchInvariance, DecodeAloneAndAmongOthers) {
  for (const Arch arch : kArchs) {
    Stream stream(Device::simulator(arch), 1);
    configure(stream, {.numerics = SimulatorOptions::Numerics::fast});
    for (const int64_t dim : {64, 80, 128, 256}) {
      if (kSanitized && dim != 128) continue;
      SCOPED_TRACE(concat(name(arch), ", head size ", dim));
      const Operands o = operands(9, 1100, 4, 1, dim);
      const Tensor all = decoded(stream, o, 9, true);
      for (const int64_t batch : {1, 2, 5}) {
        EXPECT_TRUE(ends_with(all, decoded(stream, o, batch, true))) << batch;
      }
    }
  }
}

TEST(AttentionBatchInvariance, TheDefaultDependsOnTheBatch) {
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    Stream stream(Device::simulator(arch), 1);
    const Operands o = operands(40, 1500, 32, 8, 128);
    EXPECT_FALSE(ends_with(decoded(stream, o, 40, false), decoded(stream, o, 1, false)))
        << name(arch);
  }
}

}  // namespace
}  // namespace halftone::test
