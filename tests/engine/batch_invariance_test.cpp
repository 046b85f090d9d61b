// With SessionOptions::batch_invariant a sequence's logits are the same bits alone and among
// others, behind the prompt and behind every token after it.
#include "engine/support/memory_model.h"
#include "halftone/simulator.h"

namespace halftone {
namespace {

using test::make_model;

// Of the last of so many sequences.
std::vector<float> logits(const test::MemoryCheckpoint& checkpoint, const char* weights,
                          const Device& device, int64_t sequences, bool invariant) {
  SessionOptions options;
  options.kv = Format::bf16, options.activations = Format::bf16, options.threads = 1;
  options.max_length = 16, options.sequences = sequences, options.batch_invariant = invariant;
  Session session(make_model(checkpoint, weights, device), options);
  const int64_t vocabulary = session.model().config().vocabulary;
  std::vector<float> all;
  const auto append = [&](int64_t first, int64_t count) {
    // Every sequence has tokens of its own, the last the same in every batch.
    std::vector<int32_t> tokens;
    for (int64_t s = sequences - 1; s >= 0; --s) {
      for (int64_t i = first; i < first + count; ++i) {
        tokens.push_back(static_cast<int32_t>((i * 31 + s * 7 + 3) % vocabulary));
      }
    }
    const std::span<const float> rows = session.forward(tokens);
    all.insert(all.end(), rows.end() - vocabulary, rows.end());
  };
  append(0, 5);
  append(5, 1);
  append(6, 1);
  return all;
}

TEST(EngineBatchInvariance, SequencesAloneAndAmongOthers) {
  const char* devices[] = {"sim:sm_80",   "sim:sm_89",   "sim:sm_90a",
                           "sim:sm_100a", "sim:sm_120a", "cpu"};
  for (const char* name : devices) {
    const Device device = Device::parse(name);
    for (const bool sparse : {false, true}) {
      SCOPED_TRACE(std::string(name) + (sparse ? ", experts" : ""));
      const test::MemoryCheckpoint checkpoint =
          test::random_checkpoint(sparse ? test::small_moe_config() : test::small_config());
      const std::vector<float> one = logits(checkpoint, "bf16", device, 1, true);
      // 3 sequences are few rows to the default's choice, 20 are many; both take long to simulate.
      const int64_t among = device.is_cpu() || device.arch() == Arch::sm_90a ? 20 : 3;
      EXPECT_EQ(logits(checkpoint, "bf16", device, among, true), one);
    }
  }
}

TEST(EngineBatchInvariance, TheDefaultDependsOnTheBatch) {
  const Device device = Device::simulator(Arch::sm_90a);
  const test::MemoryCheckpoint checkpoint = test::random_checkpoint(test::small_config());
  EXPECT_NE(logits(checkpoint, "bf16", device, 20, false),
            logits(checkpoint, "bf16", device, 1, false));
}

}  // namespace
}  // namespace halftone
