// A plan leaves nothing for the first run to wait for: no compilation, no loading of code.
#include <chrono>
#include <cstdio>

#include "attention/sm80/cases.h"
#include "cuda/gpu.h"

namespace halftone::test {
namespace {

class AttentionStartUp : public Gpu {};

TEST_F(AttentionStartUp, TheFirstRunTakesAtMostTwoMillisecondsMoreThanTheSecond) {
  Stream stream(device);
  const auto timed = [&](const auto& body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    stream.synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  for (const AttentionMode& mode : attention_modes()) {
    for (const int64_t queries : {200, 1}) {
      const Case c = make_case({1, queries, 1300, 4, 2, 128}, mode, 1);
      const AttentionTensors t = on(device, c);
      AttentionPlan planned;
      const double planning = timed([&] { planned = plan(c.problem, device); });
      const double first = timed([&] { run(planned, t, stream); });
      const double second = timed([&] { run(planned, t, stream); });
      std::printf("%s, %d queries: plan %.3f ms, first run %.3f, second %.3f\n",
                  to_string(mode).c_str(), static_cast<int>(queries), planning, first, second);
      EXPECT_LT(first - second, 2.0) << describe(planned);
    }
  }
}

}  // namespace
}  // namespace halftone::test
