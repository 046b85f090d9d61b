#include "sim/memory/tensor_pair_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/message.h"
#include "sim/memory/memory.h"
#include "sim/sim.h"
#include "tile/swizzle.h"

namespace halftone::sim {

namespace {

constexpr uint32_t kOffsetBits = (1u << 24) - 1;

// One row of a box: its coordinates and where it goes, from the start of the box.
struct BoxRow {
  int64_t at[5];
  uint32_t shared_offset;
};

struct BoxCopy {
  TensorMap map;
  const char* name;
  std::vector<BoxRow> rows;
  std::vector<uint32_t> destinations;  // addresses of the box, one a block

  uint32_t element_bytes() const { return map.element_bits() / 8; }
  uint32_t row_bytes() const { return map.box[0] * element_bytes(); }
  tile::Swizzle swizzle() const { return static_cast<tile::Swizzle>(map.swizzle); }
  // Rows keep the pitch of the swizzle's span (measured on an H200).
  uint32_t pitch() const {
    return swizzle() == tile::Swizzle::none ? row_bytes() : tile::span(swizzle());
  }
  bool inside(const BoxRow& row) const {
    for (int d = 1; d < map.rank; ++d) {
      if (row.at[d] < 0 || static_cast<uint64_t>(row.at[d]) >= map.extent[d]) return false;
    }
    return true;
  }
  // The bytes of a row that lie in the tensor: [first, last) of the box's row.
  void clip(const BoxRow& row, int64_t& first, int64_t& last) const {
    const auto extent = static_cast<int64_t>(map.extent[0]);
    first = row.at[0] < 0 ? -row.at[0] : 0;
    last = extent - row.at[0] < map.box[0] ? extent - row.at[0] : map.box[0];
    if (!inside(row) || last < first) first = last = 0;
  }
  uint8_t* global(const BoxRow& row, int64_t element) const {
    auto* at = static_cast<uint8_t*>(map.address) + (row.at[0] + element) * element_bytes();
    for (int d = 1; d < map.rank; ++d) {
      at += row.at[d] * static_cast<int64_t>(map.stride[d - 1]);
    }
    return at;
  }
  uint32_t chunk_address(uint32_t base, const BoxRow& row, uint32_t byte) const {
    const uint32_t block = base & ~kOffsetBits;
    return block | tile::swizzled(swizzle(), (base & kOffsetBits) + row.shared_offset + byte);
  }

  void load(Agent& agent, const Site& site) const {
    const uint32_t size = element_bytes();
    std::vector<uint8_t> bytes(row_bytes());
    for (const BoxRow& row : rows) {
      map.fill_outside(bytes.data(), bytes.size());
      int64_t first = 0, last = 0;
      clip(row, first, last);
      if (last > first) {
        const auto count = static_cast<uint32_t>(last - first) * size;
        const uint8_t* from = global(row, first);
        read_global(agent, from, bytes.data() + first * size, count, site);
        count_global(agent, from, count, false);
      }
      for (const uint32_t base : destinations) {
        for (uint32_t byte = 0; byte < row_bytes(); byte += 16) {
          write_shared(agent, chunk_address(base, row, byte), bytes.data() + byte, 16, site);
        }
      }
    }
    count_async_shared(agent, uint64_t{row_bytes()} * rows.size() * destinations.size());
  }
  void store(Agent& agent, const Site& site) const {
    std::vector<uint8_t> bytes(row_bytes());
    for (const BoxRow& row : rows) {
      for (uint32_t byte = 0; byte < row_bytes(); byte += 16) {
        read_shared(agent, chunk_address(destinations[0], row, byte), bytes.data() + byte, 16,
                    site);
      }
      int64_t first = 0, last = 0;
      clip(row, first, last);
      if (last == first) continue;
      const auto count = static_cast<uint32_t>(last - first) * element_bytes();
      uint8_t* to = global(row, first);
      write_global(agent, to, bytes.data() + first * element_bytes(), count, site);
      count_global(agent, to, count, true);
    }
    count_async_shared(agent, uint64_t{row_bytes()} * rows.size());
  }
};

BoxCopy make_copy(const void* opaque, const char* name, uint32_t rank, const Site& site) {
  BoxCopy copy{};
  copy.name = name;
  std::memcpy(&copy.map, opaque, sizeof copy.map);
  const TensorMap& map = copy.map;
  if (map.valid != TensorMap::kValid) {
    fatal(self(), "tensor_map.invalid", site, name, "the operand is not a tensor map");
  }
  if (rank != 0 && map.rank != rank) {
    fatal(self(), "tensor_map.rank", site, name,
          concat("the map has ", int{map.rank}, " dimensions, the instruction ", rank));
  }
  if (map.element_bits() < 8) {
    fatal(self(), "tma.unverified", site, name, "maps of 4- and 6-bit types are not verified");
  }
  for (int d = 0; d < map.rank; ++d) {
    if (map.step[d] > 1) {
      fatal(self(), "tma.unverified", site, name, "element strides above 1 are not modelled here");
    }
  }
  return copy;
}

void four_rows(BoxCopy& copy, const int32_t* at, const Site& site) {
  if (copy.map.box[1] != 1) {
    fatal(self(), "tma.gather4", site, copy.name,
          concat("the map's box has ", copy.map.box[1], " rows; gather4 and scatter4 take 1"));
  }
  for (uint32_t i = 0; i < 4; ++i) {
    copy.rows.push_back({{at[0], at[1 + i], 0, 0, 0}, i * copy.pitch()});
  }
}

void box_rows(BoxCopy& copy, const int32_t* at) {
  const TensorMap& map = copy.map;
  uint32_t count = 1;
  for (int d = 1; d < map.rank; ++d) count *= map.box[d];
  for (uint32_t i = 0; i < count; ++i) {
    BoxRow row{{at[0], 0, 0, 0, 0}, i * copy.pitch()};
    uint32_t rest = i;
    for (int d = 1; d < map.rank; ++d) {
      row.at[d] = at[d] + static_cast<int64_t>(rest % map.box[d]);
      rest /= map.box[d];
    }
    copy.rows.push_back(row);
  }
}

void check_shared(const BoxCopy& copy, uint32_t address, const Site& site) {
  const uint32_t pattern = tile::pattern_bytes(copy.swizzle());
  const uint32_t alignment = pattern > 128 ? pattern : 128;
  if ((address & kOffsetBits) % alignment != 0) {
    fatal(self(), "tma.alignment", site, copy.name,
          concat("shared address 0x", std::hex, address, " is not a multiple of ", std::dec,
                 alignment));
  }
}

void issue_load(BoxCopy copy, uint32_t destination, uint32_t barrier, uint32_t blocks,
                uint32_t cta_group, const Site& site) {
  check_shared(copy, destination, site);
  AsyncOperation work(Engine::bulk, copy.name);
  const auto bytes = static_cast<uint32_t>(copy.rows.size()) * copy.row_bytes();
  const auto add = [&](uint32_t to, uint32_t signalled) {
    copy.destinations.push_back(to);
    work.complete_bytes(signalled, bytes);
    const auto spread = static_cast<uint32_t>(copy.rows.size()) * copy.pitch();
    if (copy.pitch() == copy.row_bytes()) work.writes_shared(to, spread);
  };
  if (blocks == 0) {
    add(destination, barrier);
  } else {
    const uint32_t parity = shared_rank(self(), barrier) & 1;
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if ((blocks >> rank & 1) == 0) continue;
      if (rank >= cluster_size()) {
        fatal(self(), "tma.multicast", site, copy.name,
              concat("block ", rank, " of the mask is not in the cluster of ", cluster_size()));
      }
      const uint32_t signalled = cta_group == 2 ? (rank & ~1u) | parity : rank;
      add((rank + 1) << 24 | (destination & kOffsetBits),
          (signalled + 1) << 24 | (barrier & kOffsetBits));
    }
  }
  count_instruction(copy.name);
  work.effect = [copy = std::move(copy), site](Agent& agent) { copy.load(agent, site); };
  issue(self(), std::move(work), site);
}

}  // namespace

void tensor_load_gather4(const void* map, const int32_t* at, uint32_t destination, uint32_t barrier,
                         uint32_t blocks, uint32_t cta_group, const Site& site) {
  BoxCopy copy = make_copy(map, "cp.async.bulk.tensor.gather4", 2, site);
  four_rows(copy, at, site);
  issue_load(std::move(copy), destination, barrier, blocks, cta_group, site);
}

void tensor_store_scatter4(const void* map, const int32_t* at, uint32_t source, const Site& site) {
  BoxCopy copy = make_copy(map, "cp.async.bulk.tensor.scatter4", 2, site);
  four_rows(copy, at, site);
  check_shared(copy, source, site);
  copy.destinations.push_back(source);
  count_instruction(copy.name);
  AsyncOperation work(Engine::bulk, copy.name);
  work.effect = [copy = std::move(copy), site](Agent& agent) { copy.store(agent, site); };
  issue(self(), std::move(work), site);
}

void tensor_prefetch_gather4(const void* map, const int32_t* at, const Site& site) {
  BoxCopy copy = make_copy(map, "cp.async.bulk.prefetch.tensor.gather4", 2, site);
  four_rows(copy, at, site);
  count_instruction(copy.name);
}

void tensor_load_pair(const void* map, uint32_t rank, const int32_t* at, uint32_t destination,
                      uint32_t barrier, uint32_t blocks, const Site& site) {
  BoxCopy copy = make_copy(map, "cp.async.bulk.tensor.cta_group::2", rank, site);
  box_rows(copy, at);
  issue_load(std::move(copy), destination, barrier, blocks, 2, site);
}

}  // namespace halftone::sim
