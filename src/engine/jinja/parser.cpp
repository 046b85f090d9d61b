// Reads a template into its tree. What is not implemented is an Error that names line and feature.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <system_error>

#include "base/message.h"
#include "engine/jinja/ast.h"
#include "engine/jinja/lexer.h"
#include "engine/json.h"

namespace halftone::jinja {

namespace {

using Kind = Expression::Kind;

constexpr int kDeepestExpression = 120;
constexpr int kDeepestBlock = 60;

class Parser {
 public:
  Parser(std::string_view source, const std::string& where)
      : where_(where), tokens_(tokenize(source, where)) {}

  Block parse() {
    Block block = body({}, nullptr);
    return block;
  }

 private:
  // --- tokens ------------------------------------------------------------------------------------
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(Token::Kind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool is_sign(std::string_view text) const { return is(Token::Kind::sign, text); }
  bool is_name(std::string_view text) const { return is(Token::Kind::name, text); }
  bool skip_sign(std::string_view text) { return is_sign(text) && (take(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }

  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, where_, ", line ", peek().line, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(int line, const Parts&... parts) const {
    fail(ErrorCode::unsupported, where_, ", line ", line, ": ", parts...);
  }
  std::string describe() const {
    switch (peek().kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::block_end:
        return "%}";
      case Token::Kind::print_end:
        return "}}";
      default:
        return quote(peek().text);
    }
  }
  void expect_sign(std::string_view text) {
    if (!skip_sign(text)) malformed("expected '", text, "', found ", describe());
  }
  std::string expect_name() {
    if (peek().kind != Token::Kind::name) malformed("expected a name, found ", describe());
    return take().text;
  }
  void expect_end(Token::Kind kind) {
    if (peek().kind != kind) {
      malformed("expected ", kind == Token::Kind::block_end ? "%}" : "}}", ", found ", describe());
    }
    take();
  }

  // --- statements --------------------------------------------------------------------------------
  // Up to a block that one of `ends` names; `found` (null: the end of the template) receives it,
  // and the parser stands behind its name.
  Block body(const std::vector<std::string_view>& ends, std::string* found) {
    if (++nesting_ > kDeepestBlock) malformed("blocks nest deeper than ", kDeepestBlock, " levels");
    Block block;
    for (;;) {
      const Token token = take();
      switch (token.kind) {
        case Token::Kind::text:
          block.emplace_back();
          block.back().text = token.text;
          block.back().line = token.line;
          break;
        case Token::Kind::print_begin:
          block.emplace_back();
          block.back().kind = Statement::Kind::print;
          block.back().line = token.line;
          block.back().value = tuple_or_expression();
          expect_end(Token::Kind::print_end);
          break;
        case Token::Kind::block_begin: {
          const std::string name = expect_name();
          if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
            *found = name;
            --nesting_;
            return block;
          }
          block.push_back(statement(name, token.line));
          break;
        }
        default:
          if (found != nullptr) malformed("the block has no ", ends.back());
          --nesting_;
          return block;
      }
    }
  }

  Statement statement(const std::string& name, int line) {
    Statement s;
    s.line = line;
    if (name == "if") {
      if_block(s);
    } else if (name == "for") {
      for_block(s);
    } else if (name == "set") {
      set_block(s);
    } else if (name == "macro") {
      s.kind = Statement::Kind::macro;
      const std::string macro_name = expect_name();
      s.macro = signature_and_body(macro_name, "endmacro");
    } else if (name == "call") {
      s.kind = Statement::Kind::call;
      auto caller = std::make_shared<Macro>();
      caller->name = "caller";
      if (is_sign("(")) parameters(*caller);
      s.value = expression();
      if (s.value->kind != Kind::call) malformed("the block call needs a call");
      expect_end(Token::Kind::block_end);
      caller->body = std::make_shared<Block>(simple_body("endcall"));
      s.macro = std::move(caller);
    } else if (name == "filter") {
      s.kind = Statement::Kind::filter;
      s.value = filters_of(nullptr, true);
      expect_end(Token::Kind::block_end);
      s.body = simple_body("endfilter");
    } else if (name == "with") {
      with_block(s);
    } else if (name == "generation") {
      s.kind = Statement::Kind::scope;
      expect_end(Token::Kind::block_end);
      s.body = simple_body("endgeneration");
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) malformed("'", name, "' outside of a loop");
      s.kind = name == "break" ? Statement::Kind::break_ : Statement::Kind::continue_;
      expect_end(Token::Kind::block_end);
    } else if (name.starts_with("end") || name == "else" || name == "elif") {
      malformed("'", name, "' without the block it belongs to");
    } else {
      unsupported(line, "the tag '", name, "' is not implemented; if, for, set, macro, call, ",
                  "filter, with, raw, generation, break and continue are");
    }
    return s;
  }

  Block simple_body(std::string_view end) {
    std::string found;
    Block block = body({end}, &found);
    expect_end(Token::Kind::block_end);
    return block;
  }

  void if_block(Statement& s) {
    s.kind = Statement::Kind::if_;
    std::string found = "elif";
    while (found == "elif") {
      ExpressionPtr condition = tuple_or_expression();
      expect_end(Token::Kind::block_end);
      Block block = body({"elif", "else", "endif"}, &found);
      s.branches.emplace_back(std::move(condition), std::move(block));
    }
    if (found == "else") {
      expect_end(Token::Kind::block_end);
      s.otherwise = body({"endif"}, &found);
    }
    expect_end(Token::Kind::block_end);
  }

  void for_block(Statement& s) {
    s.kind = Statement::Kind::for_;
    s.targets = targets(false);
    if (!skip_name("in")) malformed("expected 'in', found ", describe());
    s.value = tuple_of(&Parser::or_expression);
    if (skip_name("if")) s.condition = expression();
    if (is_name("recursive")) unsupported(s.line, "a recursive loop is not implemented");
    expect_end(Token::Kind::block_end);
    std::string found;
    ++loops_;
    s.body = body({"else", "endfor"}, &found);
    --loops_;
    if (found == "else") {
      expect_end(Token::Kind::block_end);
      s.otherwise = body({"endfor"}, &found);
    }
    expect_end(Token::Kind::block_end);
  }

  std::vector<Statement::Target> targets(bool attributes) {
    std::vector<Statement::Target> result;
    const bool bracket = skip_sign("(");
    do {
      if (is_sign("(")) unsupported(peek().line, "names nested in brackets are not implemented");
      if (is_sign(")") || (!result.empty() && peek().kind != Token::Kind::name)) break;
      Statement::Target target{expect_name(), ""};
      if (attributes && skip_sign(".")) target.attribute = expect_name();
      result.push_back(std::move(target));
    } while (skip_sign(","));
    if (bracket) expect_sign(")");
    return result;
  }

  void set_block(Statement& s) {
    s.targets = targets(true);
    if (s.targets.empty()) malformed("'set' needs a name");
    if (skip_sign("=")) {
      s.kind = Statement::Kind::set;
      s.value = tuple_or_expression();
      expect_end(Token::Kind::block_end);
      return;
    }
    s.kind = Statement::Kind::set_block;
    if (s.targets.size() != 1) malformed("expected '=', found ", describe());
    if (is_sign("|")) s.value = filters_of(nullptr, false);
    expect_end(Token::Kind::block_end);
    s.body = simple_body("endset");
  }

  void with_block(Statement& s) {
    s.kind = Statement::Kind::with;
    while (peek().kind != Token::Kind::block_end) {
      if (!s.bindings.empty()) expect_sign(",");
      const std::string name = expect_name();
      expect_sign("=");
      s.bindings.emplace_back(name, expression());
    }
    expect_end(Token::Kind::block_end);
    s.body = simple_body("endwith");
  }

  void parameters(Macro& macro) {
    expect_sign("(");
    while (!is_sign(")")) {
      if (!macro.parameters.empty()) expect_sign(",");
      if (is_sign(")")) break;
      macro.parameters.push_back(expect_name());
      if (skip_sign("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        malformed("the parameter ", macro.parameters.back(), " needs a default as those before it");
      }
    }
    expect_sign(")");
  }

  std::shared_ptr<const Macro> signature_and_body(const std::string& name, std::string_view end) {
    auto macro = std::make_shared<Macro>();
    macro->name = name;
    parameters(*macro);
    expect_end(Token::Kind::block_end);
    const int loops = std::exchange(loops_, 0);  // break does not leave a macro
    macro->body = std::make_shared<Block>(simple_body(end));
    loops_ = loops;
    return macro;
  }

  // --- expressions -------------------------------------------------------------------------------
  ExpressionPtr make(Kind kind, std::string text = "") const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->text = std::move(text);
    e->line = peek().line;
    return e;
  }
  void add(Expression& to, ExpressionPtr operand) const {
    if (operand) grow(to, *operand);
    to.operands.push_back(std::move(operand));
  }
  void grow(Expression& to, const Expression& operand) const {
    to.depth = std::max(to.depth, operand.depth + 1);
    if (to.depth > kDeepestExpression) {
      malformed("the expression nests deeper than ", kDeepestExpression, " levels");
    }
  }

  using Rule = ExpressionPtr (Parser::*)();
  // One expression, or a tuple of several.
  ExpressionPtr tuple_of(Rule rule) {
    ExpressionPtr first = (this->*rule)();
    if (!is_sign(",")) return first;
    ExpressionPtr tuple = make(Kind::tuple);
    add(*tuple, std::move(first));
    while (skip_sign(",")) {
      const Token::Kind kind = peek().kind;
      if (kind == Token::Kind::block_end || kind == Token::Kind::print_end || is_sign(")")) break;
      add(*tuple, (this->*rule)());
    }
    return tuple;
  }
  ExpressionPtr tuple_or_expression() { return tuple_of(&Parser::expression); }

  ExpressionPtr expression() {
    // Each level of brackets comes through here.
    if (++recursion_ > kDeepestExpression) {
      malformed("the expression nests deeper than ", kDeepestExpression, " levels");
    }
    ExpressionPtr value = or_expression();
    while (is_name("if")) {
      ExpressionPtr choice = make(Kind::conditional);
      take();
      ExpressionPtr condition = or_expression();
      add(*choice, std::move(value));
      add(*choice, std::move(condition));
      add(*choice, skip_name("else") ? expression() : nullptr);
      value = std::move(choice);
    }
    --recursion_;
    return value;
  }

  ExpressionPtr left_to_right(Rule operand, const std::vector<std::string_view>& operators,
                              Token::Kind kind) {
    ExpressionPtr left = (this->*operand)();
    for (;;) {
      if (peek().kind != kind ||
          std::find(operators.begin(), operators.end(), peek().text) == operators.end()) {
        return left;
      }
      ExpressionPtr both = make(Kind::binary, peek().text);
      take();
      add(*both, std::move(left));
      add(*both, (this->*operand)());
      left = std::move(both);
    }
  }
  ExpressionPtr or_expression() {
    return left_to_right(&Parser::and_expression, {"or"}, Token::Kind::name);
  }
  ExpressionPtr and_expression() {
    return left_to_right(&Parser::not_expression, {"and"}, Token::Kind::name);
  }
  ExpressionPtr not_expression() {
    if (!is_name("not")) return comparison();
    ExpressionPtr negated = make(Kind::unary, "not");
    take();
    if (++recursion_ > kDeepestExpression) malformed("'not' is repeated without end");
    add(*negated, not_expression());
    --recursion_;
    return negated;
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    ExpressionPtr compare;
    for (;;) {
      std::string sign;
      static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
      if (peek().kind == Token::Kind::sign &&
          std::find(std::begin(kSigns), std::end(kSigns), peek().text) != std::end(kSigns)) {
        sign = take().text;
      } else if (skip_name("in")) {
        sign = "in";
      } else if (is_name("not") && peek(1).kind == Token::Kind::name && peek(1).text == "in") {
        take(), take();
        sign = "not in";
      } else {
        return compare ? std::move(compare) : std::move(first);
      }
      if (!compare) {
        compare = make(Kind::compare);
        add(*compare, std::move(first));
      }
      compare->operators.push_back(sign);
      add(*compare, sum());
    }
  }

  ExpressionPtr sum() {
    return left_to_right(&Parser::concatenation, {"+", "-"}, Token::Kind::sign);
  }
  ExpressionPtr concatenation() {
    ExpressionPtr first = product();
    if (!is_sign("~")) return first;
    ExpressionPtr all = make(Kind::concat);
    add(*all, std::move(first));
    while (skip_sign("~")) add(*all, product());
    return all;
  }
  ExpressionPtr product() {
    return left_to_right(&Parser::power, {"*", "/", "//", "%"}, Token::Kind::sign);
  }
  ExpressionPtr power() {
    return left_to_right(&Parser::unary_with_filter, {"**"}, Token::Kind::sign);
  }
  ExpressionPtr unary_with_filter() { return unary(true); }

  ExpressionPtr unary(bool with_filter) {
    ExpressionPtr value;
    if (is_sign("-") || is_sign("+")) {
      value = make(Kind::unary, peek().text);
      take();
      if (++recursion_ > kDeepestExpression) malformed("signs are repeated without end");
      add(*value, unary(false));
      --recursion_;
    } else {
      value = postfix(primary());
    }
    return with_filter ? filters_of(std::move(value), false) : std::move(value);
  }

  ExpressionPtr primary() {
    const Token token = peek();
    ExpressionPtr e = make(Kind::constant);
    switch (token.kind) {
      case Token::Kind::name:
        take();
        if (token.text == "true" || token.text == "True") {
          e->value = true;
        } else if (token.text == "false" || token.text == "False") {
          e->value = false;
        } else if (token.text != "none" && token.text != "None") {
          e->kind = Kind::name;
          e->text = token.text;
        }
        return e;
      case Token::Kind::string: {
        std::string text;
        while (peek().kind == Token::Kind::string) text += take().text;
        e->value = Value(std::move(text));
        return e;
      }
      case Token::Kind::integer: {
        take();
        int64_t number = 0;
        const auto end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
          malformed("the number ", token.text, " does not fit 64 bits");
        }
        e->value = number;
        return e;
      }
      case Token::Kind::real:
        take();
        e->value = std::strtod(token.text.c_str(), nullptr);
        return e;
      case Token::Kind::sign:
        if (token.text == "(") return bracketed();
        if (token.text == "[") return list();
        if (token.text == "{") return dict();
        [[fallthrough]];
      default:
        malformed("expected a value, found ", describe());
    }
  }

  ExpressionPtr bracketed() {
    take();
    if (skip_sign(")")) return make(Kind::tuple);
    ExpressionPtr inner = tuple_or_expression();
    expect_sign(")");
    return inner;
  }
  ExpressionPtr list() {
    ExpressionPtr e = make(Kind::list);
    take();
    while (!is_sign("]")) {
      if (!e->operands.empty()) expect_sign(",");
      if (is_sign("]")) break;
      add(*e, expression());
    }
    take();
    return e;
  }
  ExpressionPtr dict() {
    ExpressionPtr e = make(Kind::dict);
    take();
    while (!is_sign("}")) {
      if (!e->operands.empty()) expect_sign(",");
      if (is_sign("}")) break;
      add(*e, expression());
      expect_sign(":");
      add(*e, expression());
    }
    take();
    return e;
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      if (is_sign(".")) {
        ExpressionPtr e = make(Kind::attribute);
        take();
        if (peek().kind == Token::Kind::integer) {  // x.0 is x[0]
          e->kind = Kind::subscript;
          add(*e, std::move(value));
          add(*e, primary());
        } else {
          e->text = expect_name();
          add(*e, std::move(value));
        }
        value = std::move(e);
      } else if (is_sign("[")) {
        value = subscript(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr call(ExpressionPtr value) {
    ExpressionPtr e = make(Kind::call);
    add(*e, std::move(value));
    arguments(*e);
    return e;
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    ExpressionPtr e = make(Kind::subscript);
    take();
    add(*e, std::move(value));
    const auto part = [&]() -> ExpressionPtr {
      return is_sign(":") || is_sign("]") ? nullptr : expression();
    };
    ExpressionPtr first = part();
    if (is_sign(":")) {
      e->kind = Kind::slice;
      add(*e, std::move(first));
      for (int i = 0; i < 2; ++i) add(*e, skip_sign(":") ? part() : nullptr);
    } else {
      if (!first) malformed("expected a value, found ", describe());
      add(*e, std::move(first));
      if (is_sign(",")) unsupported(e->line, "a subscript of several values is not implemented");
    }
    expect_sign("]");
    return e;
  }

  void arguments(Expression& call) {
    expect_sign("(");
    bool any = false;
    while (!is_sign(")")) {
      if (any) expect_sign(",");
      if (is_sign(")")) break;
      any = true;
      if (is_sign("*") || is_sign("**")) {
        unsupported(peek().line, "arguments unpacked with ", peek().text, " are not implemented");
      }
      const bool named = peek().kind == Token::Kind::name && peek(1).kind == Token::Kind::sign &&
                         peek(1).text == "=";
      if (named) {
        const std::string name = take().text;
        take();
        call.named.emplace_back(name, expression());
        grow(call, *call.named.back().second);
      } else {
        if (!call.named.empty()) malformed("a value stands behind a named argument");
        add(call, expression());
      }
    }
    expect_sign(")");
  }

  // `| filter`, `is test` and calls behind them, in any number. `bare`: the name of the first
  // filter stands without the sign, as in a filter block.
  ExpressionPtr filters_of(ExpressionPtr value, bool bare) {
    for (;; bare = false) {
      if (bare || is_sign("|")) {
        if (!bare) take();
        ExpressionPtr e = make(Kind::filter);
        e->text = expect_name();
        while (skip_sign(".")) e->text.append(".").append(expect_name());
        if (!is_filter(e->text)) {
          unsupported(e->line, "the filter '", e->text, "' is not implemented");
        }
        add(*e, std::move(value));
        if (is_sign("(")) arguments(*e);
        value = std::move(e);
      } else if (is_name("is") && value) {
        value = test(std::move(value));
      } else if (is_sign("(") && value && value->kind != Kind::filter &&
                 value->kind != Kind::test) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr value) {
    take();
    const bool negated = skip_name("not");
    ExpressionPtr e = make(Kind::test);
    e->text = expect_name();
    if (!is_test(e->text)) unsupported(e->line, "the test '", e->text, "' is not implemented");
    add(*e, std::move(value));
    const Token& next = peek();
    if (is_sign("(")) {
      arguments(*e);
    } else if (next.kind == Token::Kind::string || next.kind == Token::Kind::integer ||
               next.kind == Token::Kind::real || is_sign("[") || is_sign("{") ||
               (next.kind == Token::Kind::name && next.text != "else" && next.text != "or" &&
                next.text != "and" && next.text != "is" && next.text != "if")) {
      add(*e, postfix(primary()));  // one argument without brackets
    }
    if (!negated) return e;
    ExpressionPtr not_ = make(Kind::unary, "not");
    add(*not_, std::move(e));
    return not_;
  }

  const std::string& where_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0, recursion_ = 0, loops_ = 0;
};

}  // namespace

Block parse(std::string_view source, const std::string& where) {
  return Parser(source, where).parse();
}

}  // namespace halftone::jinja
