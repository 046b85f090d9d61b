// halftone inspect: fragments, tensor memory, scales, descriptors.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "command.h"
#include "inspect/subjects.h"
#include "tile/descriptor.h"
#include "tile/fragment.h"
#include "tile/scale_factor.h"
#include "tile/tcgen05_instruction.h"

namespace halftone::app {

namespace {

using nlohmann::ordered_json;

std::vector<std::string> numbers(int count, int first = 0) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(first + i));
  return names;
}

Map empty_map(std::string title, std::string row, std::string column, int rows, int columns,
              std::string groups) {
  Map map{std::move(title), std::move(row), std::move(column), numbers(rows), numbers(columns), {},
          std::move(groups)};
  map.cells.assign(static_cast<size_t>(rows), std::vector<MapCell>(static_cast<size_t>(columns)));
  return map;
}

MapCell slot_cell(const tile::Slot& s, bool halves) {
  std::string text = fmt::format("{}.{}", s.thread, s.reg);
  if (halves) text += static_cast<char>('a' + s.element);
  return {std::move(text), s.reg % 8,
          ordered_json{{"thread", s.thread}, {"register", s.reg}, {"element", s.element}}};
}

int64_t number_between(const char* option, std::optional<int64_t> given, int64_t fallback,
                       int64_t least, int64_t most, int64_t step) {
  const int64_t value = given.value_or(fallback);
  if (value < least || value > most || value % step != 0) {
    wrong_input(fmt::format("inspect: {} is {}; here it is a multiple of {} from {} to {}", option,
                            value, step, least, most));
  }
  return value;
}

}  // namespace

Figure fragment_figure(const InspectOptions& o) {
  const std::string unit =
      choice_option("--unit", o.unit.empty() ? "mma" : o.unit, {"mma", "wgmma"});
  const bool wide = unit == "wgmma";
  const std::string operand = choice_option(
      "--operand", o.operand.empty() ? (wide ? "d" : "a") : o.operand,
      wide ? std::vector<std::string>{"a", "d"} : std::vector<std::string>{"a", "b", "c"});
  const auto bits = static_cast<int>(o.bits.value_or(operand == "c" || operand == "d" ? 32 : 16));
  const int k = tile::mma_k(bits);
  Figure figure;
  Map map;
  const bool parts = bits < 32;
  if (operand == "c" || operand == "d") {
    if (bits != 16 && bits != 32)
      wrong_input(fmt::format("inspect: --bits is {}; accumulators have 16 or 32", bits));
    const int rows = wide ? 64 : 16;
    const int n = wide ? static_cast<int>(number_between("--n", o.n, 16, 8, 256, 8)) : 8;
    figure.title = fmt::format("{} accumulator, {} x {} of {} bits", unit, rows, n, bits);
    map = empty_map("", "row", "column", rows, n, "register modulo 8");
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < n; ++col) {
        tile::Slot s = wide ? tile::wgmma_d_slot({row, col}) : tile::mma_c_slot({row, col});
        if (bits == 16) s = {s.thread, s.reg / 2, s.reg % 2};  // two neighbours in a register
        map.cells[row][col] = slot_cell(s, parts);
      }
    }
  } else {
    const bool a = operand == "a";
    const int rows = a ? (wide ? 64 : 16) : k, columns = a ? k : 8;
    figure.title = fmt::format("{} fragment {}, {} x {} ({}) of {} bits", unit, a ? "A" : "B", rows,
                               columns, a ? "m x k" : "k x n", bits);
    map = empty_map("", a ? "m" : "k", a ? "k" : "n", rows, columns, "register");
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < columns; ++col) {
        const tile::Element e{row, col};
        const tile::Slot s = !a     ? tile::mma_b_slot(e, bits)
                             : wide ? tile::wgmma_a_slot(e, bits)
                                    : tile::mma_a_slot(e, bits);
        map.cells[row][col] = slot_cell(s, parts);
      }
    }
  }
  map.title = fmt::format("thread.register{} of each element",
                          parts ? " and place in it (a is the lowest bits)" : "");
  figure.facts.emplace_back("threads", wide ? "128, warp w has rows 16w to 16w + 15" : "32");
  figure.maps.push_back(std::move(map));
  return figure;
}

Figure tensor_shape_figure(const InspectOptions& o) {
  const std::string name = choice_option("--shape", o.shape.empty() ? "32x32b" : o.shape,
                                         {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"});
  const auto shape = name == "32x32b"    ? tile::TensorShape::s32x32b
                     : name == "16x64b"  ? tile::TensorShape::s16x64b
                     : name == "16x128b" ? tile::TensorShape::s16x128b
                     : name == "16x256b" ? tile::TensorShape::s16x256b
                                         : tile::TensorShape::s16x32bx2;
  const auto num = static_cast<int>(o.num.value_or(name == "32x32b" ? 8 : 2));
  if (!tile::valid_num(shape, num)) {
    wrong_input(
        fmt::format("inspect: --num is {}; {} takes a power of two with at most 128 "
                    "registers",
                    num, name));
  }
  const int split = static_cast<int>(o.split.value_or(num));
  const int registers = tile::tensor_shape_registers(shape, num);
  const int lanes = tile::tensor_shape_lanes(shape);
  int columns = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < registers; ++reg)
      columns = std::max(columns, tile::tensor_shape_cell(shape, lane, reg, split).col + 1);
  Figure figure;
  figure.title = fmt::format("tcgen05.ld and tcgen05.st {}.x{}", name, num);
  figure.facts = {{"registers", fmt::format("{} a thread", registers)},
                  {"reaches", fmt::format("{} lanes x {} columns of the warp's window of 32 lanes",
                                          lanes, columns)}};
  if (shape == tile::TensorShape::s16x32bx2)
    figure.facts.emplace_back("split", fmt::format("{} columns", split));
  Map map = empty_map("thread.register of each 32-bit cell", "lane", "column", lanes, columns,
                      "register modulo 8");
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < registers; ++reg) {
      const tile::Cell c = tile::tensor_shape_cell(shape, lane, reg, split);
      map.cells[c.lane][c.col] = slot_cell({lane, reg, 0}, false);
    }
  }
  figure.maps.push_back(std::move(map));
  return figure;
}

Figure tensor_copy_figure(const InspectOptions& o) {
  const std::vector<std::string> names = {"128x256b",      "128x128b",       "64x128b.02_13",
                                          "64x128b.01_23", "32x128b.warpx4", "4x256b"};
  const std::string name =
      choice_option("--shape", o.shape.empty() ? "32x128b.warpx4" : o.shape, names);
  const auto copy =
      static_cast<tile::TensorCopy>(std::find(names.begin(), names.end(), name) - names.begin());
  const int columns = tile::tensor_copy_line_bytes(copy) / 4;
  Figure figure;
  figure.title = fmt::format("tcgen05.cp {}: lines of shared memory to lanes", name);
  figure.facts = {{"reads", fmt::format("{} lines of {} bytes", tile::tensor_copy_lines(copy),
                                        tile::tensor_copy_line_bytes(copy))},
                  {"writes", fmt::format("{} columns of each lane", columns)}};
  Map map{"line that each lane receives", "lanes", "lane", {}, numbers(8), {}, "line / 32"};
  for (int first = 0; first < 128; first += 8) {
    map.rows.push_back(fmt::format("{}-{}", first, first + 7));
    auto& row = map.cells.emplace_back();
    for (int lane = first; lane < first + 8; ++lane) {
      const int line = tile::tensor_copy_line(copy, lane);
      if (line < 0) {
        row.push_back({"-", -1, nullptr});
      } else {
        row.push_back({std::to_string(line), line / 32, ordered_json{{"line", line}}});
      }
    }
  }
  figure.maps.push_back(std::move(map));
  return figure;
}

Figure accumulator_figure(const InspectOptions& o) {
  const auto ctas = static_cast<int>(o.ctas.value_or(1));
  tile::Tcgen05Instruction i;
  i.m = static_cast<int>(o.m.value_or(128)), i.n = static_cast<int>(o.n.value_or(128));
  i.ctas = ctas, i.weight_stationary = o.weight_stationary;
  if (const char* rule = i.broken_rule()) {
    wrong_input(fmt::format("inspect: --m {} --n {} --ctas {}{}: {}", i.m, i.n, ctas,
                            o.weight_stationary ? " --ws" : "", rule));
  }
  const tile::Accumulator layout = tile::accumulator_of(i.m, ctas, o.weight_stationary);
  const int columns = tile::accumulator_columns(layout, i.n);
  Figure figure;
  figure.title = fmt::format("accumulator of tcgen05.mma in tensor memory, M {} N {}, {}", i.m, i.n,
                             ctas == 1 ? "one CTA" : "two CTAs, one of them");
  figure.facts = {{"rows of this CTA", std::to_string(tile::accumulator_rows(layout))},
                  {"columns", fmt::format("{} of 512", columns)},
                  {"32-bit results", "a cell each; FP16 results take the low half of a cell"}};
  // Lanes in groups of 16 and columns in eighths: inside a group both count up by one.
  const int wide = std::max(1, columns / 8);
  Map map{"rows and columns of D in each block of cells",
          "lanes",
          fmt::format("{} columns from", wide),
          {},
          {},
          {},
          "warp window of 32 lanes"};
  for (int c = 0; c < columns; c += wide) map.columns.push_back(std::to_string(c));
  for (int lane = 0; lane < 128; lane += 16) {
    map.rows.push_back(fmt::format("{}-{}", lane, lane + 15));
    auto& line = map.cells.emplace_back();
    for (int c = 0; c < columns; c += wide) {
      const tile::Cell e = tile::accumulator_element(layout, {lane, c}, i.n);
      if (e.lane < 0) {
        line.push_back({"-", -1, nullptr});
      } else {
        line.push_back({fmt::format("m{}+ n{}+", e.lane, e.col), lane / 32,
                        ordered_json{{"m", e.lane}, {"n", e.col}}});
      }
    }
  }
  figure.maps.push_back(std::move(map));
  return figure;
}

Figure scales_figure(const InspectOptions& o) {
  const std::string unit =
      choice_option("--unit", o.unit.empty() ? "tcgen05" : o.unit, {"tcgen05", "mma"});
  Figure figure;
  if (unit == "mma") {
    figure.title = "scales of block-scaled mma.sync: the lane that holds each";
    figure.facts = {{"A", "selector 0 or 1 of the instruction picks lanes 0, 1 or 2, 3 of a quad"},
                    {"B", "selector 0 to 3 picks one lane of a quad"}};
    Map a = empty_map("A: lane of the scale of row m", "selector", "m", 2, 16, "m / 8");
    for (int s = 0; s < 2; ++s)
      for (int m = 0; m < 16; ++m) {
        const int lane = tile::mma_scale_a_lane(m, s);
        a.cells[s][m] = {std::to_string(lane), m / 8, ordered_json{{"lane", lane}}};
      }
    Map b = empty_map("B: lane of the scale of column n", "selector", "n", 4, 8, "selector");
    for (int s = 0; s < 4; ++s)
      for (int n = 0; n < 8; ++n) {
        const int lane = tile::mma_scale_b_lane(n, s);
        b.cells[s][n] = {std::to_string(lane), s, ordered_json{{"lane", lane}}};
      }
    figure.maps = {std::move(a), std::move(b)};
    return figure;
  }
  figure.title = "scale atom 128x4: the scales of 128 rows and 4 blocks along K in 512 bytes";
  figure.facts = {{"byte", "row % 32 * 16 + row / 32 * 4 + block"},
                  {"tensor memory", "lane row % 32 (in every window), column row / 32, byte block"},
                  {"copy",
                   "tcgen05.cp.32x128b.warpx4: line i of the map to lanes i, i + 32, "
                   "i + 64, i + 96"}};
  Map map = empty_map("row.block of each byte", "line", "byte of the 16", 32, 16,
                      "column of tensor memory");
  for (int offset = 0; offset < tile::kScaleAtomBytes; ++offset) {
    const tile::Scale s = tile::scale_atom_element(offset);
    map.cells[offset / 16][offset % 16] = {
        fmt::format("{}.{}", s.row, s.block), tile::scale_cell(s).cell.col,
        ordered_json{{"row", s.row}, {"block", s.block}, {"byte", offset}}};
  }
  figure.maps.push_back(std::move(map));
  return figure;
}

Figure descriptor_figure(const InspectOptions& o) {
  const std::string unit = choice_option(
      "--unit", o.unit.empty() ? "wgmma" : o.unit,
      {"wgmma", "tcgen05", "f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"});
  uint64_t bits = 0;
  const std::string digits = o.value.starts_with("0x") ? o.value.substr(2) : o.value;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (o.value.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    wrong_input(
        fmt::format("inspect: descriptor is \"{}\"; it must be a hexadecimal number, as in "
                    "halftone inspect descriptor 0x4000004000010040",
                    o.value));
  }
  Figure figure;
  if (unit == "wgmma" || unit == "tcgen05") {
    const bool hopper = unit == "wgmma";
    const tile::OperandFields f =
        hopper ? tile::WgmmaDescriptor{bits}.decode() : tile::Tcgen05Descriptor{bits}.decode();
    figure.title = fmt::format("{} shared-memory descriptor {}", unit, hex(bits, 16));
    figure.facts = {{"start", hex(f.start)},
                    {"leading", fmt::format("{} bytes", f.leading)},
                    {"stride", fmt::format("{} bytes", f.stride)},
                    {"base offset", std::to_string(f.base_offset)},
                    {"swizzle", tile::name(f.swizzle)}};
    const bool legal = hopper || tile::Tcgen05Descriptor{bits}.valid();
    if (!legal) {
      figure.note =
          "Not a tcgen05 operand: bits 46 to 48 are 1, bits 52 to 60 are 0 and the "
          "swizzle is 0, 1, 2, 4 or 6.";
    } else if (f.base_offset != 0) {
      figure.note =
          "A base offset other than 0 reads data placed by tile-relative swizzles; tensor "
          "copies place it by the absolute address.";
    } else if (!f.line_aligned()) {
      figure.note = fmt::format(
          "The start is not on a pattern boundary of {} bytes (plus a step "
          "inside a line): the swizzle would be shifted.",
          tile::pattern_bytes(f.swizzle));
    }
    return figure;
  }
  using Kind = tile::Tcgen05Kind;
  const Kind kind = unit == "f16"        ? Kind::f16
                    : unit == "tf32"     ? Kind::tf32
                    : unit == "f8f6f4"   ? Kind::f8f6f4
                    : unit == "i8"       ? Kind::i8
                    : unit == "mxf4"     ? Kind::mxf4
                    : unit == "mxf4nvf4" ? Kind::mxf4nvf4
                                         : Kind::mxf8f6f4;
  if (bits >> 32 != 0)
    wrong_input(fmt::format("inspect: descriptor is {}; an instruction descriptor has 32 bits",
                            hex(bits, 8)));
  const auto i = tile::Tcgen05Instruction::decode(static_cast<uint32_t>(bits), kind);
  constexpr const char* kTypes[] = {"f16",  "bf16", "tf32", "e4m3", "e5m2",
                                    "e2m3", "e3m2", "e2m1", "u8",   "s8"};
  constexpr const char* kResults[] = {"f16", "f32", "s32", "none"};
  figure.title = fmt::format("tcgen05 instruction descriptor {}, kind::{}", hex(bits, 8), unit);
  figure.facts = {
      {"M x N x K", fmt::format("{} x {} x {}", i.m, i.n, tile::tcgen05_k(kind))},
      {"A", fmt::format("{}, {}-major{}", kTypes[static_cast<int>(i.a)],
                        i.a_major == tile::Major::k ? "K" : "MN", i.negate_a ? ", negated" : "")},
      {"B", fmt::format("{}, {}-major{}", kTypes[static_cast<int>(i.b)],
                        i.b_major == tile::Major::k ? "K" : "MN", i.negate_b ? ", negated" : "")}};
  if (tile::is_block_scaled(kind)) {
    figure.facts.emplace_back("scales", i.scale == tile::Tcgen05Scale::ue4m3 ? "ue4m3" : "ue8m0");
    figure.facts.emplace_back("scale bytes from",
                              fmt::format("{} of A, {} of B", i.a_scale_id, i.b_scale_id));
  } else {
    figure.facts.emplace_back("D", kResults[static_cast<int>(i.d) & 3]);
  }
  // M of two CTAs and of .ws are not told apart by the bits.
  auto pair = i;
  pair.ctas = 2;
  auto stationary = i;
  stationary.weight_stationary = true;
  const char* rule = i.broken_rule();
  if (rule != nullptr && !pair.valid() && !stationary.valid())
    figure.note = fmt::format("Not an instruction: {}.", rule);
  return figure;
}

}  // namespace halftone::app
