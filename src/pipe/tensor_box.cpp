#include <algorithm>

#include "halftone/error.h"
#include "pipe/tensor_map_backend.h"

namespace halftone::pipe {

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "tensor map: " + sentence);
}

std::string number(const char* what, uint32_t dimension, uint64_t value) {
  return std::string(what) + "[" + std::to_string(dimension) + "] is " + std::to_string(value);
}

bool is_float(hw::Type t) {
  return t == hw::Type::f16 || t == hw::Type::bf16 || t == hw::Type::f32 || t == hw::Type::tf32 ||
         t == hw::Type::f64;
}

// Six-bit values travel in 16-byte groups of 16, padded; everything else as it lies.
uint32_t bits_in_shared(hw::Type t) { return hw::bits_of(t) == 6 ? 8 : hw::bits_of(t); }

}  // namespace

sim::TensorMapType element_type(hw::Type t) {
  using Map = sim::TensorMapType;
  switch (t) {
    case hw::Type::u8:
    case hw::Type::s8:
    case hw::Type::e4m3:
    case hw::Type::e5m2:
    case hw::Type::ue8m0:
    case hw::Type::ue4m3:
      return Map::u8;
    case hw::Type::u16:
    case hw::Type::s16:
      return Map::u16;
    case hw::Type::u32:
    case hw::Type::b32:
      return Map::u32;
    case hw::Type::s32:
      return Map::s32;
    case hw::Type::u64:
    case hw::Type::b64:
      return Map::u64;
    case hw::Type::s64:
      return Map::s64;
    case hw::Type::f16:
      return Map::f16;
    case hw::Type::bf16:
      return Map::bf16;
    case hw::Type::f32:
      return Map::f32;
    case hw::Type::tf32:
      return Map::tf32;
    case hw::Type::f64:
      return Map::f64;
    case hw::Type::e2m1:
    case hw::Type::u4:
    case hw::Type::s4:
      return Map::u4_align8;
    case hw::Type::e2m3:
    case hw::Type::e3m2:
      return Map::u6_align16;
    default:
      refuse("type " + std::to_string(static_cast<int>(t)) + " is no element of a tensor");
  }
}

uint32_t TensorBox::box_bytes() const {
  uint64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) elements *= box[d];
  return static_cast<uint32_t>(elements * hw::bits_of(type) / 8);
}

uint32_t TensorBox::shared_bytes() const {
  uint64_t bytes = uint64_t{box[0]} * bits_in_shared(type) / 8;
  if (swizzle != tile::Swizzle::none) bytes = std::max<uint64_t>(bytes, tile::span(swizzle));
  for (uint32_t d = 1; d < rank; ++d) bytes *= box[d];
  return static_cast<uint32_t>(bytes);
}

TensorBox matrix_box(hw::Type type, void* address, uint64_t rows, uint64_t columns,
                     uint64_t row_bytes, uint32_t box_rows, uint32_t box_columns,
                     tile::Swizzle swizzle) {
  TensorBox b;
  b.type = type, b.address = address, b.rank = 2;
  b.extent = {columns, rows};
  b.stride = {row_bytes};
  b.box = {box_columns, box_rows};
  b.swizzle = swizzle;
  return b;
}

TensorBox panel_box(hw::Type type, void* address, uint64_t rows, uint64_t columns,
                    uint64_t row_bytes, const tile::SharedTile& tile) {
  if (const char* rule = tile.broken_rule()) refuse(std::string("operand tile: ") + rule);
  if (tile.element_bits != bits_in_shared(type)) {
    refuse("the operand tile has elements of " + std::to_string(tile.element_bits) +
           " bits, the tensor of " + std::to_string(bits_in_shared(type)));
  }
  return matrix_box(type, address, rows, columns, row_bytes, tile.lines(), tile.panel_elements(),
                    tile.swizzle);
}

void validate(const TensorBox& b) {
  static_cast<void>(element_type(b.type));
  const uint32_t bits = hw::bits_of(b.type);
  const bool packed = bits < 8;  // 4 and 6 bits: groups of 16 values
  if (b.rank < 1 || b.rank > 5)
    refuse("rank is " + std::to_string(b.rank) + "; a tensor has 1 to 5 dimensions");
  const uint64_t alignment = bits == 6 ? 32 : 16;
  if (b.address == nullptr || reinterpret_cast<uintptr_t>(b.address) % alignment != 0)
    refuse("the address is null or not aligned; it must be aligned to " +
           std::to_string(alignment) + " bytes");
  for (uint32_t d = 0; d < b.rank; ++d) {
    if (b.extent[d] < 1 || b.extent[d] > uint64_t{1} << 32)
      refuse(number("extent", d, b.extent[d]) + "; it must be from 1 to 2^32");
    if (b.box[d] < 1 || b.box[d] > 256)
      refuse(number("box", d, b.box[d]) + "; it must be from 1 to 256");
  }
  for (uint32_t d = 0; d + 1 < b.rank; ++d) {
    if (b.stride[d] % alignment != 0 || b.stride[d] >= uint64_t{1} << 40)
      refuse(number("stride", d, b.stride[d]) + "; it must be a multiple of " +
             std::to_string(alignment) + " bytes below 2^40");
  }
  if (packed && b.extent[0] % (bits == 6 ? 128 : 2) != 0)
    refuse(number("extent", 0, b.extent[0]) + "; 4-bit elements come in pairs, 6-bit ones in 128s");
  if (bits == 6 && b.box[0] != 128)
    refuse(number("box", 0, b.box[0]) + "; boxes of 6-bit elements are 128 wide");
  const uint64_t line = uint64_t{b.box[0]} * bits_in_shared(b.type) / 8;
  if (uint64_t{b.box[0]} * bits_in_shared(b.type) % 128 != 0)
    refuse(number("box", 0, b.box[0]) + ", " + std::to_string(line) +
           " bytes; a line of the box must be a multiple of 16 bytes");
  if (b.swizzle != tile::Swizzle::none && line > tile::span(b.swizzle))
    refuse(number("box", 0, b.box[0]) + ", " + std::to_string(line) +
           " bytes; a line of the box must fit the swizzle's " +
           std::to_string(tile::span(b.swizzle)) + " bytes");
  if (bits == 6 && b.swizzle != tile::Swizzle::none && tile::span(b.swizzle) != 128)
    refuse(std::string("swizzle is ") + tile::name(b.swizzle) +
           "; 6-bit elements take none or one of 128 bytes");
  if (b.fill_with_nan && !is_float(b.type))
    refuse("NaN fills floating-point tensors of 16 bits and more only");
}

}  // namespace halftone::pipe
