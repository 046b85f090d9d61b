// A subcommand: its options, its help, and what it does.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/error.h"

namespace halftone::app {

struct Command {
  const char* name;
  const char* summary;
  const char* examples;  // lines for the help
  // Declares the options; what it returns runs after parsing and gives the exit code.
  std::function<int()> (*declare)(CLI::App&);
};

// With a model: only where the engine is built.
Command generate_command();
Command chat_command();
Command quantize_command();
Command perplexity_command();
Command demo_command();
// Without one.
Command check_command();
Command bench_command();
Command simulate_command();
Command info_command();
Command inspect_command();
// In the order of the help.
const std::vector<Command>& commands();

// "generate" of an App named "halftone generate".
std::string command_of(const CLI::App&);

// Exit codes.
inline constexpr int kOk = 0, kFailed = 1, kWrongInput = 2, kInterrupted = 130;

// Ends the command with kWrongInput and this sentence on stderr.
[[noreturn]] void wrong_input(const std::string& sentence);
// `word` is none of `choices`: offers the nearest and lists them all.
[[noreturn]] void unknown_choice(const std::string& what, const std::string& word,
                                 const std::vector<std::string>& choices);

// Options whose value is a number in [least, most]; anything else is a sentence that says so.
void add_number(CLI::App&, const std::string& names, std::optional<int64_t>& value, int64_t least,
                int64_t most, const std::string& help);
void add_number(CLI::App&, const std::string& names, std::optional<uint64_t>& value,
                const std::string& help);
void add_number(CLI::App&, const std::string& names, std::optional<double>& value, double least,
                double most, const std::string& help);

// The contents of a file; "-" is standard input. A file that cannot be read is wrong input.
std::string read_text(const std::string& option, const std::string& path);

}  // namespace halftone::app
