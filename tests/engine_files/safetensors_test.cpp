#include "engine/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/checkpoint/safetensors_writer.h"
#include "engine_files/temp_directory.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::read_file;
using test::TempDirectory;

Tensor bytes_like(const Shape& shape, Format format, uint8_t first) {
  Tensor t = Tensor::zeros(shape, format);
  for (int64_t i = 0; i < packed_bytes(format, t.numel()); ++i) {
    t.data<uint8_t>()[i] = static_cast<uint8_t>(first + i);
  }
  return t;
}

TEST(Safetensors, WriterAndReaderAgreeForEveryFormat) {
  const TempDirectory directory;
  SafetensorsWriter writer;
  const Format formats[] = {Format::i64,      Format::f32,      Format::i32,   Format::f16,
                            Format::bf16,     Format::fp8_e4m3, Format::u8,    Format::int8,
                            Format::fp8_e5m2, Format::ue8m0,    Format::mxfp8, Format::nvfp4};
  uint8_t first = 1;
  for (const Format format : formats) {
    writer.add(name(format), bytes_like({3, 4}, format, first++));
  }
  writer.add("scalar \"quoted\"", Tensor::from({2.5f}, Shape{}));
  writer.add("nothing", Tensor::empty({0, 7}, Format::f32));
  writer.add_metadata("format", "pt");
  const std::string path = directory.file("model.safetensors");
  writer.write(path);

  const Safetensors read = Safetensors::open_directory(directory.path());
  EXPECT_EQ(read.tensors().size(), std::size(formats) + 2);
  first = 1;
  for (const Format format : formats) {
    const Tensor expected = bytes_like({3, 4}, format, first++);
    const Tensor t = read.tensor(name(format));
    const auto bytes = static_cast<size_t>(packed_bytes(format, 12));
    EXPECT_EQ(t.shape(), (bits(format) < 8 ? Shape{3, 2} : Shape{3, 4})) << name(format);
    EXPECT_EQ(std::memcmp(t.data(), expected.data(), bytes), 0) << name(format);
    const auto address = reinterpret_cast<uintptr_t>(t.data());
    EXPECT_EQ(address % static_cast<uintptr_t>(std::max(bits(format) / 8, 1)), 0u);
  }
  EXPECT_EQ(read.tensor("scalar \"quoted\"").data<float>()[0], 2.5f);
  EXPECT_EQ(read.tensor("scalar \"quoted\"").rank(), 0);
  EXPECT_EQ(read.tensor("nothing").shape(), (Shape{0, 7}));
  uint64_t header = 0;
  std::memcpy(&header, read_file(path).data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, TheSameTensorsGiveTheSameBytes) {
  const TempDirectory directory;
  const Tensor a = test::random_tensor({5, 3}, Format::f32, 1);
  const Tensor b = test::random_tensor({7}, Format::bf16, 2);
  SafetensorsWriter forward, backward;
  forward.add("a", a);
  forward.add("b", b);
  backward.add("b", b);
  backward.add("a", Format::f32, {5, 3},
               [&] { return a.transpose(0, 1).contiguous_copy().transpose(0, 1); });
  forward.write(directory.file("1"));
  backward.write(directory.file("2"));
  EXPECT_EQ(read_file(directory.file("1")), read_file(directory.file("2")));
  EXPECT_EQ(forward.total_bytes(), 5 * 3 * 4 + 7 * 2);
}

// A weight and its scales are made together; unless the scales would lie unaligned.
TEST(Safetensors, TensorsAreWrittenInTheOrderOfTheirNames) {
  const auto order = [](int64_t width) {
    const TempDirectory directory;
    SafetensorsWriter writer;
    std::string calls;
    const auto add = [&](const std::string& name, Format format, const Shape& shape) {
      writer.add(name, format, shape, [&calls, name, format, shape] {
        calls += name + " ";
        return Tensor::zeros(shape, format);
      });
    };
    add("b.weight", Format::fp8_e4m3, {2, 8});
    add("a.weight_scale_inv", Format::f32, {1});
    add("a.weight", Format::fp8_e4m3, {1, width});
    writer.write(directory.file("x"));
    const Safetensors read = Safetensors::open_file(directory.file("x"));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensor("a.weight_scale_inv").data()) % 4, 0u);
    return calls;
  };
  EXPECT_EQ(order(8), "a.weight a.weight_scale_inv b.weight ");
  EXPECT_EQ(order(7), "a.weight_scale_inv a.weight b.weight ");
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNoOther) {
  const TempDirectory directory;
  const std::string path = directory.write("model.safetensors", "old");
  SafetensorsWriter writer;
  writer.add("a", Format::f32, {2}, [] { return Tensor::zeros({3}, Format::f32); });
  test::expect_error([&] { writer.write(path); }, {"\"a\"", "[2]", "[3]"});
  EXPECT_EQ(read_file(path), "old");
  const std::filesystem::directory_iterator entries(directory.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(Safetensors, ATensorKeepsItsFileMapped) {
  const TempDirectory directory;
  SafetensorsWriter writer;
  writer.add("a", Tensor::from({1, 2, 3}, {3}));
  writer.write(directory.file("model.safetensors"));
  Tensor kept;
  {
    const Safetensors read = Safetensors::open_directory(directory.path());
    kept = read.tensor("a");
    EXPECT_EQ(kept.data(), read.tensor("a").data());  // no copies
  }
  EXPECT_EQ(kept.at({2}), 3);
}

TEST(Safetensors, UnalignedElementsAreCopied) {
  const TempDirectory directory;
  // One byte before four-byte elements.
  std::string header = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), 8);
  const float values[2] = {1.5f, -2};
  bytes += header + "?" + std::string(reinterpret_cast<const char*>(values), 8);
  directory.write("model.safetensors", bytes);
  const Tensor x = Safetensors::open_directory(directory.path()).tensor("x");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data()) % 4, 0u);
  EXPECT_EQ(x.at({0}), 1.5f);
  EXPECT_EQ(x.at({1}), -2);
}

TEST(Safetensors, ShardsAreOneCheckpoint) {
  const TempDirectory directory;
  SafetensorsWriter one, two;
  one.add("a", Tensor::from({1}, {1}));
  two.add("b", Tensor::from({2}, {1}));
  one.write(directory.file("model-00001-of-00002.safetensors"));
  two.write(directory.file("model-00002-of-00002.safetensors"));
  directory.write("model.safetensors.index.json",
                  R"({"metadata": {"total_size": 8}, "weight_map": {
                      "a": "model-00001-of-00002.safetensors",
                      "b": "model-00002-of-00002.safetensors"}})");
  const Safetensors read = Safetensors::open_directory(directory.path());
  EXPECT_EQ(read.tensor("a").at({0}), 1);
  EXPECT_EQ(read.tensor("b").at({0}), 2);
  test::expect_error([&] { read.tensor("bb"); }, {"\"bb\"", "nearest", "\"b\""});
}

}  // namespace
}  // namespace halftone
