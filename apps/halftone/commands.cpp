#include "command.h"

namespace halftone::app {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      generate_command(), quantize_command(), perplexity_command(), demo_command(),
      check_command(),    bench_command(),    info_command(),
  };
  return all;
}

}  // namespace halftone::app
