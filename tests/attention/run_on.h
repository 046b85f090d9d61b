// A case on a GPU, real or simulated.
#pragma once
#include <cstring>

#include "attention/attention_fixture.h"
#include "halftone/simulator.h"
#include "support/named_kernel.h"

namespace halftone::test {

inline Tensor to(const Device& device, const Tensor& t) { return t.defined() ? t.to(device) : t; }

// The tensors of a case on a device; out poisoned, so that what is not written shows.
inline AttentionTensors on(const Device& device, const Case& c) {
  const AttentionProblem& p = c.problem;
  AttentionTensors t = c.tensors;
  for (Tensor* each : {&t.q, &t.k, &t.v, &t.mask, &t.sinks, &t.page_table, &t.seqused_k,
                       &t.cu_seqlens_q, &t.cu_seqlens_k}) {
    *each = to(device, *each);
  }
  const Shape shape = t.q.rank() == 4 ? Shape{t.q.size(0), t.q.size(1), p.heads, p.value_dim}
                                      : Shape{t.q.size(0), p.heads, p.value_dim};
  const Tensor out = Tensor::empty(shape, p.out);
  std::memset(const_cast<void*>(out.data()), 0xff, static_cast<size_t>(out.bytes()));
  t.out = out.to(device);
  t.lse = Tensor::zeros({p.batch, p.heads, p.query_length}, Format::f32).to(device);
  return t;
}

// Runs the case on the stream's device; the results come back to the CPU.
inline void run_on(Stream& stream, Case* c) {
  const AttentionTensors t = on(stream.device(), *c);
  run(planned(c->problem, stream.device()), t, stream);
  stream.synchronize();
  c->tensors.out = t.out.to(Device::cpu());
  c->tensors.lse = t.lse.to(Device::cpu());
}

}  // namespace halftone::test
