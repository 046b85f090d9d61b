// Writes text with a model, as it comes: generate MODEL PROMPT [WEIGHTS [KV]]
//   build/release/examples/generate examples/models/bard "ROMEO:" nvfp4 fp8
#include <cstdio>
#include <exception>

#include "halftone/engine.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT [WEIGHTS [KV]]\n", argv[0]);
    return 2;
  }
  try {
    halftone::LoadOptions load;
    load.weights = argc > 3 ? argv[3] : "";  // "": as the checkpoint stores them
    const auto model = halftone::Model::load(argv[1], load);

    halftone::SessionOptions options;
    options.kv = halftone::parse_format(argc > 4 ? argv[4] : "bf16");
    halftone::Session session(model, options);

    halftone::GenerateOptions generation;
    generation.max_new_tokens = 100;
    generation.sampling = {.temperature = 0.8f, .top_k = 40, .seed = 1};
    const auto result = halftone::generate(session, argv[2], generation, [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    std::fprintf(stderr, "\n%s: %.0f tokens/s\n", model->describe().c_str(),
                 static_cast<double>(result.tokens.size()) / result.generate_seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
