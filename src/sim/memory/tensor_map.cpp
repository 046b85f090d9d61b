// The rules of tensor maps, as cuTensorMapEncodeTiled has them.
#include "sim/memory/tensor_map.h"

#include <string>

#include "base/message.h"
#include "halftone/error.h"

namespace halftone::sim {

namespace {

template <class... Parts>
void require_argument(bool good, const Parts&... parts) {
  if (!good) throw Error(ErrorCode::invalid_argument, concat("tensor map: ", parts...));
}

uint32_t span_of(TensorMapSwizzle swizzle) {
  return swizzle == TensorMapSwizzle::none ? 0 : 16u << static_cast<uint32_t>(swizzle);
}

bool is_float(TensorMapType type) {
  return type >= TensorMapType::f16 && type <= TensorMapType::tf32_ftz &&
         type != TensorMapType::u64;
}

bool padded(TensorMapType type) {
  return type == TensorMapType::u4_align16 || type == TensorMapType::u6_align16;
}

uint32_t count_of(const TensorMap& map, uint32_t d) {
  // Without interleave the step of the fastest dimension is ignored.
  const uint32_t step = d == 0 || map.step[d] == 0 ? 1 : map.step[d];
  return (map.box[d] + step - 1) / step;
}

}  // namespace

uint32_t TensorMap::element_bits() const {
  switch (type) {
    case TensorMapType::u8:
      return 8;
    case TensorMapType::u16:
    case TensorMapType::f16:
    case TensorMapType::bf16:
      return 16;
    case TensorMapType::u64:
    case TensorMapType::s64:
    case TensorMapType::f64:
      return 64;
    case TensorMapType::u4_align8:
    case TensorMapType::u4_align16:
      return 4;
    case TensorMapType::u6_align16:
      return 6;
    default:
      return 32;
  }
}

uint32_t TensorMap::box_bytes() const {
  uint32_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) elements *= count_of(*this, d);
  return elements * element_bits() / 8;
}

uint32_t TensorMap::shared_bytes() const {
  const uint32_t inner = padded(type) ? box[0] : box[0] * element_bits() / 8;
  const uint32_t span = span_of(swizzle);
  uint32_t bytes = span > inner ? span : inner;
  for (uint32_t d = 1; d < rank; ++d) bytes *= count_of(*this, d);
  return bytes;
}

void TensorMap::fill_outside(uint8_t* bytes, size_t n) const {
  // The NaN by which the H200 marks such elements, in halves, whatever the type.
  const uint8_t half[2] = {0xf7, 0x7f};
  for (size_t i = 0; i < n; ++i) bytes[i] = fill == TensorMapFill::zero ? 0 : half[i % 2];
}

TensorMap make_tensor_map(TensorMapType type, uint32_t rank, void* address, const uint64_t* extents,
                          const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                          TensorMapSwizzle swizzle, TensorMapFill fill) {
  TensorMap map;
  require_argument(type <= TensorMapType::u6_align16, "type ", static_cast<int>(type),
                   " is not one of CUtensorMapDataType");
  require_argument(rank >= 1 && rank <= 5, "rank ", rank, " is outside 1 to 5");
  const auto value = reinterpret_cast<uintptr_t>(address);
  const uint32_t alignment = padded(type) ? 32 : 16;
  require_argument(value != 0, "the address is null");
  require_argument(value % alignment == 0, "address 0x", std::hex, value, std::dec,
                   " is not aligned to ", alignment, " bytes");
  map.type = type;
  map.rank = static_cast<uint8_t>(rank);
  map.address = address;
  map.swizzle = swizzle;
  map.fill = fill;
  const uint32_t bits = map.element_bits();
  for (uint32_t d = 0; d < rank; ++d) {
    require_argument(extents[d] >= 1 && extents[d] <= uint64_t{1} << 32, "extent[", d,
                     "] = ", extents[d], " is outside 1 to 2^32");
    require_argument(box[d] >= 1 && box[d] <= 256, "box[", d, "] = ", box[d],
                     " is outside 1 to 256");
    require_argument(steps == nullptr || (steps[d] >= 1 && steps[d] <= 8), "element stride[", d,
                     "] = ", steps == nullptr ? 1 : steps[d], " is outside 1 to 8");
    map.extent[d] = extents[d];
    map.box[d] = static_cast<uint16_t>(box[d]);
    map.step[d] = static_cast<uint8_t>(steps == nullptr ? 1 : steps[d]);
  }
  uint64_t least = (extents[0] * bits + 7) / 8;
  for (uint32_t d = 1; d < rank; ++d) {
    const uint64_t stride = strides[d - 1];
    require_argument(stride % alignment == 0, "stride[", d, "] = ", stride,
                     " bytes is not a multiple of ", alignment);
    require_argument(stride < uint64_t{1} << 40, "stride[", d, "] = ", stride,
                     " bytes is not below 2^40");
    require_argument(d == 1 ? stride >= least : true, "stride[1] = ", stride,
                     " bytes is less than a row of ", least, " bytes");
    map.stride[d - 1] = stride;
  }
  if (padded(type)) {
    require_argument(extents[0] % 128 == 0, "extent[0] = ", extents[0],
                     " of a padded 4- or 6-bit type is not a multiple of 128");
    require_argument(box[0] == 128, "box[0] = ", box[0],
                     " of a padded 4- or 6-bit type is not 128");
    require_argument(swizzle == TensorMapSwizzle::none || swizzle == TensorMapSwizzle::b128,
                     "a padded 4- or 6-bit type takes no swizzle or that of 128 bytes");
  } else {
    if (type == TensorMapType::u4_align8) {
      require_argument(extents[0] % 2 == 0, "extent[0] = ", extents[0], " of a 4-bit type is odd");
    }
    require_argument(box[0] * bits % 128 == 0, "box[0] = ", box[0], " elements of ", bits,
                     " bits are not a multiple of 16 bytes");
    const uint32_t inner = box[0] * bits / 8;
    require_argument(swizzle == TensorMapSwizzle::none || inner <= span_of(swizzle),
                     "box[0] = ", box[0], " elements are ", inner,
                     " bytes, more than the swizzle's ", span_of(swizzle));
  }
  require_argument(fill == TensorMapFill::zero || is_float(type),
                   "filling with NaN needs a floating-point type");
  require_argument(map.shared_bytes() <= 256 * 1024, "the box takes ", map.shared_bytes(),
                   " bytes of shared memory");
  map.valid = TensorMap::kValid;
  return map;
}

}  // namespace halftone::sim
