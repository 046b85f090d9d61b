#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/message.h"
#include "formats/codec.h"
#include "sim/memory/memory.h"
#include "sim/mma/tcgen05.h"
#include "sim/mma/tcgen05_operand.h"
#include "sim/numerics/mma.h"
#include "sim/sim.h"

namespace halftone::sim {

using tile::Accumulator;
using tile::Tcgen05Instruction;
using tile::Tcgen05Kind;
using tile::Tcgen05Result;
using tile::Tcgen05Scale;
using tile::Tcgen05Type;

namespace {

// One tcgen05.mma, decoded and checked at its issue.
struct Plan {
  Tcgen05Mma op;
  Tcgen05Instruction instruction;
  OperandStorage a_storage, b_storage;
  MmaRule rule;
  MmaAccumulator accumulator;
  Accumulator layout;
  int k = 0, blocks = 0;  // scales along K
  const char* name = "tcgen05.mma";
  Block* block[2] = {};  // even rank first
  int rows() const { return instruction.m / instruction.ctas; }
};

// What the simulator cannot know ends the launch, rather than give numbers that may be wrong.
[[noreturn]] void refuse(const Plan& plan, const char* rule, const Site& site, std::string why) {
  fatal(self(), rule, site, plan.name, std::move(why));
}

const char* kind_counter(const Tcgen05Instruction& i) {
  switch (i.kind) {
    case Tcgen05Kind::f16:
      return i.a == Tcgen05Type::f16 ? "tcgen05.f16" : "tcgen05.bf16";
    case Tcgen05Kind::tf32:
      return "tcgen05.tf32";
    case Tcgen05Kind::i8:
      return "tcgen05.s8";
    case Tcgen05Kind::f8f6f4:
      return "tcgen05.f8f6f4";
    case Tcgen05Kind::mxf8f6f4:
      return "tcgen05.mxf8f6f4";
    case Tcgen05Kind::mxf4:
      return "tcgen05.mxf4";
    case Tcgen05Kind::mxf4nvf4:
      return "tcgen05.mxf4nvf4";
  }
  return "tcgen05";
}

MmaScales scales_of(const Plan& plan, const Site& site) {
  const Tcgen05Instruction& i = plan.instruction;
  switch (i.kind) {
    case Tcgen05Kind::mxf8f6f4:
      return MmaScales::mxf8f6f4;
    case Tcgen05Kind::mxf4:
      return MmaScales::mxf4;
    case Tcgen05Kind::mxf4nvf4:
      if (plan.op.scale_block == 16) {
        return i.scale == Tcgen05Scale::ue4m3 ? MmaScales::nvf4 : MmaScales::nvf4_ue8m0_16;
      }
      if (i.scale == Tcgen05Scale::ue4m3) {
        refuse(plan, "tcgen05.instruction", site, "UE4M3 scales are for blocks of 16");
      }
      return MmaScales::mxf4;
    default:
      return MmaScales::none;
  }
}

void check_tensor_operand_a(const Plan& plan, const Site& site) {
  const Tcgen05Instruction& i = plan.instruction;
  if (i.a_major == tile::Major::mn) {
    refuse(plan, "tcgen05.instruction", site, "A in tensor memory has no major: its bit 15 is 0");
  }
  if (plan.op.weight_stationary && i.m != 128) {
    refuse(plan, "tcgen05.unverified", site,
           concat("where .ws finds A of M ", i.m, " in tensor memory is not verified"));
  }
  if (plan.a_storage.bits < 8 && !tile::is_packed_fp4(i.kind)) {
    refuse(plan, "tcgen05.unverified", site,
           "how FP4 and FP6 of this kind lie in tensor memory is not verified");
  }
  if (tile::is_packed_fp4(i.kind)) {
    report(self(), Level::warning, "tcgen05.unverified", site, plan.name,
           "packed FP4 in tensor memory, eight elements a cell: stated, not verified");
  }
}

Plan checked(const Tcgen05Mma& op, const Site& site) {
  Plan plan;
  plan.op = op;
  if (op.weight_stationary) plan.name = "tcgen05.mma.ws";
  Thread& me = self();
  Tcgen05Instruction& i = plan.instruction;
  i = Tcgen05Instruction::decode(op.instruction, op.kind);
  i.ctas = static_cast<int>(op.cta_group);
  i.weight_stationary = op.weight_stationary;
  if (i.encode() != op.instruction) {
    refuse(plan, "tcgen05.instruction", site,
           concat("instruction descriptor 0x", std::hex, op.instruction,
                  " sets bits that the simulator does not know: sparsity, K 96, a .ws shift, or a "
                  "type the kind does not have"));
  }
  if (const char* broken = i.broken_rule()) {
    refuse(plan, "tcgen05.instruction", site,
           concat("instruction descriptor 0x", std::hex, op.instruction, std::dec, " (M ", i.m,
                  ", N ", i.n, "): ", broken));
  }
  if (op.zero_columns != 0) {
    refuse(plan, "tcgen05.unverified", site, "how a zero-column mask repeats is not verified");
  }
  plan.block[0] = me.block;
  if (i.ctas == 2) {
    if (me.block->rank % 2 != 0) {
      refuse(plan, "tcgen05.pair", site,
             concat("block ", me.block->rank,
                    " of the cluster issued it: the one of even rank leads a pair"));
    }
    if (me.block->rank + 1 >= cluster_size()) {
      refuse(plan, "tcgen05.pair", site, "cta_group::2 needs a second block in the cluster");
    }
    plan.block[1] = &cluster_of(me).blocks[me.block->rank + 1];
  }
  plan.k = tile::tcgen05_k(i.kind);
  plan.layout = tile::accumulator_of(i.m, i.ctas, op.weight_stationary);
  plan.a_storage = operand_storage(i.kind, i.a);
  plan.b_storage = operand_storage(i.kind, i.b);
  const uint32_t lane = op.d >> 16;
  if (lane != 0 && !(lane == 16 && plan.layout == Accumulator::rows64)) {
    refuse(plan, "tcgen05.address", site,
           concat("D starts at lane ", lane, "; its lanes begin at 0",
                  plan.layout == Accumulator::rows64 ? " or 16" : ""));
  }
  if (op.a.in_tensor_memory) {
    check_tensor_operand_a(plan, site);
  } else if (const char* broken =
                 broken_rule(tile::Tcgen05Descriptor{op.a.bits}, i.a_major, plan.a_storage)) {
    refuse(plan, "tcgen05.descriptor", site, concat("descriptor of A: ", broken));
  }
  if (const char* broken = broken_rule(op.b, i.b_major, plan.b_storage)) {
    refuse(plan, "tcgen05.descriptor", site, concat("descriptor of B: ", broken));
  }
  const MmaScales scales = scales_of(plan, site);
  if (scales != MmaScales::none) {
    plan.blocks = plan.k / op.scale_block;
    if (i.a_scale_id + plan.blocks > 4 || i.b_scale_id + plan.blocks > 4) {
      refuse(plan, "tcgen05.instruction", site,
             concat(plan.blocks, " scales from byte ", i.a_scale_id, " (A) and ", i.b_scale_id,
                    " (B) on leave the four bytes of a cell"));
    }
    if (plan.layout == Accumulator::split2 && i.n % 64 != 0) {
      refuse(plan, "tcgen05.unverified", site,
             concat("scales of B for M 128 over two blocks are verified for N in steps of 64, not ",
                    i.n));
    }
  }
  plan.accumulator = i.d == Tcgen05Result::f16   ? MmaAccumulator::f16
                     : i.d == Tcgen05Result::s32 ? MmaAccumulator::s32
                                                 : MmaAccumulator::f32;
  const auto rule = mma_rule(arch(), MmaUnit::tcgen05, plan.a_storage.type, plan.b_storage.type,
                             plan.accumulator, scales);
  if (!rule) {
    refuse(plan, "tcgen05.instruction", site,
           concat("no arithmetic is known for A ", name(plan.a_storage.type), ", B ",
                  name(plan.b_storage.type), " and this D"));
  }
  plan.rule = *rule;
  return plan;
}

// A from the tensor memory of `block`: 32 bytes of a row in 8 columns of its lane.
void gather_tensor_a(Agent& agent, Block& block, const Plan& plan, OperandCodes& a,
                     const Site& site) {
  uint32_t cells[8], copy[8];
  for (int lane = 0; lane < 128; ++lane) {
    const int row = plan.layout == Accumulator::rows64
                        ? tile::accumulator_element(plan.layout, {lane, 0}, 8).lane
                        : lane;
    if (row < 0 || row >= plan.rows()) continue;
    const auto at = static_cast<uint32_t>(plan.op.a.bits) + (static_cast<uint32_t>(lane) << 16);
    read_tensor(agent, block, at, 8, cells, site);
    if (plan.layout == Accumulator::split2) {  // the upper windows work on the same rows
      read_tensor(agent, block, at + (64u << 16), 8, copy, site);
      if (!std::equal(cells, cells + 8, copy)) {
        report(agent, Level::error, "tcgen05.a_windows", site, plan.name,
               concat("row ", row, " of A differs between lanes ", lane, " and ", lane + 64),
               "write A to both halves of tensor memory");
      }
    }
    uint8_t* codes = a.row(row);
    if (plan.a_storage.bits >= 8) {
      std::memcpy(codes, cells, 32);
    } else {
      for (int k = 0; k < a.k; ++k) codes[k] = cells[k / 8] >> 4 * (k % 8) & 15;
    }
  }
}

bool disabled(const Plan& plan, int cta, int lane) {
  return plan.op.disabled_lanes[cta * 4 + lane / 32] >> lane % 32 & 1;
}

// D of one block as a matrix [rows, n] of the accumulator's type, and back to tensor memory.
class AccumulatorRows {
 public:
  AccumulatorRows(const Plan& plan, int cta)
      : plan_(plan),
        cta_(cta),
        n_(plan.instruction.n),
        columns_(tile::accumulator_columns(plan.layout, n_)),
        words_(static_cast<size_t>(plan.rows() * n_)),
        halves_(plan.accumulator == MmaAccumulator::f16 ? words_.size() : 0) {}

  void read(Agent& agent, const Site& site) {
    for_each_lane([&](uint32_t at, uint32_t* cells) {
      read_tensor(agent, block(), at, static_cast<uint32_t>(columns_), cells, site, true);
    });
    for (size_t i = 0; i < halves_.size(); ++i) halves_[i] = static_cast<uint16_t>(words_[i]);
    if (plan_.op.d_shift == 0) return;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (!halves_.empty()) {
        halves_[i] = encode_f16(std::ldexp(decode_f16(halves_[i]), -plan_.op.d_shift));
      } else {
        words_[i] =
            std::bit_cast<uint32_t>(std::ldexp(std::bit_cast<float>(words_[i]), -plan_.op.d_shift));
      }
    }
  }
  void write(Agent& agent, const Site& site) {
    for (size_t i = 0; i < halves_.size(); ++i) words_[i] = halves_[i];
    for_each_lane([&](uint32_t at, uint32_t* cells) {
      write_tensor(agent, block(), at, static_cast<uint32_t>(columns_), cells, site);
    });
  }
  void* data() { return halves_.empty() ? static_cast<void*>(words_.data()) : halves_.data(); }

 private:
  Block& block() const { return *plan_.block[cta_]; }
  template <class Visit>
  void for_each_lane(Visit visit) {
    for (int lane = 0; lane < 128; ++lane) {
      const tile::Cell element = tile::accumulator_element(plan_.layout, {lane, 0}, n_);
      const int physical = lane + static_cast<int>(plan_.op.d >> 16);
      if (element.lane < 0 || disabled(plan_, cta_, physical)) continue;
      visit(plan_.op.d + (static_cast<uint32_t>(lane) << 16),
            &words_[static_cast<size_t>(element.lane * n_ + element.col)]);
    }
  }

  const Plan& plan_;
  const int cta_, n_, columns_;
  std::vector<uint32_t> words_;
  std::vector<uint16_t> halves_;
};

struct ScaleCodes {
  std::vector<uint8_t> a, b;
};

ScaleCodes gather_all_scales(Agent& agent, const Plan& plan, Block& block, const Site& site) {
  const Tcgen05Instruction& i = plan.instruction;
  ScaleCodes scales;
  if (plan.blocks == 0) return scales;
  // Kernels may keep the id in the top bits of the address as well.
  const uint32_t a_address = plan.op.a_scales & 0x3fffffff;
  const uint32_t b_address = plan.op.b_scales & 0x3fffffff;
  const auto size = [&](int rows) { return static_cast<size_t>(rows * plan.blocks); };
  scales.a.resize(size(plan.rows()));
  scales.b.resize(size(i.n));
  gather_scales(agent, block, a_address, plan.rows(), plan.blocks, i.a_scale_id, 0xf, "A",
                scales.a.data(), site);
  if (plan.layout != Accumulator::split2) {
    gather_scales(agent, block, b_address, i.n, plan.blocks, i.b_scale_id, 0xf, "B",
                  scales.b.data(), site);
  } else {  // each half of the windows works on one half of N
    const int half = i.n / 2;
    gather_scales(agent, block, b_address, half, plan.blocks, i.b_scale_id, 0x3, "B",
                  scales.b.data(), site);
    gather_scales(agent, block, b_address, half, plan.blocks, i.b_scale_id, 0xc, "B",
                  scales.b.data() + size(half), site);
  }
  return scales;
}

OperandCodes empty_operand(const OperandStorage& storage, int rows, int k) {
  OperandCodes codes{storage.type, rows, k, {}};
  codes.bytes.resize(static_cast<size_t>(rows) * codes.row_bytes());
  return codes;
}

void run(Agent& agent, const Plan& plan, const Site& site) {
  const Tcgen05Instruction& i = plan.instruction;
  OperandCodes b = empty_operand(plan.b_storage, i.n, plan.k);
  for (int cta = 0; cta < i.ctas; ++cta) {  // each block holds its share of N
    const int share = i.n / i.ctas;
    gather_shared(agent, *plan.block[cta], plan.op.b, i.b_major, plan.b_storage, b, cta * share,
                  share, site);
  }
  for (int cta = 0; cta < i.ctas; ++cta) {
    Block& block = *plan.block[cta];
    OperandCodes a = empty_operand(plan.a_storage, plan.rows(), plan.k);
    if (plan.op.a.in_tensor_memory) {
      gather_tensor_a(agent, block, plan, a, site);
    } else {
      gather_shared(agent, block, tile::Tcgen05Descriptor{plan.op.a.bits}, i.a_major,
                    plan.a_storage, a, 0, plan.rows(), site);
    }
    ScaleCodes scales = gather_all_scales(agent, plan, block, site);
    AccumulatorRows d(plan, cta);
    if (plan.op.accumulate) d.read(agent, site);
    const auto operand = [&](OperandCodes& codes, bool negate, const std::vector<uint8_t>& s) {
      return MmaOperand{
          codes.type, codes.bytes.data(), codes.k, negate, s.empty() ? nullptr : s.data(),
          plan.blocks};
    };
    MmaTile tile{plan.rows(),
                 i.n,
                 plan.k,
                 operand(a, i.negate_a, scales.a),
                 operand(b, i.negate_b, scales.b),
                 plan.op.accumulate ? d.data() : nullptr,
                 d.data(),
                 i.n,
                 1,
                 i.saturate};
    if (launch_of(agent).options.numerics == SimulatorOptions::Numerics::exact) {
      mma_exact(plan.rule, tile);
    } else {
      mma_fast(plan.rule, tile);
    }
    d.write(agent, site);
  }
}

}  // namespace

void tcgen05_mma(const Tcgen05Mma& op, const Site& site) {
  const Plan plan = checked(op, site);
  const Tcgen05Instruction& i = plan.instruction;
  count_instruction(plan.name);
  count_multiply_adds(kind_counter(i), static_cast<uint64_t>(i.m) * static_cast<uint64_t>(i.n) *
                                           static_cast<uint64_t>(plan.k));
  AsyncOperation work(Engine::tcgen05_mma, plan.name);
  work.effect = [plan, site](Agent& agent) { run(agent, plan, site); };
  issue(self(), std::move(work), site);
}

}  // namespace halftone::sim
