#include "halftone/nms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "nms/scene.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Scene;
using test::scene;

TEST(Nms, EqualsTheDefinitionAtEveryLevel) {
  test::at_every_level([] {
    for (const int64_t n : {0, 1, 2, 15, 17, 200, 700}) {
      const Scene s = scene(n, static_cast<uint64_t>(n));
      // Not a ratio of small whole numbers, so that f32 and FP64 agree on every pair.
      for (const float threshold : {0.0f, 0.3f, 0.512345f, 0.9f, 1.0f}) {
        EXPECT_TRUE(test::same_bits(nms(s.boxes, s.scores, threshold),
                                    nms_reference(s.boxes, s.scores, threshold)))
            << n << " boxes, " << threshold;
        EXPECT_TRUE(test::same_bits(nms(s.boxes, s.scores, threshold, s.classes, 0.2f),
                                    nms_reference(s.boxes, s.scores, threshold, s.classes, 0.2f)));
      }
    }
  });
}

// A box that was itself suppressed must not suppress: the order matters, which a parallel pass
// over all pairs loses.
TEST(Nms, ASuppressedBoxSuppressesNobody) {
  test::at_every_level([] {
    const Tensor boxes = Tensor::from({0, 0, 10, 10, 4, 0, 14, 10, 8, 0, 18, 10}, {3, 4});
    const Tensor scores = Tensor::from({0.9f, 0.8f, 0.7f}, {3});
    const Tensor keep = nms(boxes, scores, 0.4f);  // each overlaps the next by 6 / 14
    ASSERT_EQ(keep.numel(), 2);
    EXPECT_EQ(keep.data<int64_t>()[0], 0);
    EXPECT_EQ(keep.data<int64_t>()[1], 2);
    const Tensor same = nms(boxes, Tensor::from({0.5f, 0.5f, 0.5f}, {3}), 1.0f);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(same.data<int64_t>()[i], i);  // ties by index
  });
}

TEST(Nms, FormatsAndStrides) {
  const Scene s = scene(300, 7);
  for (const Format format : {Format::f16, Format::bf16}) {
    const Tensor boxes = convert(s.boxes, format), scores = convert(s.scores, format);
    EXPECT_TRUE(
        test::same_bits(nms(boxes, scores, 0.512345f), nms_reference(boxes, scores, 0.512345f)));
  }
  const Tensor turned = s.boxes.transpose(0, 1).contiguous_copy().transpose(0, 1);
  EXPECT_TRUE(test::same_bits(nms(turned, s.scores, 0.3f), nms(s.boxes, s.scores, 0.3f)));
  EXPECT_FALSE(test::same_bits(nms(s.boxes, s.scores, 0.3f), nms(s.boxes, s.scores, 0.35f)));
}

TEST(Nms, WrongArgumentsAreNamed) {
  Scene s = scene(10, 8);
  test::expect_error([&] { nms(s.boxes, s.scores.slice(0, 0, 9), 0.5f); }, {"scores", "[10]"});
  test::expect_error([&] { nms(s.boxes.reshape({40}), s.scores, 0.5f); }, {"boxes", "[n, 4]"});
  test::expect_error([&] { nms(s.boxes, s.scores, 1.5f); }, {"iou_threshold is 1.5"});
  s.scores.data<float>()[3] = NAN;
  test::expect_error([&] { nms(s.boxes, s.scores, 0.5f); }, {"scores[3] is nan"});
  s.scores.data<float>()[3] = 1;
  s.boxes.data<float>()[4 * 6 + 2] = -1;
  test::expect_error([&] { nms(s.boxes, s.scores, 0.5f); }, {"boxes[6]", "x1 <= x2"});
  EXPECT_NE(describe(plan(NmsProblem{4}, Device::cpu())).find("nms_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
