// What the user sees: tables, progress, colours on a terminal, and numbers with units.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace halftone::app {

// A terminal that shows colours: NO_COLOR is unset and TERM is not "dumb".
bool coloured(int file);
std::string bold(const std::string& text, int file = 1);
std::string dim(const std::string& text, int file = 1);

// Columns as wide as their content; those of numbers stand right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) {
    row.resize(rows_[0].size());
    rows_.push_back(std::move(row));
  }
  std::string text(int file = 1) const;
  std::string markdown() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A bar on stderr that exists only on a terminal and leaves nothing behind.
class Progress {
 public:
  explicit Progress(std::string what, bool wanted = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void operator()(double fraction);
  std::function<void(double)> callback() {
    return [this](double fraction) { (*this)(fraction); };
  }

 private:
  std::string what_;
  bool shown_ = false;
  int percent_ = -1;
};

// What is being done, on stderr: on a terminal each step takes the place of the one before and the
// last leaves nothing, elsewhere each is a line. A remark is a line that stays.
void step(const std::string& what);
void end_steps();
void remark(const std::string& text);

std::string bytes(double count);                    // "3.9 MB"
std::string duration(double seconds);               // "12.3 ms"
std::string significant(double x, int digits = 4);  // "0.001234", "56.78", "1.2e-09"

}  // namespace halftone::app
