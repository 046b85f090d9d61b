// What `halftone inspect` shows: facts, maps and bank conflicts, as text, JSON and SVG.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tile/bank_conflicts.h"

namespace halftone::app {

// One place of a map. Cells of one group have one colour.
struct MapCell {
  std::string text;
  int group = -1;                // 0 to 7; -1 has no colour
  nlohmann::ordered_json value;  // what --json says of it
};

struct Map {
  std::string title;
  std::string row_name, column_name;  // "lane", "16-byte chunk"
  std::vector<std::string> rows, columns;
  std::vector<std::vector<MapCell>> cells;
  std::string groups;  // what a colour means
};

struct Phase {
  std::string name;  // "lanes 0-7", "matrix 2"
  tile::BankPhase banks;
};

struct Figure {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<Map> maps;
  std::vector<Phase> phases;
  std::string note;

  uint32_t wavefronts() const;
};

inline constexpr size_t kTextColumns = 100;

std::string as_text(const Figure&, bool colours);
nlohmann::ordered_json as_json(const Figure&);
std::string as_svg(const Figure&);

}  // namespace halftone::app
