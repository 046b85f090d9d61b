#include "command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>

#include "base/message.h"

namespace halftone::app {

std::string command_of(const CLI::App& app) {
  const std::string name = app.get_name();
  return name.substr(name.rfind(' ') + 1);
}

void wrong_input(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, sentence);
}

void unknown_choice(const std::string& what, const std::string& word,
                    const std::vector<std::string>& choices) {
  wrong_input(fmt::format("{} \"{}\" is not known; the nearest is \"{}\" (there are: {})", what,
                          word, nearest(word, choices), fmt::join(choices, ", ")));
}

namespace {

// "--top-k" of "-k,--top-k".
std::string long_name(const std::string& names) { return names.substr(names.rfind(',') + 1); }

template <class T, class Parse>
void add_parsed(CLI::App& app, const std::string& names, std::optional<T>& value,
                const std::string& help, const std::string& kind, const Parse& parse) {
  app.add_option_function<std::string>(
         names,
         [&value, parse, names, command = command_of(app)](const std::string& text) {
           T parsed{};
           const std::string rule = parse(text, parsed);
           if (!rule.empty()) {
             wrong_input(fmt::format("{}: {} is \"{}\"; it must be {}", command, long_name(names),
                                     text, rule));
           }
           value = parsed;
         },
         help)
      ->type_name(kind);
}

template <class T>
bool whole(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void add_number(CLI::App& app, const std::string& names, std::optional<int64_t>& value,
                int64_t least, int64_t most, const std::string& help) {
  add_parsed(app, names, value, help, "N", [least, most](const std::string& text, int64_t& parsed) {
    if (whole(text, parsed) && parsed >= least && parsed <= most) return std::string();
    return fmt::format("a whole number from {} to {}", least, most);
  });
}

void add_number(CLI::App& app, const std::string& names, std::optional<uint64_t>& value,
                const std::string& help) {
  add_parsed(app, names, value, help, "N", [](const std::string& text, uint64_t& parsed) {
    return whole(text, parsed) ? std::string()
                               : std::string("a whole number from 0 to 18446744073709551615");
  });
}

void add_number(CLI::App& app, const std::string& names, std::optional<double>& value, double least,
                double most, const std::string& help) {
  add_parsed(app, names, value, help, "X", [least, most](const std::string& text, double& parsed) {
    if (whole(text, parsed) && parsed >= least && parsed <= most) return std::string();
    if (most == std::numeric_limits<double>::max())
      return fmt::format("a number from {} on", least);
    return fmt::format("a number from {} to {}", least, most);
  });
}

std::string read_text(const std::string& option, const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    wrong_input(fmt::format("{} \"{}\" cannot be read: {}", option, path, std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) {
    wrong_input(fmt::format("{} \"{}\" is a directory; it must be a text file", option, path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    wrong_input(fmt::format("{} \"{}\" cannot be read: {}", option, path, std::strerror(errno)));
  }
  text << file.rdbuf();
  return text.str();
}

}  // namespace halftone::app
