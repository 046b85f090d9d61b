// The tree of a template.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/value.h"

namespace halftone::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    constant,    // value
    name,        // text
    list,        // operands
    tuple,       // operands
    dict,        // operands: key, value, key, value ...
    attribute,   // operands[0].text
    subscript,   // operands[0][operands[1]]
    slice,       // operands[0][operands[1] : operands[2] : operands[3]], null where left out
    call,        // operands[0](operands[1...], named)
    filter,      // operands[0] | text(operands[1...], named); operands[0] null: of a block
    test,        // operands[0] is text(operands[1...], named)
    unary,       // text: "-", "+", "not"
    binary,      // text: arithmetic, "and", "or"
    concat,      // operands ~ ...
    compare,     // operands[0] OP operands[1] OP ...; operators in `operators`
    conditional  // operands[0] if operands[1] else operands[2] (null: undefined)
  };
  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  std::shared_ptr<const Block> body;
};

struct Statement {
  enum class Kind : uint8_t {
    text,       // text
    print,      // value
    if_,        // branches, otherwise
    for_,       // targets in value if condition: body; otherwise
    set,        // targets = value
    set_block,  // targets[0] = what body prints, through `value` (a filter) where it is there
    with,       // names = values: body
    macro,      // macro
    call,       // value is a call; macro is its caller
    filter,     // value of what body prints
    scope,      // body: a generation block
    break_,
    continue_,
  };
  Kind kind = Kind::text;
  int line = 1;
  std::string text;
  ExpressionPtr value, condition;
  // A name, or "namespace.attribute".
  struct Target {
    std::string name, attribute;
  };
  std::vector<Target> targets;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<std::pair<std::string, ExpressionPtr>> bindings;
  Block body, otherwise;
  std::shared_ptr<const Macro> macro;
};

// Statements and expressions nested deeper than a limit are an Error.
Block parse(std::string_view source, const std::string& where);

// Known names, so that an unknown one is told when the template is read.
bool is_filter(const std::string& name);
bool is_test(const std::string& name);

}  // namespace halftone::jinja
