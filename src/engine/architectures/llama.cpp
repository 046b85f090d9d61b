// Llama 2 and 3, and what kept their shape (TinyLlama, SmolLM, Llama Guard 3, Yi, ...).
#include "engine/model/architecture.h"

namespace halftone {

const Architecture kLlama = {"LlamaForCausalLM", "llama"};

}  // namespace halftone
