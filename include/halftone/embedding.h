// Embedding lookup: rows of a table in any weight format.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct EmbeddingProblem {
  int64_t tokens = 0, vocabulary = 0, columns = 0;
  Format table = Format::bf16;  // any weight format
  Scaling scaling{};
  bool scaled = false;
  Format out = Format::bf16;  // f32, f16, bf16
};
struct EmbeddingTensors {
  // i32 or i64 [tokens]. An index outside the table is an Error; on a GPU its row is zeros and the
  // next Stream::synchronize throws the Error.
  Tensor ids;
  Tensor table;  // [vocabulary, columns]
  Tensor out;    // [tokens, columns]
};
struct EmbeddingKernel;
struct EmbeddingPlan {
  EmbeddingProblem problem;
  Device device;
  const EmbeddingKernel* kernel = nullptr;
};
std::string describe(const EmbeddingPlan&);
Support can_run(const EmbeddingProblem&, const Device&);
EmbeddingPlan plan(const EmbeddingProblem&, const Device&);
void run(const EmbeddingPlan&, const EmbeddingTensors&, Stream&);
Tensor embedding(const Tensor& ids, const Tensor& table, Format out = Format::bf16,
                 Stream& = Stream::default_stream());
// Every element from its code and scales in FP64 -> f32; scales in the linear layout.
Tensor embedding_reference(const Tensor& ids, const Tensor& table);

}  // namespace halftone
