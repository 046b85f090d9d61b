// Work whose parts need nothing of each other.
#pragma once
#include <initializer_list>

#include "base/function_ref.h"
#include "halftone/stream.h"

namespace halftone {

// While the stream is captured the parts become branches of the graph, which run at once, so they
// may not share memory for intermediate results either; otherwise one runs after the other.
void run_beside(Stream&, std::initializer_list<FunctionRef<void(Stream&)>> parts);

}  // namespace halftone
