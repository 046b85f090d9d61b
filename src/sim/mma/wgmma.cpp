#include "sim/mma/wgmma.h"

#include <cstring>
#include <string>
#include <vector>

#include "sim/memory/memory.h"
#include "sim/numerics/mma.h"
#include "sim/sim.h"
#include "tile/fragment.h"

namespace halftone::sim {
namespace {

constexpr int kRows = 64;
constexpr uint32_t kThreads = 128;

// Codes of an operand as the numerics take them: `rows` rows of k elements.
using Codes = std::vector<uint8_t>;

// What one descriptor says about an operand of `rows` rows (columns, for B).
struct SharedOperand {
  const char* name;
  tile::OperandFields fields;
  tile::Major major;
  int rows, k, bytes;  // of an element
};

// Descriptors that nobody has seen the meaning of are refused, as are those that lie.
void check_descriptor(const char* name, tile::WgmmaDescriptor descriptor, const Site& site) {
  const tile::OperandFields f = descriptor.decode();
  const auto refuse = [&](const std::string& text, const char* fix) {
    fatal(self(), "wgmma.descriptor", site, "issues wgmma",
          std::string("the descriptor of ") + name + ' ' + text, fix);
  };
  if (f.base_offset != 0) {
    refuse("has base offset " + std::to_string(f.base_offset),
           "start the tile on its swizzle's pattern and leave the base offset 0");
  }
  if (!f.line_aligned()) {
    refuse("starts at " + std::to_string(f.start) + ", which is not at the beginning of a pattern",
           "align the tile to 1024, 512 or 256 bytes for swizzles of 128, 64 or 32");
  }
}

// Reads the operand by the agent of the instruction, 16 bytes at a time: what stays together.
Codes read_operand(Agent& agent, const SharedOperand& o, const Site& site) {
  Codes codes(static_cast<size_t>(o.rows) * static_cast<size_t>(o.k * o.bytes));
  const int chunk = 16 / o.bytes;
  const auto bits = static_cast<uint32_t>(o.bytes) * 8;
  const bool k_major = o.major == tile::Major::k;
  const int lines = k_major ? o.rows : o.k, along = k_major ? o.k : o.rows;
  for (int line = 0; line < lines; ++line) {
    for (int at = 0; at < along; at += chunk) {
      const auto mn = static_cast<uint32_t>(k_major ? line : at);
      const auto k = static_cast<uint32_t>(k_major ? at : line);
      const uint32_t offset = tile::operand_offset(o.major, o.fields.swizzle, bits,
                                                   o.fields.leading, o.fields.stride, mn, k);
      const uint32_t address = tile::swizzled(o.fields.swizzle, o.fields.start + offset);
      uint8_t bytes[16];
      read_shared(agent, address, bytes, sizeof bytes, site);
      for (int i = 0; i < chunk; ++i) {
        const int row = k_major ? line : at + i, column = k_major ? at + i : line;
        std::memcpy(&codes[static_cast<size_t>((row * o.k + column) * o.bytes)],
                    bytes + i * o.bytes, static_cast<size_t>(o.bytes));
      }
    }
  }
  count_async_shared(agent, codes.size());
  return codes;
}

struct Call {
  Wgmma wgmma;
  MmaRule rule;
  bool a_in_registers;
  tile::WgmmaDescriptor a, b;
  bool accumulate;
  Site site;
  int k() const { return 256 / wgmma.element_bits; }
  int bytes() const { return wgmma.element_bits / 8; }
  // Of a thread's part of D.
  uint32_t d_bytes() const {
    const int value = wgmma.accumulator == MmaAccumulator::f16 ? 2 : 4;
    return static_cast<uint32_t>(wgmma.n / 2 * value);
  }
};

// Registers of A, four of each thread, are numbers 128 to 255 of the operation; D's are 0 to 127.
Codes register_operand(Agent& agent, const Call& call) {
  Codes codes(static_cast<size_t>(kRows) * 32);
  const int count = tile::elements_per_register(call.wgmma.element_bits);
  for (int thread = 0; thread < static_cast<int>(kThreads); ++thread) {
    const auto* registers =
        in_flight<const uint8_t>(agent, kThreads + static_cast<uint32_t>(thread));
    for (int reg = 0; reg < 4; ++reg) {
      for (int i = 0; i < count; ++i) {
        const tile::Element e = tile::wgmma_a_element({thread, reg, i}, call.wgmma.element_bits);
        std::memcpy(&codes[static_cast<size_t>((e.row * call.k() + e.col) * call.bytes())],
                    registers + reg * 4 + i * call.bytes(), static_cast<size_t>(call.bytes()));
      }
    }
  }
  return codes;
}

template <class Value>
void run(Agent& agent, const Call& call, const MmaOperand& a, const MmaOperand& b) {
  const int n = call.wgmma.n;
  std::vector<Value> values(static_cast<size_t>(kRows) * static_cast<size_t>(n));
  // Registers come in pairs of neighbouring columns; each four are eight columns further on.
  const auto each_pair = [&](auto visit) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      auto* registers = in_flight<uint8_t>(agent, thread);
      for (int pair = 0; pair < 2; ++pair) {
        const tile::Element e = tile::wgmma_d_element(static_cast<int>(thread), 2 * pair);
        Value* row = values.data() + e.row * n + e.col;
        for (int i = 0; i < n / 8; ++i) {
          visit(registers + static_cast<size_t>(4 * i + 2 * pair) * sizeof(Value), row + 8 * i);
        }
      }
    }
  };
  constexpr size_t kPair = 2 * sizeof(Value);
  if (call.accumulate) {
    each_pair([](const uint8_t* at, Value* pair) { std::memcpy(pair, at, kPair); });
  }
  MmaTile tile{};
  tile.m = kRows;
  tile.n = n;
  tile.k = call.k();
  tile.a = a;
  tile.b = b;
  tile.c = call.accumulate ? values.data() : nullptr;
  tile.d = values.data();
  tile.row_stride = n;
  tile.column_stride = 1;
  mma(launch_of(agent).options.numerics, call.rule, tile);
  each_pair([](uint8_t* at, const Value* pair) { std::memcpy(at, pair, kPair); });
}

void multiply(Agent& agent, const Call& call) {
  const Wgmma& w = call.wgmma;
  const Codes a =
      call.a_in_registers
          ? register_operand(agent, call)
          : read_operand(agent, {"A", call.a.decode(), w.a_major, kRows, call.k(), call.bytes()},
                         call.site);
  const Codes b = read_operand(
      agent, {"B", call.b.decode(), w.b_major, w.n, call.k(), call.bytes()}, call.site);
  const MmaOperand a_rows{w.a, a.data(), call.k()}, b_rows{w.b, b.data(), call.k()};
  switch (w.accumulator) {
    case MmaAccumulator::f32:
      return run<float>(agent, call, a_rows, b_rows);
    case MmaAccumulator::f16:
      return run<uint16_t>(agent, call, a_rows, b_rows);
    case MmaAccumulator::s32:
      return run<int32_t>(agent, call, a_rows, b_rows);
  }
}

struct Operands {
  void* d;
  const uint32_t* a;
};

void issue_wgmma(const Call& call, Operands mine) {
  require(hw::Feature::wgmma, "wgmma.mma_async", call.site);
  check_descriptor("B", call.b, call.site);
  if (!call.a_in_registers) check_descriptor("A", call.a, call.site);
  warpgroup_collective("wgmma.mma_async", mine,
                       [&call](const GroupLanes<Operands>& lanes) {
                         count_multiply_adds(call.wgmma.kind,
                                             uint64_t{kRows} * static_cast<uint64_t>(call.k()) *
                                                 static_cast<uint64_t>(call.wgmma.n));
                         Thread& first = self().block->threads[self().index / kThreads * kThreads];
                         AsyncOperation operation(Engine::wgmma, "wgmma.mma_async");
                         Thread* threads = &first;
                         for (uint32_t i = 0; i < kThreads; ++i) {
                           operation.writes_registers(threads[i], lanes[i].d, call.d_bytes());
                         }
                         for (uint32_t i = 0; call.a_in_registers && i < kThreads; ++i) {
                           operation.reads_registers(threads[i], lanes[i].a, 16);
                         }
                         operation.effect = [call](Agent& agent) { multiply(agent, call); };
                         issue(Issuers(first, kThreads), std::move(operation), call.site);
                       },
                       call.site,
                       {{{"descriptor of A", call.a.bits},
                         {"descriptor of B", call.b.bits},
                         {"scale-d", call.accumulate}}});
}

MmaRule rule_of(const Wgmma& w, const Site& site) {
  const auto rule = mma_rule(arch(), MmaUnit::wgmma, w.a, w.b, w.accumulator);
  if (!rule) require_feature(false, "wgmma.mma_async", site);
  return *rule;
}

struct None {};

}  // namespace

void wgmma(const Wgmma& w, void* d, tile::WgmmaDescriptor a, tile::WgmmaDescriptor b,
           bool accumulate, const Site& site) {
  require(hw::Feature::wgmma, "wgmma.mma_async", site);
  issue_wgmma({w, rule_of(w, site), false, a, b, accumulate, site}, {d, nullptr});
}

void wgmma(const Wgmma& w, void* d, const uint32_t* a, tile::WgmmaDescriptor b, bool accumulate,
           const Site& site) {
  require(hw::Feature::wgmma, "wgmma.mma_async", site);
  issue_wgmma({w, rule_of(w, site), true, {}, b, accumulate, site}, {d, a});
}

void wgmma_fence(const Site& site) {
  require(hw::Feature::wgmma, "wgmma.fence", site);
  None mine;
  warp_collective(
      "wgmma.fence", kFullMask, mine, [&](const Lanes<None>&) { wgmma_fence(self(), site); }, site);
}

void wgmma_commit(const Site& site) {
  require(hw::Feature::wgmma, "wgmma.commit_group", site);
  None mine;
  warp_collective(
      "wgmma.commit_group", kFullMask, mine,
      [&](const Lanes<None>&) { commit_group(self(), Engine::wgmma, site); }, site);
}

void wgmma_wait(uint32_t pending, const Site& site) {
  require(hw::Feature::wgmma, "wgmma.wait_group", site);
  None mine;
  warp_collective("wgmma.wait_group", kFullMask, mine, [](const Lanes<None>&) {}, site,
                  {{{"groups", pending}}});
  wait_group(self(), Engine::wgmma, pending, false, site);
}

}  // namespace halftone::sim
