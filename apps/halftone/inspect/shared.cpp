// halftone inspect: shared memory. Swizzles, ldmatrix and stmatrix, thread accesses, operands.
#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "inspect/subjects.h"
#include "pipe/tensor_map.h"
#include "tile/descriptor.h"
#include "tile/ldmatrix.h"

namespace halftone::app {

namespace {

using nlohmann::ordered_json;
using tile::Swizzle;

// Rows of a tile in shared memory: pitch bytes each, then padding, then the swizzle.
struct RowLayout {
  Swizzle swizzle;
  uint32_t pitch, padding, base;
  uint32_t address(uint32_t row, uint32_t byte) const {
    return tile::swizzled(swizzle, base + row * (pitch + padding) + byte);
  }
  void describe(Figure& figure) const {
    figure.facts.emplace_back(
        "row pitch",
        fmt::format("{} bytes{}", pitch + padding,
                    padding > 0 ? fmt::format(" ({} + {})", pitch, padding) : std::string()));
    figure.facts.emplace_back("swizzle", tile::name(swizzle));
    if (base != 0) figure.facts.emplace_back("base", hex(base));
  }
};

RowLayout row_layout(const InspectOptions& o, uint32_t default_pitch) {
  RowLayout layout{};
  layout.swizzle = swizzle_option(o, Swizzle::none);
  layout.pitch = static_cast<uint32_t>(o.pitch.value_or(
      layout.swizzle == Swizzle::none ? default_pitch : tile::span(layout.swizzle)));
  layout.padding = static_cast<uint32_t>(o.padding.value_or(0));
  layout.base = static_cast<uint32_t>(o.base.value_or(0));
  if (layout.swizzle != Swizzle::none && layout.base % tile::pattern_bytes(layout.swizzle) != 0) {
    wrong_input(
        fmt::format("inspect: --base is {}; a tile with swizzle {} starts on a multiple of "
                    "{} bytes",
                    layout.base, tile::name(layout.swizzle), tile::pattern_bytes(layout.swizzle)));
  }
  return layout;
}

MapCell address_cell(uint32_t address) {
  return {fmt::format("{}/{}", hex(address), tile::bank_of(address)),
          static_cast<int>(address / 16 % 8),
          ordered_json{{"address", address}, {"bank", tile::bank_of(address)}}};
}

constexpr const char* kBankGroups = "the 16 bytes (4 banks) of 128 that the address lies in";

std::vector<std::string> numbers(uint32_t count, const std::string& before = "") {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) names.push_back(before + std::to_string(i));
  return names;
}

// The phase of eight 16-byte lines, as one matrix of ldmatrix.
Phase lines_phase(std::string name, const std::vector<uint32_t>& lines) {
  uint32_t addresses[32] = {};
  std::copy(lines.begin(), lines.end(), addresses);
  return {std::move(name),
          tile::bank_phase(addresses, ~0u, 0, static_cast<uint32_t>(lines.size()), 16)};
}

void require_aligned(uint32_t address, uint32_t bytes, const std::string& who) {
  if (address % bytes == 0) return;
  wrong_input(
      fmt::format("inspect: {} is at address {}; accesses of {} bytes are aligned to {} "
                  "(see --pitch, --padding, --base)",
                  who, address, bytes, bytes));
}

}  // namespace

Figure swizzle_figure(const InspectOptions& o) {
  const Swizzle s = swizzle_option(o, Swizzle::b128);
  const auto bits = static_cast<uint32_t>(o.bits.value_or(16));
  const uint32_t row_bytes = static_cast<uint32_t>(o.pitch.value_or(tile::span(s)));
  if (row_bytes % 16 != 0 || (s != Swizzle::none && row_bytes > tile::span(s))) {
    wrong_input(
        fmt::format("inspect: --pitch is {}; a line of a copy's box is a multiple of 16 "
                    "bytes and fits the swizzle's {}",
                    row_bytes, tile::span(s)));
  }
  // A box narrower than the swizzle keeps the pitch of the swizzle (measured on an H200).
  const uint32_t pitch = s == Swizzle::none ? row_bytes : tile::span(s);
  const uint32_t base = row_layout(o, pitch).base;
  const uint32_t rows =
      static_cast<uint32_t>(o.rows.value_or(std::max(8u, tile::pattern_bytes(s) / pitch)));
  Figure figure;
  figure.title = fmt::format("swizzle {}", tile::name(s));
  figure.facts = {
      {"line",
       fmt::format("{} bytes, {} elements of {} bits", row_bytes, row_bytes * 8 / bits, bits)},
      {"moves",
       s == Swizzle::none ? "nothing" : fmt::format("pieces of {} bytes", tile::atom_bytes(s))},
      {"repeats after", fmt::format("{} bytes: the alignment of the tile", tile::pattern_bytes(s))},
      {"address bits", s == Swizzle::none ? "unchanged"
                                          : fmt::format("address ^ (address >> {} & {})",
                                                        s == Swizzle::b128_atom32   ? 2
                                                        : s == Swizzle::b128_atom64 ? 1
                                                                                    : 3,
                                                        hex(tile::swizzle_mask(s), 2))}};
  if (base != 0) figure.facts.emplace_back("base", hex(base));
  Map map{
      "address/bank of each 16-byte chunk", "line", "chunk", numbers(rows), {}, {}, kBankGroups};
  const uint32_t chunks = row_bytes / 16, per_chunk = 128 / bits;
  for (uint32_t c = 0; c < chunks; ++c)
    map.columns.push_back(fmt::format("{}:{}-{}", c, c * per_chunk, (c + 1) * per_chunk - 1));
  map.column_name = "chunk:elements";
  for (uint32_t r = 0; r < rows; ++r) {
    auto& line = map.cells.emplace_back();
    for (uint32_t c = 0; c < chunks; ++c)
      line.push_back(address_cell(tile::swizzled(s, base + r * pitch + c * 16)));
  }
  figure.maps.push_back(std::move(map));
  for (uint32_t c = 0; c < chunks; ++c) {
    std::vector<uint32_t> lines;
    for (uint32_t r = 0; r < std::min(rows, 8u); ++r)
      lines.push_back(tile::swizzled(s, base + r * pitch + c * 16));
    figure.phases.push_back(
        lines_phase(fmt::format("chunk {} of lines 0-{}", c, lines.size() - 1), lines));
  }
  return figure;
}

Figure box_figure(const InspectOptions& o) {
  InspectOptions lines = o;
  const auto bits = static_cast<uint32_t>(o.bits.value_or(16));
  const Swizzle s = swizzle_option(o, Swizzle::none);
  const auto columns = static_cast<uint32_t>(o.columns.value_or(8 * tile::span(s) / bits));
  const auto rows = static_cast<uint32_t>(o.rows.value_or(8));
  // A tensor that the box fits, so that the rules broken are the box's.
  const hw::Type type = bits == 4    ? hw::Type::e2m1
                        : bits == 8  ? hw::Type::u8
                        : bits == 16 ? hw::Type::u16
                                     : hw::Type::u32;
  alignas(128) static uint8_t anywhere[128];
  const pipe::TensorBox box =
      pipe::matrix_box(type, anywhere, 1 << 16, 1 << 16, 1 << 18, rows, columns, s);
  pipe::validate(box);
  lines.swizzle = tile::name(s);
  lines.pitch = int64_t{columns} * bits / 8;
  Figure figure = swizzle_figure(lines);
  figure.title = fmt::format("tensor copy of a box of {} x {} elements of {} bits, swizzle {}",
                             rows, columns, bits, tile::name(s));
  figure.facts.insert(
      figure.facts.begin(),
      {{"at the mbarrier",
        fmt::format("{} bytes, also where the box leaves the tensor", box.box_bytes())},
       {"shared memory", fmt::format("{} bytes from a multiple of {}", box.shared_bytes(),
                                     std::max(128u, tile::pattern_bytes(s)))}});
  return figure;
}

namespace {

tile::MatrixForm matrix_form(const InspectOptions& o, bool transposed) {
  const std::string name =
      choice_option("--matrix", o.matrix, {"m8n8", "m8n16.b4", "m8n16.b6", "m16n16.b8"});
  if (name == "m8n8")
    return transposed ? tile::MatrixForm::m8n8_b16_trans : tile::MatrixForm::m8n8_b16;
  if (o.subject == "stmatrix")
    wrong_input(fmt::format("inspect: --matrix is {}; stmatrix is shown for m8n8", name));
  if (name == "m16n16.b8") return tile::MatrixForm::m16n16_b8_trans;
  if (transposed)
    wrong_input(fmt::format("inspect: --form is {}; {} is not transposed", o.form, name));
  return name == "m8n16.b4" ? tile::MatrixForm::m8n16_b4 : tile::MatrixForm::m8n16_b6;
}

// Which register, lane and place in it holds each element of a matrix.
Map matrix_map(tile::MatrixForm form, bool store) {
  const int rows = tile::matrix_rows(form), columns = tile::matrix_columns(form);
  const int registers = tile::registers_per_matrix(form), bits = tile::matrix_element_bits(form);
  Map map{fmt::format("lane{}.place that {} each element (register {})",
                      registers > 1 ? ".register" : "", store ? "gives" : "receives",
                      registers > 1 ? "0 or 1 of the matrix's two" : "= matrix"),
          "row",
          fmt::format("element of {} bits", bits),
          numbers(static_cast<uint32_t>(rows)),
          numbers(static_cast<uint32_t>(columns)),
          {},
          ""};
  map.cells.assign(static_cast<size_t>(rows), std::vector<MapCell>(static_cast<size_t>(columns)));
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < registers; ++reg) {
      for (int e = 0; e < 32 / bits; ++e) {
        const tile::Element at = tile::matrix_element(form, {lane, reg, e});
        map.cells[at.row][at.col] = {
            registers > 1 ? fmt::format("{}.{}.{}", lane, reg, e) : fmt::format("{}.{}", lane, e),
            -1, ordered_json{{"lane", lane}, {"register", reg}, {"place", e}}};
      }
    }
  }
  return map;
}

}  // namespace

Figure matrix_figure(const InspectOptions& o) {
  const bool store = o.subject == "stmatrix";
  const std::string form = choice_option("--form", o.form, {"a", "b", "a-trans", "b-trans"});
  const bool transposed = form.ends_with("-trans");
  const tile::MatrixForm matrix = matrix_form(o, transposed);
  const bool wide = matrix == tile::MatrixForm::m16n16_b8_trans;  // 16 rows, so two at most
  const auto count = static_cast<uint32_t>(o.count.value_or(wide ? 2 : 4));
  if (count == 3 || (wide && count > 2)) {
    wrong_input(fmt::format("inspect: --count is {}; {} takes {} matrices", count, o.subject,
                            wide ? "1 or 2" : "1, 2 or 4"));
  }
  const RowLayout layout = row_layout(o, 128);
  const auto row = static_cast<uint32_t>(o.row.value_or(0));
  const auto chunk = static_cast<uint32_t>(o.chunk.value_or(0));
  const auto place_of = [&](int lane) -> tile::RowChunk {
    if (wide) return {lane % 16, lane / 16};
    return form == "a"         ? tile::ldmatrix_a(lane)
           : form == "b"       ? tile::ldmatrix_b(lane)
           : form == "a-trans" ? tile::ldmatrix_a_trans(lane)
                               : tile::ldmatrix_b_trans(lane);
  };

  Figure figure;
  figure.title = wide ? fmt::format("{}.m16n16.x{}.trans of 8-bit elements", o.subject, count)
                      : fmt::format("{}{}.x{}{}, the lanes' addresses of fragment {}", o.subject,
                                    o.matrix == "m8n8" ? "" : "." + o.matrix, count,
                                    transposed ? ".trans" : "", form[0] == 'a' ? "A" : "B");
  layout.describe(figure);
  if (row != 0 || chunk != 0)
    figure.facts.emplace_back("from", fmt::format("row {}, 16-byte chunk {}", row, chunk));
  if (wide) figure.note = "The order of the bytes is derived from public layouts, not measured.";

  // A phase takes eight rows.
  Map map{"address/bank of each row", "", "row of eight", {}, numbers(8), {}, kBankGroups};
  for (int first = 0; first < static_cast<int>(count) * tile::matrix_rows(matrix); first += 8) {
    const int m = first / tile::matrix_rows(matrix);
    map.rows.push_back(fmt::format("matrix {} (lanes {}-{})", m, first, first + 7));
    auto& line = map.cells.emplace_back();
    std::vector<uint32_t> lines;
    for (int lane = first; lane < first + 8; ++lane) {
      const tile::RowChunk place = place_of(lane);
      const uint32_t address = layout.address(row + static_cast<uint32_t>(place.row),
                                              (chunk + static_cast<uint32_t>(place.chunk)) * 16);
      require_aligned(address, 16, fmt::format("the row of lane {}", lane));
      lines.push_back(address);
      MapCell cell = address_cell(address);
      cell.value["lane"] = lane;
      cell.value["row"] = row + static_cast<uint32_t>(place.row);
      cell.value["chunk"] = chunk + static_cast<uint32_t>(place.chunk);
      line.push_back(std::move(cell));
    }
    figure.phases.push_back(
        lines_phase(wide ? fmt::format("matrix {}, rows {}-{}", m, first % 16, first % 16 + 7)
                         : fmt::format("matrix {}", m),
                    lines));
  }
  figure.maps.push_back(std::move(map));
  figure.maps.push_back(matrix_map(matrix, store));
  return figure;
}

Figure access_figure(const InspectOptions& o) {
  const auto bytes = static_cast<uint32_t>(o.bytes.value_or(16));
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)
    wrong_input(fmt::format("inspect: --bytes is {}; a thread accesses 1, 2, 4, 8 or 16", bytes));
  const RowLayout layout = row_layout(o, 128);
  const auto across =
      static_cast<uint32_t>(o.across.value_or(std::clamp<int64_t>(layout.pitch / bytes, 1, 32)));
  const auto row = static_cast<uint32_t>(o.row.value_or(0));
  const auto chunk = static_cast<uint32_t>(o.chunk.value_or(0));
  uint32_t addresses[32];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    addresses[lane] =
        o.address.empty()
            ? layout.address(row + lane / across, chunk * 16 + lane % across * bytes)
            : tile::swizzled(layout.swizzle, layout.base + lane_expression(o.address, lane));
    require_aligned(addresses[lane], bytes, fmt::format("lane {}", lane));
  }
  Figure figure;
  figure.title = fmt::format("{}-byte accesses of a warp", bytes);
  if (o.address.empty()) {
    layout.describe(figure);
    figure.facts.emplace_back("rule", fmt::format("{} neighbouring lanes to a row", across));
  } else {
    figure.facts.emplace_back("rule", o.address);
    figure.facts.emplace_back("swizzle", tile::name(layout.swizzle));
  }
  Map map{"address/bank of each lane", "lanes", "lane + ", {}, numbers(8, "+"), {}, kBankGroups};
  map.column_name = "lane";
  for (uint32_t first = 0; first < 32; first += 8) {
    map.rows.push_back(fmt::format("{}-{}", first, first + 7));
    auto& line = map.cells.emplace_back();
    for (uint32_t i = 0; i < 8; ++i) line.push_back(address_cell(addresses[first + i]));
  }
  figure.maps.push_back(std::move(map));
  const uint32_t lanes = tile::lanes_per_phase(bytes);
  for (uint32_t first = 0; first < 32; first += lanes) {
    figure.phases.push_back({fmt::format("lanes {}-{}", first, first + lanes - 1),
                             tile::bank_phase(addresses, ~0u, first, lanes, bytes)});
  }
  return figure;
}

Figure operand_figure(const InspectOptions& o) {
  const std::string unit =
      choice_option("--unit", o.unit.empty() ? "wgmma" : o.unit, {"wgmma", "tcgen05"});
  tile::SharedTile t;
  t.major =
      choice_option("--major", o.major, {"k", "mn"}) == "k" ? tile::Major::k : tile::Major::mn;
  t.swizzle = swizzle_option(o, Swizzle::b128);
  t.element_bits = static_cast<uint32_t>(o.bits.value_or(16));
  t.mn = static_cast<uint32_t>(o.mn.value_or(64));
  t.k = static_cast<uint32_t>(o.k.value_or(t.major == tile::Major::k
                                               ? std::max(t.panel_elements(), 256 / t.element_bits)
                                               : 256 / t.element_bits));
  const uint32_t base = static_cast<uint32_t>(o.base.value_or(0));
  if (const char* rule = t.broken_rule()) {
    wrong_input(
        fmt::format("inspect: operand of {} x {} elements of {} bits, {}-major, swizzle {}: "
                    "{}",
                    t.mn, t.k, t.element_bits, o.major, tile::name(t.swizzle), rule));
  }
  if (base % t.alignment() != 0) {
    wrong_input(
        fmt::format("inspect: --base is {}; a tile with swizzle {} starts on a multiple of "
                    "{} bytes",
                    base, tile::name(t.swizzle), t.alignment()));
  }
  const bool hopper = unit == "wgmma";
  if (hopper && (!tile::WgmmaDescriptor::has(t.swizzle) ||
                 (t.major == tile::Major::mn && t.element_bits != 16)))
    wrong_input(
        "inspect: wgmma reads MN-major operands of 16-bit elements only, with swizzles "
        "none, 32, 64 and 128");

  Figure figure;
  figure.title = fmt::format("{} operand in shared memory: {} x {} elements (mn x k) of {} bits",
                             unit, t.mn, t.k, t.element_bits);
  const auto bits = [&](uint32_t k0) {
    return hopper ? tile::WgmmaDescriptor::of(t, base).advanced(t.advance(0, k0)).bits
                  : tile::Tcgen05Descriptor::of(t, base).advanced(t.advance(0, k0)).bits;
  };
  figure.facts = {
      {"major", t.major == tile::Major::k ? "K" : "MN"},
      {"swizzle", tile::name(t.swizzle)},
      {"bytes", fmt::format("{} in {} panel{} of {} lines of {}", t.bytes(), t.panels(),
                            t.panels() == 1 ? "" : "s", t.lines(), t.span())},
      {"leading, stride", fmt::format("{}, {} bytes", t.leading_bytes(), t.stride_bytes())},
      {"descriptor", hex(bits(0), 16)}};
  const uint32_t step = 256 / t.element_bits;
  for (uint32_t k0 = step; k0 < std::min(t.k, 8 * step); k0 += step) {
    figure.facts.emplace_back(fmt::format("  from k = {}", k0),
                              fmt::format("{} (start + {})", hex(bits(k0), 16), t.advance(0, k0)));
  }
  const bool k_major = t.major == tile::Major::k;
  const uint32_t per_chunk = 128 / t.element_bits;
  const uint32_t chunks = t.contiguous() / per_chunk;
  const uint32_t lines = std::min<uint32_t>(t.lines(), static_cast<uint32_t>(o.rows.value_or(16)));
  Map map{fmt::format("address/bank of each 16-byte chunk{}",
                      lines < t.lines() ? fmt::format(", the first {} lines", lines) : ""),
          k_major ? "mn" : "k",
          fmt::format("first {} of the chunk", k_major ? "k" : "mn"),
          numbers(lines),
          {},
          {},
          kBankGroups};
  for (uint32_t c = 0; c < chunks; ++c) map.columns.push_back(std::to_string(c * per_chunk));
  for (uint32_t r = 0; r < lines; ++r) {
    auto& line = map.cells.emplace_back();
    for (uint32_t c = 0; c < chunks; ++c)
      line.push_back(address_cell(k_major ? t.address(base, r, c * per_chunk)
                                          : t.address(base, c * per_chunk, r)));
  }
  for (uint32_t c = 0; c < std::min(chunks, 8u); ++c) {
    std::vector<uint32_t> core;
    for (uint32_t r = 0; r < 8 && r < lines; ++r)
      core.push_back(map.cells[r][c].value["address"].get<uint32_t>());
    figure.phases.push_back(lines_phase(
        fmt::format("{} {}-{}", k_major ? "k" : "mn", c * per_chunk, (c + 1) * per_chunk - 1),
        core));
  }
  figure.maps.push_back(std::move(map));
  figure.note = "A phase here is a core matrix, 8 lines of 16 bytes, as ldmatrix would read it.";
  return figure;
}

}  // namespace halftone::app
