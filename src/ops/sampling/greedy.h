// Greedy decoding on a GPU without the host.
#pragma once
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// All on one GPU; i32 but for the logits.
struct GreedyStep {
  Tensor logits;              // [sequences, vocabulary] f32, f16 or bf16
  Tensor ids;                 // [sequences]: becomes the largest logit's token, ties to the lower
  Tensor positions, lengths;  // [sequences]: one more each
  Tensor picked;  // [slots, sequences]: row `position % slots` becomes the tokens; -1 and a fault
                  // of the stream where no logit is finite, or one is NaN or infinite
  Tensor best;    // i64 [sequences], zeros between calls
  Tensor counts;  // i32 [sequences, vocabulary] or undefined: one more of each token
};
// Asynchronous and capturable.
void greedy_step(const GreedyStep&, Stream&);
// Its second half: `best` has the keys (pipe/order_key.h) of the tokens already.
void next_token(const GreedyStep&, Stream&);

}  // namespace halftone
