#include "halftone/tensor.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/backend.h"
#include "base/device_memory.h"
#include "base/message.h"
#include "base/token_scales.h"
#include "formats/codec.h"
#include "halftone/dlpack.h"
#include "halftone/stream.h"

namespace halftone {

Dims::Dims(const int64_t* values, size_t rank) : rank_(static_cast<int>(rank)) {
  require(rank <= kMaxRank, "a tensor has ", rank, " dimensions; at most ", int{kMaxRank},
          " are allowed");
  std::copy_n(values, rank, values_);
}

bool Dims::operator==(const Dims& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

// Checks build it as an argument of messages that are rarely used, so it must be cheap: the usual
// shapes fit into a string without allocation.
std::string to_string(const Dims& dims) {
  char text[Dims::kMaxRank * 22 + 2];
  char* end = text;
  *end++ = '[';
  for (int i = 0; i < dims.rank(); ++i) {
    if (i > 0) *end++ = ',', *end++ = ' ';
    end = std::to_chars(end, text + sizeof text, dims[i]).ptr;
  }
  *end++ = ']';
  return {text, end};
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    require(extent >= 0, "shape ", shown(shape), " has a negative extent");
    require(!__builtin_mul_overflow(count, extent, &count), "shape ", shown(shape),
            " has more than 2^63 elements");
  }
  return count;
}

Strides row_major(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

namespace {
alignas(64) unsigned char empty_storage[64];  // what views of nothing point at

// What the host itself can read and write.
bool on_host(const Device& device) { return device.kind() != Device::Kind::cuda; }
}  // namespace

Tensor Tensor::empty(const Shape& shape, Format format, Device device) {
  const int64_t count = element_count(shape);
  require(count < (int64_t{1} << 58), "shape ", to_string(shape), " is too large to allocate");
  const auto bytes = static_cast<size_t>(packed_bytes(format, count));
  void* data = nullptr;
  std::shared_ptr<const void> owner;
  try {
    owner = allocate_memory(device, bytes, &data);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    fail(ErrorCode::out_of_memory, "a tensor ", to_string(shape), " of ", halftone::name(format),
         ": ", error.what());
  }
  return share(std::move(owner), data, shape, row_major(shape), format, device);
}

Tensor Tensor::empty_pinned(const Shape& shape, Format format) {
  if (cuda_device_count() == 0) return empty(shape, format);
  const auto bytes = static_cast<size_t>(packed_bytes(format, element_count(shape)));
  void* data = cuda::allocate_pinned(bytes);
  return share({data, [](const void* p) { cuda::deallocate_pinned(const_cast<void*>(p)); }}, data,
               shape, row_major(shape), format);
}

Tensor Tensor::zeros(const Shape& shape, Format format, Device device) {
  Tensor result = empty(shape, format, device);
  fill_memory(device, result.data_, 0, static_cast<size_t>(packed_bytes(format, result.numel_)));
  return result;
}

namespace {
void copy_elements(const Tensor& from, const Tensor& to, Stream* stream) {
  require(from.shape() == to.shape() && from.format() == to.format(), "copy from ", shown(from),
          " to ", shown(to), ": shapes and formats must agree");
  require(from.contiguous() && to.contiguous(), "copy from ", shown(from), " to ", shown(to),
          ": both must be contiguous; contiguous_copy makes one on the CPU");
  copy_memory(to.device(), to.data(), from.device(), from.data(),
              static_cast<size_t>(packed_bytes(from.format(), from.numel())), stream);
}

Tensor moved(const Tensor& from, const Device& device, Stream* stream) {
  if (!from.defined()) return from;
  Tensor source = from.contiguous() ? from : from.contiguous_copy();
  Tensor result = Tensor::empty(from.shape(), from.format(), device);
  copy_elements(source, result, stream);
  if (!from.has_scales()) return result;
  return result.quantized(from.scaling(), moved(from.scales(), device, stream),
                          moved(from.tensor_scale(), device, stream),
                          moved(from.zero_points(), device, stream));
}
}  // namespace

Tensor Tensor::to(const Device& device) const {
  return device == device_ ? *this : moved(*this, device, nullptr);
}

void copy(const Tensor& from, const Tensor& to, Stream& stream) {
  require(stream.device() == from.device() || stream.device() == to.device(), "copy from ",
          shown(from), " to ", shown(to), " on a stream of ", stream.device().name(),
          ", which is neither's device");
  copy_elements(from, to, &stream);
}

Tensor Tensor::view(void* data, const Shape& shape, const Strides& strides, Format format,
                    Device device) {
  return share(nullptr, data, shape, strides, format, device);
}

Tensor Tensor::view(void* data, const Shape& shape, Format format, Device device) {
  return share(nullptr, data, shape, row_major(shape), format, device);
}

Tensor Tensor::share(std::shared_ptr<const void> owner, void* data, const Shape& shape,
                     const Strides& strides, Format format, Device device) {
  require(shape.rank() == strides.rank(), "shape ", to_string(shape), " and strides ",
          to_string(strides), " differ in rank");
  Tensor result;
  result.numel_ = element_count(shape);
  require(data != nullptr || result.numel_ == 0, "data is null for a tensor ", to_string(shape));
  if (bits(format) < 8 && result.numel_ > 1) {
    for (int i = 0; i + 1 < shape.rank(); ++i) {
      const int unit = elements_of_unit(format);
      require(strides[i] % unit == 0 || shape[i] == 1 || shape[shape.rank() - 1] % unit != 0,
              "strides ", to_string(strides), ": a ", bits(format),
              "-bit tensor needs rows of whole bytes");
    }
  }
  result.owner_ = std::move(owner);
  result.data_ = data != nullptr ? data : empty_storage;
  result.shape_ = shape;
  result.strides_ = strides;
  result.format_ = format;
  result.device_ = device;
  return result;
}

Tensor Tensor::copy_of(const void* data, size_t bytes, const Shape& shape, Format format) {
  Tensor result = empty(shape, format);
  require(static_cast<int64_t>(bytes) == packed_bytes(format, result.numel_), "shape ",
          to_string(shape), " of ", halftone::name(format), " takes ",
          packed_bytes(format, result.numel_), " bytes, not ", bytes);
  if (bytes > 0) std::memcpy(result.data_, data, bytes);
  return result;
}

bool Tensor::contiguous() const {
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return numel_ == 0;
    step *= shape_[i];
  }
  return true;
}

int64_t Tensor::bytes() const {
  int64_t total = packed_bytes(format_, numel_);
  if (parts_) {
    total += parts_->scales.bytes() + parts_->zero_points.bytes() + parts_->tensor_scale.bytes();
  }
  return total;
}

float Tensor::at(std::initializer_list<int64_t> index) const {
  require(on_host(device_), "Tensor::at reads host memory; this tensor is on ", device_.name(),
          ": use to(Device::cpu())");
  require(static_cast<int>(index.size()) == rank(), "an index of ", index.size(),
          " numbers does not fit shape ", to_string(shape_));
  int64_t offset = 0;
  int dim = 0;
  for (int64_t i : index) {
    require(i >= 0 && i < shape_[dim], "index ", i, " is outside dimension ", dim, " of shape ",
            to_string(shape_));
    offset += i * strides_[dim++];
  }
  switch (format_) {
    case Format::f32:
      return data<float>()[offset];
    case Format::f16:
      return decode_f16(data<uint16_t>()[offset]);
    case Format::bf16:
      return decode_bf16(data<uint16_t>()[offset]);
    default:
      fail(ErrorCode::invalid_argument, "Tensor::at reads f32, f16 and bf16, not ",
           halftone::name(format_));
  }
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(contiguous(), "reshape needs a contiguous tensor; shape ", to_string(shape_),
          " has strides ", to_string(strides_));
  require(element_count(shape) == numel_, "reshape from ", to_string(shape_), " to ",
          to_string(shape), " changes the number of elements");
  require(!parts_, "reshape would part a quantised tensor from its scales");
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = row_major(shape);
  return result;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end) const {
  require(dim >= 0 && dim < rank(), "slice dimension ", dim, " is outside rank ", rank());
  require(0 <= begin && begin <= end && end <= shape_[dim], "slice [", begin, ", ", end,
          ") is outside extent ", shape_[dim], " of dimension ", dim);
  Tensor result = *this;
  result.shape_[dim] = end - begin;
  result.numel_ = element_count(result.shape_);
  const int64_t offset_bits = begin * strides_[dim] * bits(format_);
  require(offset_bits % 8 == 0, "slice [", begin, ", ", end, ") starts inside a byte");
  result.data_ = static_cast<char*>(data_) + offset_bits / 8;
  if (!parts_) return result;

  const Scaling& scaling = parts_->scaling;
  const int from_last = rank() - 1 - dim;
  const int64_t block = from_last == 0   ? scaling.block_cols
                        : from_last == 1 ? scaling.block_rows
                                         : tokens_of_scale(shape_[dim], parts_->scales.shape_[dim]);
  if (block == 0) return result;  // the scale spans the dimension
  require(scaling.layout == ScaleLayout::linear, "slicing needs scales in the linear layout, not ",
          halftone::name(scaling.layout));
  require(begin % block == 0, "slice [", begin, ", ", end, ") cuts a scale block of ", block);
  QuantizedParts parts = *parts_;
  const auto cut = [&](const Tensor& t) {
    if (!t.defined() || t.shape_[dim] == 1) return t;
    return t.slice(dim, begin / block, (end + block - 1) / block);
  };
  parts.scales = cut(parts.scales);
  parts.zero_points = cut(parts.zero_points);
  result.parts_ = std::make_shared<QuantizedParts>(std::move(parts));
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  require(a >= 0 && b >= 0 && a < rank() && b < rank(), "transpose(", a, ", ", b,
          ") is outside rank ", rank());
  require(!parts_, "transpose would part a quantised tensor from its scales");
  require(bits(format_) >= 8 || (a != rank() - 1 && b != rank() - 1),
          "transpose of the packed dimension of ", halftone::name(format_));
  Tensor result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

Tensor Tensor::contiguous_copy() const {
  require(bits(format_) >= 8 || contiguous(), "contiguous_copy does not repack strided ",
          halftone::name(format_));
  Tensor result = empty(shape_, format_, device_);
  result.parts_ = parts_;
  if (numel_ == 0) return result;
  if (contiguous()) {
    copy_memory(device_, result.data_, device_, data_,
                static_cast<size_t>(packed_bytes(format_, numel_)));
    return result;
  }
  require(device_.is_cpu(), "contiguous_copy of a strided tensor works on the CPU; this one is on ",
          device_.name());
  const size_t size = static_cast<size_t>(bits(format_) / 8);
  Dims index = shape_;
  for (int i = 0; i < rank(); ++i) index[i] = 0;
  char* out = static_cast<char*>(result.data_);
  for (int64_t n = 0; n < numel_; ++n, out += size) {
    int64_t offset = 0;
    for (int i = 0; i < rank(); ++i) offset += index[i] * strides_[i];
    std::memcpy(out, static_cast<const char*>(data_) + offset * static_cast<int64_t>(size), size);
    for (int i = rank() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
  }
  return result;
}

Tensor Tensor::quantized(const Scaling& scaling, Tensor scales) const {
  return quantized(scaling, std::move(scales), Tensor(), Tensor());
}

Tensor Tensor::quantized(const Scaling& scaling, Tensor scales, Tensor tensor_scale) const {
  return quantized(scaling, std::move(scales), std::move(tensor_scale), Tensor());
}

Tensor Tensor::quantized(const Scaling& scaling, Tensor scales, Tensor tensor_scale,
                         Tensor zero_points) const {
  require(scales.defined(), "quantized: scales are undefined");
  require(scales.format() == scaling.format, "quantized: scales are ",
          halftone::name(scales.format()), ", the scaling says ", halftone::name(scaling.format));
  const auto blocks = [&](int dim) {
    const int from_last = rank() - 1 - dim;
    const int64_t block = from_last == 0   ? scaling.block_cols
                          : from_last == 1 ? scaling.block_rows
                                           : 1;
    return block == 0 ? int64_t{1} : (shape_[dim] + block - 1) / block;
  };
  const auto check = [&](const Tensor& t, const char* what) {
    require(t.rank() == rank(), what, " has shape ", to_string(t.shape()), " for a tensor ",
            to_string(shape_), ": the ranks must agree");
    for (int dim = 0; dim < rank(); ++dim) {
      const bool shared = dim < rank() - 2 && t.size(dim) == 1;
      const bool of_tokens = dim == 1 && may_have_token_scales(shape_, scaling) &&
                             t.size(dim) == (shape_[dim] + kScaleTokens - 1) / kScaleTokens;
      require(t.size(dim) == blocks(dim) || shared || of_tokens, what, " has shape ",
              to_string(t.shape()), "; dimension ", dim, " must be ", blocks(dim), " for a tensor ",
              to_string(shape_), " with ", to_string(scaling));
    }
  };
  if (scaling.layout == ScaleLayout::linear) check(scales, "scales");
  require(scaling.asymmetric == zero_points.defined(),
          "quantized: zero points are given exactly when the scaling is asymmetric");
  if (zero_points.defined()) check(zero_points, "zero_points");
  require(!tensor_scale.defined() ||
              (tensor_scale.format() == Format::f32 && tensor_scale.numel() == 1),
          "quantized: tensor_scale must be one f32");
  Tensor result = *this;
  result.parts_ = std::make_shared<QuantizedParts>(
      QuantizedParts{scaling, std::move(scales), std::move(tensor_scale), std::move(zero_points)});
  return result;
}

namespace {
const QuantizedParts& parts_or_fail(const QuantizedParts* parts, Format format) {
  require(parts != nullptr, "a ", name(format), " tensor without scales was asked for them");
  return *parts;
}
}  // namespace

const Scaling& Tensor::scaling() const { return parts_or_fail(parts_.get(), format_).scaling; }
const Tensor& Tensor::scales() const { return parts_or_fail(parts_.get(), format_).scales; }
const Tensor& Tensor::zero_points() const {
  return parts_or_fail(parts_.get(), format_).zero_points;
}
const Tensor& Tensor::tensor_scale() const {
  return parts_or_fail(parts_.get(), format_).tensor_scale;
}
float Tensor::tensor_scale_value() const {
  if (!parts_ || !parts_->tensor_scale.defined()) return 1.0f;
  require(on_host(parts_->tensor_scale.device()),
          "tensor_scale_value reads host memory; the scale "
          "is on ",
          parts_->tensor_scale.device().name());
  return *parts_->tensor_scale.data<float>();
}

std::string to_string(const Tensor& tensor) {
  std::string text = name(tensor.format());
  text.append(" ").append(to_string(tensor.shape()));
  if (tensor.has_scales()) {
    text.append(" (").append(to_string(tensor.scaling())).append(" scales");
    text.append(tensor.tensor_scale().defined() ? ", tensor scale)" : ")");
  }
  return text.append(" on ").append(tensor.device().name());
}

// --- DLPack --------------------------------------------------------------------------------------

namespace {

struct DlpackType {
  Format format;
  uint8_t code, bits;
};
// Codes of the DLPack 1.1 header. Packed 4-bit formats and mx elements travel as bytes.
constexpr DlpackType kDlpackTypes[] = {
    {Format::f32, 2, 32},      {Format::f16, 2, 16},      {Format::bf16, 4, 16},
    {Format::i32, 0, 32},      {Format::i64, 0, 64},      {Format::int8, 0, 8},
    {Format::u8, 1, 8},        {Format::fp8_e4m3, 10, 8}, {Format::mxfp8, 10, 8},
    {Format::fp8_e5m2, 12, 8}, {Format::ue8m0, 14, 8},
};

struct Exported {
  DLManagedTensor managed;
  Tensor tensor;  // keeps the storage alive
  int64_t shape[Dims::kMaxRank];
  int64_t strides[Dims::kMaxRank];
};

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  require(managed != nullptr, "from_dlpack: the tensor is null");
  const DLTensor& t = managed->dl_tensor;
  constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3;
  const int type_of_device = t.device.device_type;
  require(type_of_device == kCpu || type_of_device == kCuda || type_of_device == kCudaHost,
          "from_dlpack: device type ", type_of_device,
          " is not known; 1 (CPU), 2 (CUDA) and 3 (page-locked memory) are");
  const Device device = type_of_device == kCuda ? Device::cuda(t.device.device_id) : Device::cpu();
  require(t.ndim >= 0 && t.ndim <= Dims::kMaxRank, "from_dlpack: ", t.ndim,
          " dimensions; at most 8 are allowed");
  for (const DlpackType& type : kDlpackTypes) {
    if (type.code != t.dtype.code || type.bits != t.dtype.bits || t.dtype.lanes != 1) continue;
    const Shape shape(t.shape, static_cast<size_t>(t.ndim));
    const Strides strides =
        t.strides != nullptr ? Strides(t.strides, static_cast<size_t>(t.ndim)) : row_major(shape);
    const std::shared_ptr<const void> owner(managed, [](const void* p) {
      auto* m = const_cast<DLManagedTensor*>(static_cast<const DLManagedTensor*>(p));
      if (m->deleter != nullptr) m->deleter(m);
    });
    return share(owner, static_cast<char*>(t.data) + t.byte_offset, shape, strides, type.format,
                 device);
  }
  fail(ErrorCode::unsupported, "from_dlpack: type code ", int{t.dtype.code}, " of ",
       int{t.dtype.bits}, " bits and ", t.dtype.lanes, " lanes has no Halftone format");
}

DLManagedTensor* Tensor::to_dlpack() const {
  require(defined(), "to_dlpack: the tensor is undefined");
  const bool packed = bits(format_) < 8;
  require(!packed || contiguous(), "to_dlpack: a packed tensor must be contiguous");
  const DlpackType* type = nullptr;
  for (const DlpackType& candidate : kDlpackTypes) {
    if (candidate.format == (packed ? Format::u8 : format_)) type = &candidate;
  }
  require(type != nullptr, "to_dlpack: ", halftone::name(format_), " has no DLPack type");
  auto* exported = new Exported{{}, *this, {}, {}};
  for (int i = 0; i < rank(); ++i) {
    exported->shape[i] = shape_[i];
    exported->strides[i] = strides_[i];
  }
  if (packed && rank() > 0) {
    exported->shape[rank() - 1] = packed_bytes(format_, shape_[rank() - 1]);
    const Strides bytes = row_major(Shape(exported->shape, static_cast<size_t>(rank())));
    std::copy_n(bytes.begin(), rank(), exported->strides);
  }
  DLTensor& t = exported->managed.dl_tensor;
  const bool cuda = device_.kind() == Device::Kind::cuda;
  t = {data_,
       {cuda ? 2 : 1, device_.index()},
       rank(),
       {type->code, type->bits, 1},
       exported->shape,
       exported->strides,
       0};
  exported->managed.manager_ctx = exported;
  exported->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Exported*>(self->manager_ctx);
  };
  return &exported->managed;
}

}  // namespace halftone
