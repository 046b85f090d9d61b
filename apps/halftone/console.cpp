#include "console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace halftone::app {

namespace {

// Columns on a terminal: one for each code point.
size_t display_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool is_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                           (cell[0] == '-' && cell.size() > 1) || cell == "–");
}

}  // namespace

bool coloured(int file) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(file) != 0 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::string bold(const std::string& text, int file) {
  return coloured(file) ? "\x1b[1m" + text + "\x1b[0m" : text;
}
std::string dim(const std::string& text, int file) {
  return coloured(file) ? "\x1b[2m" + text + "\x1b[0m" : text;
}

std::string Table::text(int file) const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> width(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], display_width(row[c]));
      if (&row != rows_.data() && !is_number(row[c])) right[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string space(width[c] - display_width(row[c]), ' ');
      line += (c > 0 ? "  " : "") + (right[c] ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (&row == rows_.data() ? bold(line, file) : line) + "\n";
  }
  return out;
}

std::string Table::markdown() const {
  std::string out;
  for (const auto& row : rows_) {
    out += fmt::format("| {} |\n", fmt::join(row, " | "));
    if (&row != rows_.data()) continue;
    for (size_t c = 0; c < row.size(); ++c) out += "| --- ";
    out += "|\n";
  }
  return out;
}

Progress::Progress(std::string what, bool wanted)
    : what_(std::move(what)), shown_(wanted && isatty(2) != 0) {}

Progress::~Progress() {
  if (shown_ && percent_ >= 0) std::fputs("\r\x1b[K", stderr);
}

void Progress::operator()(double fraction) {
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (!shown_ || percent == percent_) return;
  percent_ = percent;
  const auto done = static_cast<size_t>(percent * 30 / 100);
  fmt::print(stderr, "\r{} [{}{}] {:3}%", what_, std::string(done, '#'),
             std::string(30 - done, '.'), percent);
  std::fflush(stderr);
}

void step(const std::string& what) {
  if (isatty(2) != 0) {
    fmt::print(stderr, "\r\x1b[K{}", what);
  } else {
    fmt::print(stderr, "{}\n", what);
  }
  std::fflush(stderr);
}

void end_steps() {
  if (isatty(2) != 0) std::fputs("\r\x1b[K", stderr);
}

void remark(const std::string& text) {
  end_steps();
  fmt::print(stderr, "{}\n", text);
}

std::string bytes(double count) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (count >= 999.95 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", count) : fmt::format("{:.1f} {}", count, kUnits[unit]);
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string significant(double x, int digits) {
  if (x == 0 || !std::isfinite(x)) return fmt::format("{}", x);
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(x))));
  if (magnitude < -4 || magnitude > 9) return fmt::format("{:.{}e}", x, digits - 2);
  return fmt::format("{:.{}f}", x, std::max(0, digits - 1 - magnitude));
}

}  // namespace halftone::app
