#include "inspect/figure.h"

#include <fmt/format.h>

#include <algorithm>

#include "console.h"

namespace halftone::app {

namespace {

// Backgrounds that black text is legible on, dark and light terminals alike.
constexpr int kTerminalColours[8] = {153, 216, 157, 222, 183, 159, 224, 187};

std::string painted(const std::string& text, int group, bool colours) {
  if (!colours || group < 0) return text;
  return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", kTerminalColours[group % 8], text);
}

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string counted(uint32_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// A paragraph after an empty line.
std::string wrapped(const std::string& note) {
  std::string out = "\n";
  size_t used = 0;
  for (size_t at = 0; at < note.size();) {
    const size_t end = std::min(note.find(' ', at), note.size());
    if (used > 0 && used + 1 + (end - at) > kTextColumns) {
      out += '\n';
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out.append(note, at, end - at);
    used += end - at;
    at = end + 1;
  }
  return out += '\n';
}

// A map in blocks of as many columns as fit side by side.
std::string map_text(const Map& map, bool colours) {
  size_t label = map.row_name.size(), width = 1;
  for (const std::string& row : map.rows) label = std::max(label, row.size());
  for (const std::string& column : map.columns) width = std::max(width, column.size());
  for (const auto& row : map.cells)
    for (const MapCell& cell : row) width = std::max(width, cell.text.size());
  const size_t all = map.columns.size();
  size_t fits = std::max<size_t>(1, (kTextColumns - label - 1) / (width + 1));
  if (fits < all) {  // a round number of columns a block
    for (const size_t round : {64, 32, 16, 8, 4, 2, 1}) {
      if (round <= fits) {
        fits = round;
        break;
      }
    }
  }
  std::string out = bold(map.title, colours ? 1 : -1) + "\n";
  for (size_t first = 0; first < all; first += fits) {
    const size_t end = std::min(all, first + fits);
    out += right(map.row_name, label);
    for (size_t c = first; c < end; ++c) (out += ' ') += right(map.columns[c], width);
    if (first == 0 && !map.column_name.empty()) {
      const size_t used = label + (end - first) * (width + 1);
      if (used + map.column_name.size() + 4 <= kTextColumns) out += "  <- " + map.column_name;
    }
    out += "\n";
    for (size_t r = 0; r < map.rows.size(); ++r) {
      out += right(map.rows[r], label);
      for (size_t c = first; c < end; ++c) {
        const MapCell& cell = map.cells[r][c];
        (out += ' ') += painted(right(cell.text, width), cell.group, colours);
      }
      out += "\n";
    }
    if (end < all) out += "\n";
  }
  if (!map.groups.empty() && colours) out += dim("colour: " + map.groups) += '\n';
  return out;
}

// One line per phase: how many words each bank serves.
std::string phases_text(const Figure& figure, bool colours) {
  size_t label = 5;
  for (const Phase& phase : figure.phases) label = std::max(label, phase.name.size());
  std::string out = bold("words per bank", colours ? 1 : -1) + "\n" + right("", label) + "  ";
  out += "0       8       16      24\n";
  for (const Phase& phase : figure.phases) {
    out += phase.name + std::string(label - phase.name.size(), ' ') + "  ";
    for (const uint32_t words : phase.banks.words) {
      const std::string digit = words == 0 ? "." : words > 9 ? "+" : std::to_string(words);
      out += painted(digit, words > 1 ? 1 : -1, colours);
    }
    out += fmt::format("  {}\n", phase.banks.wavefronts <= 1
                                     ? "no conflict"
                                     : fmt::format("{}-way conflict", phase.banks.wavefronts));
  }
  const uint32_t all = figure.wavefronts(), least = static_cast<uint32_t>(figure.phases.size());
  out += counted(all, "wavefront") + " for " + counted(least, "phase");
  out += all > least ? fmt::format(": {:.1f} times the time\n", double(all) / least)
                     : std::string(": no bank conflict\n");
  return out;
}

}  // namespace

uint32_t Figure::wavefronts() const {
  uint32_t sum = 0;
  for (const Phase& phase : phases) sum += std::max(phase.banks.wavefronts, 1u);
  return sum;
}

std::string as_text(const Figure& figure, bool colours) {
  std::string out = bold(figure.title, colours ? 1 : -1) + "\n";
  size_t width = 0;
  for (const auto& [name, value] : figure.facts) width = std::max(width, name.size());
  for (const auto& [name, value] : figure.facts) {
    out += fmt::format("  {:<{}}  {}\n", name, width, value);
  }
  for (const Map& map : figure.maps) (out += '\n') += map_text(map, colours);
  if (!figure.phases.empty()) (out += '\n') += phases_text(figure, colours);
  if (!figure.note.empty()) out += wrapped(figure.note);
  return out;
}

nlohmann::ordered_json as_json(const Figure& figure) {
  nlohmann::ordered_json json{{"title", figure.title}};
  json["facts"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : figure.facts) json["facts"][name] = value;
  json["maps"] = nlohmann::ordered_json::array();
  for (const Map& map : figure.maps) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (const auto& row : map.cells) {
      nlohmann::ordered_json line = nlohmann::ordered_json::array();
      for (const MapCell& cell : row) line.push_back(cell.value);
      cells.push_back(std::move(line));
    }
    json["maps"].push_back({{"title", map.title},
                            {"row", map.row_name},
                            {"column", map.column_name},
                            {"rows", map.rows},
                            {"columns", map.columns},
                            {"cells", std::move(cells)}});
  }
  if (!figure.phases.empty()) {
    json["phases"] = nlohmann::ordered_json::array();
    for (const Phase& phase : figure.phases) {
      json["phases"].push_back({{"name", phase.name},
                                {"words_per_bank", phase.banks.words},
                                {"wavefronts", phase.banks.wavefronts}});
    }
    json["wavefronts"] = figure.wavefronts();
    json["conflict_free_wavefronts"] = figure.phases.size();
  }
  if (!figure.note.empty()) json["note"] = figure.note;
  return json;
}

}  // namespace halftone::app
