#include "command.h"

namespace halftone::app {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> list;
#if HALFTONE_HAS_ENGINE
    list = {generate_command(), chat_command(), quantize_command(), perplexity_command(),
            demo_command()};
#endif
    for (auto* command :
         {check_command, bench_command, inspect_command, simulate_command, info_command}) {
      list.push_back(command());
    }
    return list;
  }();
  return all;
}

}  // namespace halftone::app
