// Non-maximum suppression on GPUs: the CPU's choice.
#include "halftone/nms.h"

#include "nms/scene.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;
using test::scene;
using test::Scene;

class NmsOnDevice : public OnDevice {};

TEST_P(NmsOnDevice, KeepsWhatTheCpuKeeps) {
  for (const int64_t n : {0, 1, 2, 17, 300}) {
    const Scene s = scene(n, static_cast<uint64_t>(n));
    const Tensor boxes = s.boxes.to(device), scores = s.scores.to(device);
    for (const float threshold : {0.0f, 0.512345f, 1.0f}) {
      for (const bool classes : {false, true}) {
        const Tensor here = classes ? s.classes : Tensor();
        const Tensor there = classes ? s.classes.to(device) : Tensor();
        Stream on = stream();
        EXPECT_TRUE(same_bits(
            nms(boxes, scores, threshold, there, 0.2f, on).to(Device::cpu()).contiguous_copy(),
            nms(s.boxes, s.scores, threshold, here, 0.2f).contiguous_copy()))
            << n << " boxes, threshold " << threshold;
      }
    }
  }
}

TEST_P(NmsOnDevice, SameChoiceInAnyOrder) {
  const Scene s = scene(60, 7);
  const Tensor keep = Tensor::zeros({60}, Format::i64, device);
  const Tensor count = Tensor::zeros({1}, Format::i64, device);
  const NmsTensors t{s.boxes.to(device), s.scores.to(device), keep, count};
  const NmsPlan p = plan(NmsProblem{.boxes = 60, .iou_threshold = 0.3f}, device);
  expect_any_order(keep, [&](Stream& on) { run(p, t, on); });
}

TEST_P(NmsOnDevice, WrongBoxesAreReported) {
  const auto fails = [&](int64_t at, float value, bool score, const char* word) {
    const Scene s = scene(9, 3);
    const Tensor& t = score ? s.scores : s.boxes;
    t.data<float>()[at] = value;
    Stream on = stream();
    test::expect_error([&] { nms(s.boxes.to(device), s.scores.to(device), 0.5f, {}, -1, on); },
                       {word});
  };
  fails(4, NAN, true, "scores[4]");
  fails(8, 1000, false, "boxes[2]");
  fails(20, INFINITY, false, "boxes[5]");
}

TEST_P(NmsOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const Scene s = scene(draw.extent(simulated() ? 60 : 400), seed);
    const float threshold = static_cast<float>(draw.below(64)) / 64;
    const float score = static_cast<float>(draw.below(30)) / 64;
    const bool classes = draw.one_in(2);
    Stream on = stream();
    const Tensor there = nms(s.boxes.to(device), s.scores.to(device), threshold,
                             classes ? s.classes.to(device) : Tensor(), score, on);
    EXPECT_TRUE(same_bits(there.to(Device::cpu()).contiguous_copy(),
                          nms(s.boxes, s.scores, threshold, classes ? s.classes : Tensor(), score)
                              .contiguous_copy()));
  });
}

HALFTONE_ON_DEVICES(NmsOnDevice);

}  // namespace
}  // namespace halftone
