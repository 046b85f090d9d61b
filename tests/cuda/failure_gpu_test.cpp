// A kernel that fails takes the process's context with it, so this test has a process of its own.
#include "cuda/gpu.h"
#include "cuda/images.h"
#include "cuda/kernels.h"

namespace halftone {
namespace {

using test::Gpu;

TEST_F(Gpu, AFailingKernelIsNamed) {
  Stream stream(device);
  const Tensor out = Tensor::zeros({64}, Format::f32, device);
  launch(test::kTrap, {{1}, {32}, {}}, test::Trap::Params{}, stream);
  try {
    stream.synchronize();
    FAIL() << "the trap was not told";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device);
    const std::string text = error.what();
    for (const char* word : {"Trap", "cuda:0", "waiting for its stream"}) {
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  }
  // Everything after it is told too, with what was tried.
  test::expect_error(
      [&] {
        launch(test::kScale, {{1}, {128}, {}},
               test::Scale::Params{out.data<float>(), out.data<float>(), 64, 2}, stream);
        stream.synchronize();
      },
      {"Scale", "cuda:0"});
  test::expect_error([&] { Tensor::zeros({64}, Format::f32, device); }, {"cuda:0"});
}

}  // namespace
}  // namespace halftone
