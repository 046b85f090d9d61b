// The copies: cp.async, bulk, tensor, st.async.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/message.h"
#include "sim/counters.h"
#include "sim/f32_rounding.h"
#include "sim/memory/cluster_memory.h"
#include "sim/memory/device_memory.h"
#include "sim/memory/memory.h"
#include "sim/numerics/convert.h"
#include "tile/swizzle.h"

namespace halftone::sim {

namespace {

constexpr uint32_t kOffset = (1u << 24) - 1;

uint32_t at_rank(uint32_t rank, uint32_t address) { return (rank + 1) << 24 | (address & kOffset); }

// Every block of the mask, or (0) the one address itself.
template <class Each>
void for_blocks(Thread& thread, uint32_t blocks, const char* what, const Site& site, Each each) {
  if (blocks == 0) return each(~0u);
  const uint32_t count = cluster_of(thread).block_count;
  if (blocks >> count != 0) {
    fatal(thread, "bulk.multicast_mask", site, what,
          concat(what, " to blocks 0x", std::hex, blocks, std::dec, " of a cluster of ", count));
  }
  for (uint32_t rank = 0; rank < count; ++rank) {
    if ((blocks >> rank & 1) != 0) each(rank);
  }
}

void check_multiple(Thread& thread, uint64_t value, uint32_t of, const char* argument,
                    const char* what, const Site& site) {
  if (value % of == 0) return;
  fatal(thread, "bulk.alignment", site, what,
        concat(what, ": ", argument, " ", value, " is not a multiple of ", of));
}

// ---- Reductions ---------------------------------------------------------------------------------

template <class T>
T reduce_integer(T old, T value, TensorReduction how) {
  switch (how) {
    case TensorReduction::add:
      return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(value));
    case TensorReduction::min:
      return std::min(old, value);
    case TensorReduction::max:
      return std::max(old, value);
    case TensorReduction::inc:
      return old >= value ? T{0} : static_cast<T>(old + 1);
    case TensorReduction::dec:
      return old == 0 || old > value ? value : static_cast<T>(old - 1);
    case TensorReduction::bit_and:
      return static_cast<T>(old & value);
    case TensorReduction::bit_or:
      return static_cast<T>(old | value);
    case TensorReduction::bit_xor:
      return static_cast<T>(old ^ value);
    case TensorReduction::none:
      break;
  }
  return value;
}

// Measured on an H200: additions of f32 write the one NaN (and flush nothing), -0 is below +0.
template <class T>
T reduce_float(T old, T value, TensorReduction how) {
  if (how == TensorReduction::add) {
    if constexpr (std::is_same_v<T, float>) {
      return add_f32(old, value, RoundF32::nearest_even, false);
    } else {
      return old + value;
    }
  }
  if (std::isnan(old)) return value;
  if (std::isnan(value)) return old;
  const bool less = old < value || (old == value && std::signbit(old));
  return less == (how == TensorReduction::min) ? old : value;
}

float widen_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024),
                           (exponent == 0 ? 1 : exponent) - 25);
}

template <class T, class Op>
void each_element(uint8_t* to, const uint8_t* from, uint32_t bytes, Op op) {
  for (uint32_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T old, value;
    std::memcpy(&old, to + i, sizeof(T));
    std::memcpy(&value, from + i, sizeof(T));
    old = op(old, value);
    std::memcpy(to + i, &old, sizeof(T));
  }
}

// to = to (how) from, element by element.
void reduce(TensorMapType type, TensorReduction how, uint8_t* to, const uint8_t* from,
            uint32_t bytes) {
  const auto integers = [&]<class T>(T) {
    each_element<T>(to, from, bytes, [&](T a, T b) { return reduce_integer(a, b, how); });
  };
  const auto floats = [&]<class T>(T) {
    each_element<T>(to, from, bytes, [&](T a, T b) { return reduce_float(a, b, how); });
  };
  switch (type) {
    case TensorMapType::f32:
    case TensorMapType::f32_ftz:
    case TensorMapType::tf32:
    case TensorMapType::tf32_ftz:
      return floats(float{});
    case TensorMapType::f64:
      return floats(double{});
    case TensorMapType::f16:
      return each_element<uint16_t>(to, from, bytes, [&](uint16_t a, uint16_t b) {
        return cvt_f16(reduce_float(widen_half(a), widen_half(b), how));
      });
    case TensorMapType::bf16:
      return each_element<uint16_t>(to, from, bytes, [&](uint16_t a, uint16_t b) {
        const auto widen = [](uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); };
        return cvt_bf16(reduce_float(widen(a), widen(b), how));
      });
    case TensorMapType::u8:
      return integers(uint8_t{});
    case TensorMapType::u16:
      return integers(uint16_t{});
    case TensorMapType::s32:
      return integers(int32_t{});
    case TensorMapType::u64:
      return integers(uint64_t{});
    case TensorMapType::s64:
      return integers(int64_t{});
    default:
      return integers(uint32_t{});
  }
}

void write_reduced(Agent& agent, void* to, const uint8_t* bytes, uint32_t count, TensorMapType type,
                   TensorReduction how, const Site& site) {
  if (how == TensorReduction::none) {
    write_global(agent, to, bytes, count, site);
  } else {
    // Element-wise atomic: reductions of other blocks may come between elements, not into one.
    const uint32_t step = 8;
    for (uint32_t i = 0; i < count; i += step) {
      const uint32_t n = std::min(step, count - i);
      atomic_global(
          agent, static_cast<uint8_t*>(to) + i, n, Order::relaxed, MemoryScope::gpu,
          [&](void* at) { reduce(type, how, static_cast<uint8_t*>(at), bytes + i, n); }, site);
    }
  }
  count_global(agent, to, count, true);
}

// ---- Boxes --------------------------------------------------------------------------------------

struct Box {
  TensorMap map;
  int64_t at[5] = {};
  uint32_t count[5] = {1, 1, 1, 1, 1};
  tile::Swizzle swizzle = tile::Swizzle::none;

  bool padded() const {
    return map.type == TensorMapType::u4_align16 || map.type == TensorMapType::u6_align16;
  }
  uint32_t bits() const { return map.element_bits(); }
  uint32_t inner() const { return padded() ? map.box[0] : map.box[0] * bits() / 8; }
  uint32_t pitch() const {
    return swizzle == tile::Swizzle::none ? inner() : std::max(inner(), tile::span(swizzle));
  }
  uint32_t rows() const { return count[1] * count[2] * count[3] * count[4]; }

  // Of row `row`: where its element `at[0]` is in global memory and which elements are inside.
  uint8_t* row_address(uint32_t row, int64_t& first, int64_t& last) const {
    bool inside = true;
    int64_t offset = 0;
    for (int d = 1; d < map.rank; ++d) {
      const int64_t index =
          at[d] + static_cast<int64_t>(row % count[d]) * std::max<int64_t>(map.step[d], 1);
      row /= count[d];
      if (index < 0 || static_cast<uint64_t>(index) >= map.extent[d]) inside = false;
      offset += index * static_cast<int64_t>(map.stride[d - 1]);
    }
    first = std::max<int64_t>(0, -at[0]);
    last = std::min<int64_t>(map.box[0], static_cast<int64_t>(map.extent[0]) - at[0]);
    if (!inside || last < first) first = last = 0;
    return static_cast<uint8_t*>(map.address) + offset;
  }
  uint8_t* element(uint8_t* row, int64_t index) const {
    return row + (at[0] + index) * static_cast<int64_t>(bits()) / 8;
  }
  uint32_t chunk(uint32_t base, uint32_t row, uint32_t byte) const {
    return (base & ~kOffset) | tile::swizzled(swizzle, (base & kOffset) + row * pitch() + byte);
  }

  // Says what `load` will write: not what lies between the rows when they are shorter than the
  // swizzle's span, which the chip leaves alone.
  void claim(AsyncOperation& copy, uint32_t base) const {
    if (pitch() == inner()) return copy.writes_shared(base, map.shared_bytes());
    for (uint32_t row = 0; row < rows(); ++row)
      for (uint32_t byte = 0; byte < inner(); byte += 16)
        copy.writes_shared(chunk(base, row, byte), 16);
  }

  void load(Agent& agent, const std::vector<uint32_t>& destinations, const Site& site) const {
    std::vector<uint8_t> line(inner()), packed(map.box[0] * bits() / 8);
    for (uint32_t row = 0; row < rows(); ++row) {
      int64_t first, last;
      uint8_t* from = row_address(row, first, last);
      map.fill_outside(packed.data(), packed.size());
      if (last > first) {
        const auto bytes = static_cast<uint32_t>((last - first) * bits() / 8);
        read_global(agent, element(from, first), packed.data() + first * bits() / 8, bytes, site);
        count_global(agent, element(from, first), bytes, false);
      }
      if (padded()) {  // 16 elements to the first bytes of 16
        const uint32_t group = 2 * bits();
        std::fill(line.begin(), line.end(), 0);
        for (uint32_t i = 0; i * 16 < line.size(); ++i) {
          std::memcpy(&line[i * 16], &packed[i * group], group);
        }
      } else {
        line.swap(packed);
      }
      for (const uint32_t base : destinations) {
        for (uint32_t byte = 0; byte < inner(); byte += 16) {
          write_shared(agent, chunk(base, row, byte), line.data() + byte, 16, site);
        }
      }
      if (!padded()) line.swap(packed);
    }
    count_async_shared(agent, uint64_t{inner()} * rows() * destinations.size());
  }

  void store(Agent& agent, uint32_t source, TensorReduction how, const Site& site) const {
    std::vector<uint8_t> line(inner()), packed(map.box[0] * bits() / 8);
    for (uint32_t row = 0; row < rows(); ++row) {
      for (uint32_t byte = 0; byte < inner(); byte += 16) {
        read_shared(agent, chunk(source, row, byte), line.data() + byte, 16, site);
      }
      if (padded()) {
        const uint32_t group = 2 * bits();
        for (uint32_t i = 0; i * 16 < line.size(); ++i) {
          std::memcpy(&packed[i * group], &line[i * 16], group);
        }
      } else {
        packed = line;
      }
      int64_t first, last;
      uint8_t* to = row_address(row, first, last);
      if (last == first) continue;
      write_reduced(agent, element(to, first), packed.data() + first * bits() / 8,
                    static_cast<uint32_t>((last - first) * bits() / 8), map.type, how, site);
    }
    count_async_shared(agent, uint64_t{inner()} * rows());
  }
};

Box make_box(Thread& thread, const TensorMap* given, const int32_t* coordinates, const char* what,
             const Site& site) {
  Box box;
  // The kernel has it in its parameters or in global memory.
  read_global(thread, given, &box.map, sizeof(TensorMap), site);
  const TensorMap& map = box.map;
  if (map.valid != TensorMap::kValid) {
    fatal(thread, "tensor_map.invalid", site, what,
          concat(what, ": the object is not a tensor map of this device"));
  }
  if (reinterpret_cast<uintptr_t>(given) % 64 != 0) {
    fatal(thread, "tensor_map.misaligned", site, what,
          concat(what, ": the tensor map is not aligned to 64 bytes"));
  }
  box.swizzle = static_cast<tile::Swizzle>(map.swizzle);
  for (int d = 0; d < map.rank; ++d) {
    box.at[d] = coordinates[d];
    const uint32_t step = d == 0 ? 1 : std::max<uint32_t>(map.step[d], 1);
    box.count[d] = (map.box[d] + step - 1) / step;
  }
  if (box.padded() && box.at[0] % 128 != 0) {
    fatal(thread, "tensor_map.coordinate", site, what,
          concat(what, ": coordinate 0 = ", box.at[0],
                 " of a padded 4- or 6-bit type is not a multiple of 128"));
  }
  if (map.type == TensorMapType::u4_align8 && box.at[0] % 2 != 0) {
    fatal(thread, "tensor_map.coordinate", site, what,
          concat(what, ": coordinate 0 = ", box.at[0], " of a 4-bit type is odd"));
  }
  return box;
}

void check_box_address(Thread& thread, const Box& box, uint32_t address, const char* what,
                       const Site& site) {
  check_multiple(thread, address & kOffset, 128, "shared address", what, site);
  const uint32_t pattern = tile::pattern_bytes(box.swizzle);
  if (box.swizzle != tile::Swizzle::none && (address & kOffset) % pattern != 0) {
    report(thread, Level::strict, "tensor_map.swizzle_alignment", site, what,
           concat(what, ": shared address 0x", std::hex, address & kOffset, std::dec,
                  " is not a multiple of ", pattern,
                  ", so the swizzle of the absolute address is not that of the tile"),
           "align swizzled tiles to 1024 (128-byte), 512 (64) or 256 (32) bytes");
  }
}

// An H200 stops with "illegal instruction" otherwise, whatever the type of 8 bits and more and the
// swizzle, also below 0 (docs/findings/gemm-hopper.md). Stores were not tried.
void check_load_coordinate(Thread& thread, const Box& box, const char* what, const Site& site) {
  const int64_t bits = int64_t{box.at[0]} * box.bits();
  if (box.bits() < 8 || bits % 128 == 0) return;
  fatal(thread, "tensor_map.coordinate", site, what,
        concat(what, ": coordinate 0 = ", box.at[0], " of ", box.bits(),
               "-bit elements is not a multiple of 16 bytes"));
}

}  // namespace

void tensor_load(Thread& thread, const TensorMap* map, const int32_t* coordinates,
                 uint32_t destination, uint32_t barrier, uint32_t blocks, const Site& site) {
  constexpr const char* what = "cp.async.bulk.tensor.shared.global";
  const Box box = make_box(thread, map, coordinates, what, site);
  check_box_address(thread, box, destination, what, site);
  check_load_coordinate(thread, box, what, site);
  // Loads fault when the base is nobody's, wherever the box lies; stores do not.
  const Allocation* base = find_allocation(box.map.address);
  if (base == nullptr || base->freed || !base->contains(box.map.address, 1)) {
    report(thread, Level::error, "tensor_map.unmapped_base", site, what,
           concat(what, ": the map's base address lies in no live allocation"),
           "make the map from an address of the tensor's own allocation");
  }
  AsyncOperation copy(Engine::bulk, what);
  std::vector<uint32_t> destinations;
  for_blocks(thread, blocks, what, site, [&](uint32_t rank) {
    const uint32_t to = rank == ~0u ? destination : at_rank(rank, destination);
    destinations.push_back(to);
    copy.complete_bytes(rank == ~0u ? barrier : at_rank(rank, barrier), box.map.box_bytes());
    if (box.pitch() == box.inner()) copy.writes_shared(to, box.inner() * box.rows());
  });
  count_instruction(what);
  copy.effect = [box, destinations, site](Agent& agent) { box.load(agent, destinations, site); };
  issue(thread, std::move(copy), site);
}

void tensor_store(Thread& thread, const TensorMap* map, const int32_t* coordinates, uint32_t source,
                  TensorReduction how, const Site& site) {
  const char* what = how == TensorReduction::none ? "cp.async.bulk.tensor.global.shared"
                                                  : "cp.reduce.async.bulk.tensor";
  const Box box = make_box(thread, map, coordinates, what, site);
  check_box_address(thread, box, source, what, site);
  for (int d = 0; d < box.map.rank; ++d) {
    if (box.at[d] >= 0) continue;
    report(thread, Level::error, "tensor_map.coordinate", site, what,
           concat(what, ": coordinate ", d, " = ", box.at[d], ": a store's may not be negative"));
  }
  AsyncOperation copy(Engine::bulk, what);
  count_instruction(what);
  copy.effect = [box, source, how, site](Agent& agent) { box.store(agent, source, how, site); };
  issue(thread, std::move(copy), site);
}

void tensor_prefetch(Thread& thread, const TensorMap* map, const int32_t* coordinates,
                     const Site& site) {
  make_box(thread, map, coordinates, "cp.async.bulk.prefetch.tensor", site);
}

void bulk_load(Thread& thread, uint32_t destination, const void* source, uint32_t bytes,
               uint32_t barrier, uint32_t blocks, const Site& site) {
  constexpr const char* what = "cp.async.bulk.shared.global";
  check_multiple(thread, destination & kOffset, 16, "shared address", what, site);
  check_multiple(thread, reinterpret_cast<uintptr_t>(source), 16, "global address", what, site);
  check_multiple(thread, bytes, 16, "size", what, site);
  AsyncOperation copy(Engine::bulk, what);
  std::vector<uint32_t> destinations;
  for_blocks(thread, blocks, what, site, [&](uint32_t rank) {
    const uint32_t to = rank == ~0u ? destination : at_rank(rank, destination);
    destinations.push_back(to);
    copy.complete_bytes(rank == ~0u ? barrier : at_rank(rank, barrier), bytes);
    copy.writes_shared(to, bytes);
  });
  count_instruction(what);
  copy.effect = [=](Agent& agent) {
    std::vector<uint8_t> data(bytes);
    read_global(agent, source, data.data(), bytes, site);
    count_global(agent, source, bytes, false);
    for (const uint32_t to : destinations) write_shared(agent, to, data.data(), bytes, site);
    count_async_shared(agent, uint64_t{bytes} * destinations.size());
  };
  issue(thread, std::move(copy), site);
}

void bulk_send(Thread& thread, uint32_t destination, uint32_t source, uint32_t bytes,
               uint32_t barrier, const Site& site) {
  constexpr const char* what = "cp.async.bulk.shared::cluster.shared::cta";
  check_multiple(thread, destination & kOffset, 16, "destination address", what, site);
  check_multiple(thread, source & kOffset, 16, "source address", what, site);
  check_multiple(thread, bytes, 16, "size", what, site);
  AsyncOperation copy(Engine::bulk, what);
  copy.complete_bytes(barrier, bytes);
  copy.writes_shared(destination, bytes);
  count_instruction(what);
  copy.effect = [=](Agent& agent) {
    std::vector<uint8_t> data(bytes);
    read_shared(agent, source, data.data(), bytes, site);
    write_shared(agent, destination, data.data(), bytes, site);
    count_async_shared(agent, 2 * uint64_t{bytes});
  };
  issue(thread, std::move(copy), site);
}

namespace {

void store_bytes(Thread& thread, const char* what, void* destination, uint32_t source,
                 uint32_t bytes, TensorMapType type, TensorReduction how, const Site& site) {
  check_multiple(thread, reinterpret_cast<uintptr_t>(destination), 16, "global address", what,
                 site);
  check_multiple(thread, source & kOffset, 16, "shared address", what, site);
  check_multiple(thread, bytes, 16, "size", what, site);
  AsyncOperation copy(Engine::bulk, what);
  count_instruction(what);
  copy.effect = [=](Agent& agent) {
    std::vector<uint8_t> data(bytes);
    read_shared(agent, source, data.data(), bytes, site);
    write_reduced(agent, destination, data.data(), bytes, type, how, site);
    count_async_shared(agent, bytes);
  };
  issue(thread, std::move(copy), site);
}

}  // namespace

void bulk_store(Thread& thread, void* destination, uint32_t source, uint32_t bytes,
                const Site& site) {
  store_bytes(thread, "cp.async.bulk.global.shared", destination, source, bytes, TensorMapType::u8,
              TensorReduction::none, site);
}

void bulk_reduce(Thread& thread, void* destination, uint32_t source, uint32_t bytes,
                 TensorMapType type, TensorReduction how, const Site& site) {
  store_bytes(thread, "cp.reduce.async.bulk.global.shared", destination, source, bytes, type, how,
              site);
}

void cp_async(Thread& thread, uint32_t destination, const void* source, uint32_t bytes,
              uint32_t from_source, const Site& site) {
  constexpr const char* what = "cp.async";
  if ((bytes != 4 && bytes != 8 && bytes != 16) || from_source > bytes) {
    fatal(thread, "cp_async.size", site, what,
          concat("cp.async of ", bytes, " bytes with ", from_source,
                 " from the source: 4, 8 or 16 bytes, and no more from the source"));
  }
  check_multiple(thread, destination & kOffset, bytes, "shared address", what, site);
  check_multiple(thread, reinterpret_cast<uintptr_t>(source), from_source == 0 ? 1 : bytes,
                 "global address", what, site);
  const Allocation* from = find_allocation(source);
  if (from_source > 0 && from != nullptr && !from->contains(source, bytes)) {
    report(thread, Level::strict, "cp_async.beyond_allocation", site, what,
           concat("cp.async of ", bytes, " bytes, ", from_source, " of them from the source, at ",
                  static_cast<const uint8_t*>(source) - from->data, " of an allocation of ",
                  from->bytes, " bytes"),
           "copy what is left element by element, or pad the rows");
  }
  // The banks see the copies of a warp as they see its stores.
  count_shared(thread, destination, bytes, what, site);
  AsyncOperation copy(Engine::cp_async, what);
  copy.writes_shared(destination, bytes);
  copy.effect = [=](Agent& agent) {
    uint8_t data[16] = {};
    read_global(agent, source, data, from_source, site);
    count_global(agent, source, from_source, false);
    write_shared(agent, destination, data, bytes, site);
  };
  issue(thread, std::move(copy), site);
}

void store_async(Thread& thread, uint32_t destination, const void* value, uint32_t bytes,
                 uint32_t barrier, const Site& site) {
  constexpr const char* what = "st.async";
  check_multiple(thread, destination & kOffset, bytes, "shared address", what, site);
  AsyncOperation store(Engine::remote_store, what);
  store.complete_bytes(barrier, bytes);
  store.writes_shared(destination, bytes);
  std::vector<uint8_t> data(static_cast<const uint8_t*>(value),
                            static_cast<const uint8_t*>(value) + bytes);
  store.effect = [=](Agent& agent) {
    count_async_shared(agent, bytes);
    write_shared(agent, destination, data.data(), bytes, site);
  };
  issue(thread, std::move(store), site);
}

}  // namespace halftone::sim
