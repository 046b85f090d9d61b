// An n-dimensional array with strides, a number format and, for quantised formats, scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halftone/device.h"
#include "halftone/dtype.h"

struct DLManagedTensor;

namespace halftone {

// Extents or strides of at most 8 dimensions, without allocation.
class Dims {
 public:
  static constexpr int kMaxRank = 8;
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}
  Dims(const int64_t* values, size_t rank);
  explicit Dims(std::span<const int64_t> values) : Dims(values.data(), values.size()) {}
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + rank_; }
  bool operator==(const Dims& other) const;

 private:
  int64_t values_[kMaxRank] = {};
  int rank_ = 0;
};
using Shape = Dims;
using Strides = Dims;
std::string to_string(const Dims&);  // "[2, 3]"
// Product of the extents; Error when it overflows 63 bits or an extent is negative.
int64_t element_count(const Shape&);
Strides row_major(const Shape&);

struct QuantizedParts;
class Stream;

class Tensor {
 public:
  Tensor() = default;  // no data: `defined()` is false

  // Row-major, at least 64-byte aligned, uninitialised. For block formats the last extent is in
  // elements; scales are attached by `quantized`.
  static Tensor empty(const Shape&, Format, Device = Device::cpu());
  // On the host, page-locked where there is a CUDA device: copies to and from it then run beside
  // the host.
  static Tensor empty_pinned(const Shape&, Format);
  static Tensor zeros(const Shape&, Format, Device = Device::cpu());
  // Borrows `data`, which must outlive every copy of the tensor. Strides in elements.
  static Tensor view(void* data, const Shape&, const Strides&, Format, Device = Device::cpu());
  static Tensor view(void* data, const Shape&, Format, Device = Device::cpu());
  // As `view`, kept alive by `owner` (an mmap, a Python object).
  static Tensor share(std::shared_ptr<const void> owner, void* data, const Shape&, const Strides&,
                      Format, Device = Device::cpu());
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Format format) {
    return copy_of(values.data(), values.size_bytes(), shape, format);
  }
  static Tensor from(std::initializer_list<float> values, const Shape& shape) {
    return copy_of(values.begin(), values.size() * sizeof(float), shape, Format::f32);
  }
  static Tensor copy_of(const void* data, size_t bytes, const Shape&, Format);

  bool defined() const { return data_ != nullptr; }
  Format format() const { return format_; }
  const Device& device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  // Negative i counts from the last.
  int64_t size(int i) const { return shape_[i < 0 ? i + rank() : i]; }
  int64_t stride(int i) const { return strides_[i < 0 ? i + rank() : i]; }
  int64_t numel() const { return numel_; }
  bool contiguous() const;
  // Bytes of the elements, scales included.
  int64_t bytes() const;

  void* data() const { return data_; }
  // T must have the size of an element (packed 4-bit formats: a byte).
  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  // Value of one element of f32, f16 or bf16 as float; for tests and printing.
  float at(std::initializer_list<int64_t> index) const;

  // Same storage, other view. Errors name the argument.
  Tensor reshape(const Shape&) const;                       // contiguous only
  Tensor slice(int dim, int64_t begin, int64_t end) const;  // half-open
  Tensor transpose(int a, int b) const;
  Tensor contiguous_copy() const;
  // Itself when it is there already, else a contiguous copy with its scales; done on return. A
  // strided tensor must be on the CPU.
  Tensor to(const Device&) const;

  // --- quantised tensors -------------------------------------------------------------------------
  // Attaches scales. With ScaleLayout::linear, `scales` has the tensor's rank, extent ceil(size /
  // block) in the last two dimensions, 1 (broadcast) or the tensor's own in the others, or, of
  // attention's tokens, ceil(size / 128) (attention.h). The tiled layouts are flat arrays of codes.
  // value = element * scale * tensor_scale, or (element - zero) * scale for asymmetric int4.
  Tensor quantized(const Scaling&, Tensor scales) const;
  Tensor quantized(const Scaling&, Tensor scales, Tensor tensor_scale) const;
  Tensor quantized(const Scaling&, Tensor scales, Tensor tensor_scale, Tensor zero_points) const;
  bool has_scales() const { return parts_ != nullptr; }
  const Scaling& scaling() const;
  const Tensor& scales() const;
  const Tensor& zero_points() const;
  // f32 [1] on the tensor's device; undefined when there is none. Multiplies (2688/amax inverted).
  const Tensor& tensor_scale() const;
  float tensor_scale_value() const;  // CPU tensors; 1 when there is none

  // --- exchange ----------------------------------------------------------------------------------
  // Borrows the DLPack tensor and calls its deleter when the last copy is gone.
  static Tensor from_dlpack(DLManagedTensor*);
  // The receiver calls the deleter. Quantised tensors are exported as their codes.
  DLManagedTensor* to_dlpack() const;

 private:
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const QuantizedParts> parts_;
  void* data_ = nullptr;
  Shape shape_{int64_t{0}};
  Strides strides_{int64_t{1}};
  int64_t numel_ = 0;
  Format format_ = Format::f32;
  Device device_;
};

// The elements (not the scales) into a tensor of the same shape and format, on any device, in the
// order of the stream; both contiguous. Asynchronous between a GPU and page-locked memory.
void copy(const Tensor& from, const Tensor& to, Stream&);

struct QuantizedParts {
  Scaling scaling;
  Tensor scales, tensor_scale, zero_points;
};

// "bf16 [2, 3] on cpu", "nvfp4 [4096, 4096] (1x16 fp8_e4m3 scales, tensor scale) on cpu".
std::string to_string(const Tensor&);

}  // namespace halftone
