// A figure as one SVG file: no scripts, no fonts or styles from elsewhere.
#include <fmt/format.h>

#include <algorithm>

#include "inspect/figure.h"

namespace halftone::app {

namespace {

// Light enough for black text, far enough apart to tell from one another.
constexpr const char* kColours[8] = {"#aed6f1", "#f5b7a0", "#b5e2b0", "#f9dc8c",
                                     "#d7bde2", "#a3e4d7", "#f7c5d8", "#dcd7b5"};
constexpr int kFont = 12, kLine = 20, kMargin = 24;
constexpr double kLetter = 7.3;  // width of one letter of the monospaced font

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

class Canvas {
 public:
  void text(double x, double y, const std::string& words, const char* style = "") {
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escaped(words));
    const bool left = std::string_view(style).find("anchor") == std::string_view::npos;
    width_ = std::max(width_, x + (left ? static_cast<double>(words.size()) * kLetter : 0));
    height_ = std::max(height_, y);
  }
  void box(double x, double y, double w, double h, const char* fill, const std::string& tip = "") {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
        "stroke=\"#888\" stroke-width=\"0.5\">{}</rect>\n",
        x, y, w, h, fill, tip.empty() ? "" : "<title>" + escaped(tip) + "</title>");
    width_ = std::max(width_, x + w), height_ = std::max(height_, y + h);
  }
  std::string file(const std::string& title) const {
    const int w = static_cast<int>(width_) + kMargin, h = static_cast<int>(height_) + kMargin;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"monospace\" font-size=\"{2}\">\n"
        "<title>{3}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{4}</svg>\n",
        w, h, kFont, escaped(title), body_);
  }

 private:
  std::string body_;
  double width_ = 320, height_ = 40;
};

constexpr const char* kBold = "font-weight=\"bold\"";
constexpr const char* kMiddle = "text-anchor=\"middle\"";
constexpr const char* kEnd = "text-anchor=\"end\"";
constexpr const char* kGrey = "fill=\"#555\"";

double draw_map(Canvas& canvas, const Map& map, double y) {
  size_t label = map.row_name.size(), letters = 2;
  for (const std::string& row : map.rows) label = std::max(label, row.size());
  for (const std::string& column : map.columns) letters = std::max(letters, column.size());
  for (const auto& row : map.cells)
    for (const MapCell& cell : row) letters = std::max(letters, cell.text.size());
  const double left = kMargin + static_cast<double>(label + 1) * kLetter;
  const double width = (static_cast<double>(letters) + 1.2) * kLetter;
  canvas.text(kMargin, y, map.title, kBold);
  y += kLine;
  if (!map.column_name.empty()) {
    canvas.text(left, y, map.column_name + " ->", kGrey);
    y += kLine;
  }
  canvas.text(left - kLetter, y, map.row_name, kEnd);
  for (size_t c = 0; c < map.columns.size(); ++c) {
    canvas.text(left + (static_cast<double>(c) + 0.5) * width, y, map.columns[c], kMiddle);
  }
  y += 6;
  for (size_t r = 0; r < map.rows.size(); ++r) {
    canvas.text(left - kLetter, y + 14, map.rows[r], kEnd);
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const MapCell& cell = map.cells[r][c];
      const double x = left + static_cast<double>(c) * width;
      const char* fill = cell.group < 0 ? "#f4f4f4" : kColours[cell.group % 8];
      canvas.box(x, y, width, kLine, fill,
                 fmt::format("{} {}, {} {}: {}", map.row_name, map.rows[r], map.column_name,
                             map.columns[c], cell.text));
      canvas.text(x + width / 2, y + 14, cell.text, kMiddle);
    }
    y += kLine;
  }
  // The legend: a box of each colour that occurs.
  if (!map.groups.empty()) {
    int groups = 0;
    for (const auto& row : map.cells)
      for (const MapCell& cell : row) groups = std::max(groups, cell.group + 1);
    y += 10;
    for (int g = 0; g < std::min(groups, 8); ++g) {
      canvas.box(kMargin + g * 44, y, 14, 14, kColours[g]);
      canvas.text(kMargin + g * 44 + 18, y + 12, std::to_string(g));
    }
    canvas.text(kMargin + std::min(groups, 8) * 44 + 4, y + 12, map.groups, kGrey);
    y += kLine;
  }
  return y + kLine;
}

double draw_phases(Canvas& canvas, const Figure& figure, double y) {
  size_t label = 5;
  for (const Phase& phase : figure.phases) label = std::max(label, phase.name.size());
  const double left = kMargin + static_cast<double>(label + 1) * kLetter, width = 20;
  canvas.text(kMargin, y, "words per bank (a bank serves one in a wavefront)", kBold);
  y += kLine;
  canvas.text(left - kLetter, y, "bank", kEnd);
  for (uint32_t b = 0; b < tile::kBanks; ++b) {
    canvas.text(left + (b + 0.5) * width, y, std::to_string(b), kMiddle);
  }
  y += 6;
  for (const Phase& phase : figure.phases) {
    canvas.text(left - kLetter, y + 14, phase.name, kEnd);
    for (uint32_t b = 0; b < tile::kBanks; ++b) {
      const uint32_t words = phase.banks.words[b];
      canvas.box(left + b * width, y, width, kLine,
                 words == 0   ? "#ffffff"
                 : words == 1 ? "#b5e2b0"
                              : "#f1948a");
      if (words > 0) canvas.text(left + (b + 0.5) * width, y + 14, std::to_string(words), kMiddle);
    }
    canvas.text(left + tile::kBanks * width + 10, y + 14,
                phase.banks.wavefronts <= 1
                    ? "no conflict"
                    : fmt::format("{}-way conflict", phase.banks.wavefronts));
    y += kLine;
  }
  y += 10;
  canvas.box(kMargin, y, 14, 14, "#b5e2b0");
  canvas.text(kMargin + 18, y + 12, "one word");
  canvas.box(kMargin + 110, y, 14, 14, "#f1948a");
  canvas.text(kMargin + 128, y + 12,
              fmt::format("several words, one after the other; {} wavefronts for {} phases",
                          figure.wavefronts(), figure.phases.size()));
  return y + 2 * kLine;
}

}  // namespace

std::string as_svg(const Figure& figure) {
  Canvas canvas;
  double y = kMargin + kFont;
  canvas.text(kMargin, y, figure.title, "font-weight=\"bold\" font-size=\"15\"");
  y += kLine;
  size_t name = 0;
  for (const auto& fact : figure.facts) name = std::max(name, fact.first.size());
  for (const auto& [what, value] : figure.facts) {
    canvas.text(kMargin, y, what, kGrey);
    canvas.text(kMargin + static_cast<double>(name + 2) * kLetter, y, value);
    y += kLine;
  }
  y += kLine / 2;
  for (const Map& map : figure.maps) y = draw_map(canvas, map, y);
  if (!figure.phases.empty()) y = draw_phases(canvas, figure, y);
  if (!figure.note.empty()) canvas.text(kMargin, y, figure.note, kGrey);
  return canvas.file(figure.title);
}

}  // namespace halftone::app
