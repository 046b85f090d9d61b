// halftone inspect: where data lies for an instruction, and what its bank conflicts are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "command.h"
#include "console.h"
#include "inspect/subjects.h"

namespace halftone::app {

namespace {

struct InspectArguments : InspectOptions {
  bool json = false;
  std::string svg;
};

struct Subject {
  const char* name;
  Figure (*figure)(const InspectOptions&);
};
constexpr Subject kSubjects[] = {
    {"swizzle", swizzle_figure},   {"tma", box_figure},
    {"ldmatrix", matrix_figure},   {"stmatrix", matrix_figure},
    {"access", access_figure},     {"operand", operand_figure},
    {"fragment", fragment_figure}, {"tmem", tensor_shape_figure},
    {"copy", tensor_copy_figure},  {"accumulator", accumulator_figure},
    {"scales", scales_figure},     {"descriptor", descriptor_figure},
};

std::vector<std::string> subject_names() {
  std::vector<std::string> names;
  for (const Subject& s : kSubjects) names.emplace_back(s.name);
  return names;
}

void write_svg(const std::string& path, const Figure& figure) {
  std::ofstream file(path, std::ios::binary);
  file << as_svg(figure);
  file.close();
  if (!file) {
    throw Error(ErrorCode::io, fmt::format("inspect: --svg {} cannot be written", path));
  }
}

int run_inspect(const InspectArguments& o) {
  const auto* subject = std::find_if(std::begin(kSubjects), std::end(kSubjects),
                                     [&](const Subject& s) { return o.subject == s.name; });
  if (subject == std::end(kSubjects))
    unknown_choice("inspect: subject", o.subject, subject_names());
  if (!o.value.empty() && o.subject != "descriptor") {
    wrong_input(fmt::format("inspect: \"{}\" is one argument too many; only descriptor takes one",
                            o.value));
  }
  if (o.bits && *o.bits != 4 && *o.bits != 8 && *o.bits != 16 && *o.bits != 32)
    wrong_input(fmt::format("inspect: --bits is {}; elements have 4, 8, 16 or 32", *o.bits));
  const Figure figure = subject->figure(o);
  if (!o.svg.empty()) write_svg(o.svg, figure);
  if (o.json) {
    fmt::print("{}\n", as_json(figure).dump());
  } else {
    fmt::print("{}", as_text(figure, coloured(1)));
  }
  return kOk;
}

std::function<int()> declare_inspect(CLI::App& app) {
  const auto o = std::make_shared<InspectArguments>();
  app.add_option("subject", o->subject,
                 "swizzle, tma, ldmatrix, stmatrix, access, operand: shared\n"
                 "memory; fragment: registers; tmem, copy, accumulator,\n"
                 "scales: tensor memory (tcgen05.ld and st, .cp, .mma);\n"
                 "descriptor HEX: what a descriptor says")
      ->required();
  app.add_option("value", o->value, "the descriptor, in hexadecimal");
  app.add_option("--swizzle", o->swizzle, "none, 32, 64, 128, 128-atom32 or 128-atom64");
  add_number(app, "--pitch", o->pitch, 1, 1 << 17, "bytes of a row without padding");
  add_number(app, "--padding", o->padding, 0, 1 << 16, "bytes after each row");
  add_number(app, "--base", o->base, 0, (1 << 18) - 1, "address of the tile");
  add_number(app, "--row", o->row, 0, 4096, "first row that is accessed");
  add_number(app, "--chunk", o->chunk, 0, 4096, "first 16-byte chunk that is accessed");
  add_number(app, "--count", o->count, 1, 4, "ldmatrix, stmatrix: matrices, 1, 2 or 4");
  app.add_option("--form", o->form, "ldmatrix, stmatrix: the fragment, a, b, a-trans or b-trans");
  app.add_option("--matrix", o->matrix, "ldmatrix: m8n8, m8n16.b4, m8n16.b6 or m16n16.b8");
  add_number(app, "--bytes", o->bytes, 1, 16, "access: bytes a lane, 1, 2, 4, 8 or 16");
  add_number(app, "--across", o->across, 1, 32, "access: neighbouring lanes to a row");
  app.add_option("--address", o->address,
                 "access: the rule, e.g. \"lane % 8 * 128 + lane / 8 * 16\"");
  app.add_option(
      "--unit", o->unit,
      "mma, wgmma, tcgen05; of an instruction descriptor\nits kind: f16, f8f6f4, mxf4 ...");
  app.add_option("--operand", o->operand, "fragment: a, b, c or d");
  add_number(app, "--bits", o->bits, 4, 32, "of an element: 4, 8, 16 or 32");
  app.add_option("--major", o->major, "operand: k or mn");
  add_number(app, "--mn", o->mn, 1, 1024, "operand: rows of A or columns of B");
  add_number(app, "--k", o->k, 1, 4096, "operand: extent along K");
  add_number(app, "--rows", o->rows, 1, 1024, "lines that are shown; tma: rows of the box");
  add_number(app, "--columns", o->columns, 1, 4096, "tma: elements of a row of the box");
  app.add_option("--shape", o->shape,
                 "tmem: 32x32b, 16x64b, 16x128b, 16x256b or 16x32bx2\n"
                 "copy: 128x256b, 128x128b, 64x128b.02_13, 64x128b.01_23,\n"
                 "32x128b.warpx4 or 4x256b");
  add_number(app, "--num", o->num, 1, 128, "tmem: the repetition .x1 to .x128");
  add_number(app, "--split", o->split, 0, 511, "tmem 16x32bx2: columns to the second half");
  add_number(app, "--m", o->m, 1, 256, "accumulator: M of the instruction");
  add_number(app, "--n", o->n, 1, 256, "accumulator, fragment d: N of the instruction");
  add_number(app, "--ctas", o->ctas, 1, 2, "accumulator: CTAs of the instruction");
  app.add_flag("--ws", o->weight_stationary, "accumulator: the .ws form");
  app.add_flag("--json", o->json, "one JSON object on stdout");
  app.add_option("--svg", o->svg, "also write a picture to this file");
  return [o] { return run_inspect(*o); };
}

}  // namespace

tile::Swizzle swizzle_option(const InspectOptions& o, tile::Swizzle fallback) {
  if (o.swizzle.empty()) return fallback;
  std::vector<std::string> names;
  for (int s = 0; s <= static_cast<int>(tile::Swizzle::b128_atom64); ++s) {
    const auto swizzle = static_cast<tile::Swizzle>(s);
    if (o.swizzle == tile::name(swizzle)) return swizzle;
    names.emplace_back(tile::name(swizzle));
  }
  unknown_choice("inspect: --swizzle", o.swizzle, names);
}

std::string choice_option(const char* option, const std::string& word,
                          const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), word) == choices.end())
    unknown_choice(fmt::format("inspect: {}", option), word, choices);
  return word;
}

std::string hex(uint64_t value, int digits) { return fmt::format("0x{:0{}x}", value, digits); }

Command inspect_command() {
  return {"inspect", "layouts of matrix instructions and bank conflicts",
          "  halftone inspect swizzle --swizzle 128 --svg swizzle.svg\n"
          "  halftone inspect ldmatrix --pitch 128                  (8-way conflicts)\n"
          "  halftone inspect ldmatrix --pitch 128 --padding 16     (none)\n"
          "  halftone inspect ldmatrix --swizzle 128 --form b-trans (none)\n"
          "  halftone inspect tma --swizzle 64 --rows 8 --columns 16\n"
          "  halftone inspect access --bytes 4 --address \"lane * 132\"\n"
          "  halftone inspect operand --unit tcgen05 --major mn --mn 128 --k 16\n"
          "  halftone inspect fragment --unit wgmma --operand d --n 16\n"
          "  halftone inspect tmem --shape 16x256b --num 1\n"
          "  halftone inspect scales\n"
          "  halftone inspect descriptor 0x08400490 --unit f16\n",
          declare_inspect};
}

}  // namespace halftone::app
