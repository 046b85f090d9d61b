// halftone COMMAND ...: finds the command, parses its options, turns errors into one sentence.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "base/message.h"
#include "command.h"
#include "console.h"
#include "halftone/mapped_files.h"
#include "interrupt.h"
#include "measure/machine.h"

namespace halftone::app {

namespace {

std::string overview() {
  std::string text = "Halftone: transformer inference in few bits.\n\n" + bold("usage") +
                     "  halftone COMMAND [OPTIONS]\n\n" + bold("commands") + "\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  text += fmt::format("  {:<12}{}\n\n", "help", "explain a command, with examples");
  text += bold("examples") + "\n";
  text += "  halftone generate examples/models/bard --prompt \"ROMEO:\"\n";
  text +=
      "  halftone perplexity examples/models/bard examples/models/heldout.txt --weights nvfp4\n";
  text += "  halftone help generate\n";
  return text;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  names.emplace_back("help");
  return names;
}

const Command& find_command(std::string_view name) {
  for (const Command& command : commands()) {
    if (name == command.name) return command;
  }
  unknown_choice("command", std::string(name), command_names());
}

std::string help_of(const CLI::App& app, const Command& command) {
  return app.help() + "\n" + bold("examples") + "\n" + command.examples;
}

// The sentence for what CLI11 found wrong.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = command_of(app);
  const std::string what = error.what();
  const std::string option = what.substr(0, what.find(':'));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = app.remaining();
    std::string extra = extras.empty() ? what : extras[0];
    for (const std::string& word : extras) {
      if (word.starts_with("-")) extra = word;
    }
    if (!extra.starts_with("-")) {
      return fmt::format(
          "{}: \"{}\" is one argument too many; halftone help {} shows what it takes", name, extra,
          name);
    }
    std::vector<std::string> names;
    for (const CLI::Option* known : app.get_options()) {
      for (const std::string& text : known->get_lnames()) names.push_back("--" + text);
      for (const std::string& text : known->get_snames()) names.push_back("-" + text);
    }
    const std::string word = extra.substr(0, extra.find('='));
    return fmt::format("{}: option {} is not known; the nearest is {}", name, word,
                       nearest(word, names));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return fmt::format("{}: {} is missing; halftone help {} has examples", name,
                       what.substr(0, what.find(' ')), name);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return what.find("received") == std::string::npos
               ? fmt::format("{}: {} needs a value", name, option)
               : fmt::format("{}: {} is given more than once", name, option);
  }
  return fmt::format("{}: {}", name, what);
}

int run_command(const Command& command, int argc, char** argv) {
  CLI::App app(command.summary, fmt::format("halftone {}", command.name));
  app.get_formatter()->column_width(34);
  const std::function<int()> body = command.declare(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help_of(app, command));
    return kOk;
  } catch (const CLI::ParseError& error) {
    wrong_input(explain(app, error));
  }
  watch_interrupts();
#if HALFTONE_HAS_ENGINE
  guard_mapped_files();
#endif
  return body();
}

int dispatch(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) {
    fmt::print(stderr, "{}", overview());
    return kWrongInput;
  }
  if (first == "--version") {
    fmt::print("{}\n", version());
    return kOk;
  }
  if (first == "--help" || first == "-h" || (first == "help" && argc == 2)) {
    fmt::print("{}", overview());
    return kOk;
  }
  if (first == "help") {
    if (argc > 3) wrong_input("help: one command at a time");
    const Command& command = find_command(argv[2]);
    char help[] = "--help";
    char* arguments[] = {argv[0], help, nullptr};
    return run_command(command, 2, arguments);
  }
  if (first.starts_with("-")) {
    unknown_choice("option", first, {"--version", "--help"});
  }
  return run_command(find_command(first), argc - 1, argv + 1);
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::malformed_file:
      return kWrongInput;
    case ErrorCode::interrupted:
      return kInterrupted;
    default:
      return kFailed;
  }
}

int fail_with(const std::string& sentence, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "{} {}\n", bold("halftone:", 2), sentence);
  return code;
}

}  // namespace

}  // namespace halftone::app

int main(int argc, char** argv) {
  using namespace halftone;
  try {
    return app::dispatch(argc, argv);
  } catch (const Error& error) {
    return app::fail_with(error.what(), app::exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    return app::fail_with("memory ran out; a narrower --weights or --kv format needs less",
                          app::kFailed);
  } catch (const std::exception& error) {
    return app::fail_with(error.what(), app::kFailed);
  }
}
