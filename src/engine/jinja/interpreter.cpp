// Statements, scopes and calls.
#include "engine/jinja/interpreter.h"

#include <ctime>

namespace halftone::jinja {

// One level deeper; a template that recurses without end is an error before the stack is.
class Interpreter::Nested {
 public:
  explicit Nested(Interpreter& in) : in_(in) {
    in_.spend_steps(1);
    if (++in_.depth_ > in_.limits_.depth) {
      --in_.depth_;
      in_.error("calls and blocks nest deeper than ", in_.limits_.depth, " levels");
    }
  }
  ~Nested() { --in_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Interpreter& in_;
};

namespace {

// Variables of a block, forgotten at its end, also when an error leaves it.
class Inner {
 public:
  explicit Inner(std::shared_ptr<Scope>& current, std::shared_ptr<Scope> parent)
      : current_(current), outer_(current) {
    current_ = std::make_shared<Scope>();
    current_->parent = std::move(parent);
  }
  ~Inner() { current_ = outer_; }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  std::shared_ptr<Scope>& current_;
  std::shared_ptr<Scope> outer_;
};

Value native(const char* name, std::function<Value(Interpreter&, const Arguments&)> call) {
  return Value(std::make_shared<const Function>(Function{name, std::move(call)}));
}

}  // namespace

Interpreter::~Interpreter() {
  for (Namespace& space : namespaces_) space.members.clear();
  for (const auto& scope : kept_) scope->variables.clear();
}

void Interpreter::spend_steps(size_t steps) {
  steps_ += static_cast<int64_t>(steps);
  if (steps_ > limits_.steps) error("the template took more than ", limits_.steps, " steps");
}

void Interpreter::spend_bytes(size_t bytes) {
  bytes_ += bytes;
  if (bytes > limits_.bytes || bytes_ > limits_.bytes) {
    error("the template made more than ", limits_.bytes, " bytes of text");
  }
}

std::string Interpreter::run(const Block& block, const Members& context) {
  scope_ = std::make_shared<Scope>();
  define_globals(context);
  // The variables of the template itself stand before what it was given.
  const Inner inner(scope_, scope_);
  execute(block);
  return std::move(out_);
}

void Interpreter::define_globals(const Members& context) {
  set("range", native("range", [](Interpreter& in, const Arguments& a) {
        const auto p = bind(in, "range", a, {"start", "stop", "step"});
        if (p[0] == nullptr) in.error("range needs a number");
        int64_t start = 0, stop = in.integer_of(*p[0], "range"), step = 1;
        if (p[1] != nullptr) {
          start = stop;
          stop = in.integer_of(*p[1], "range");
        }
        if (p[2] != nullptr) step = in.integer_of(*p[2], "range");
        if (step == 0) in.error("the step of range is 0");
        Values items;
        for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
          in.spend_steps(1);
          items.emplace_back(i);
          if (__builtin_add_overflow(i, step, &i)) break;
        }
        return Value::list(std::move(items));
      }));
  set("dict", native("dict", [](Interpreter& in, const Arguments& a) {
        Members members;
        if (!a.positional.empty()) {
          if (!a.positional[0].is_dict()) in.error("dict takes a dict and named values");
          members = a.positional[0].members();
        }
        for (const auto& [name, value] : a.named) members.emplace_back(name, value);
        return Value::dict(std::move(members));
      }));
  set("namespace",
      native("namespace", [](Interpreter& in, const Arguments& a) { return in.namespace_of(a); }));
  set("raise_exception",
      native("raise_exception", [](Interpreter& in, const Arguments& a) -> Value {
        const auto p = bind(in, "raise_exception", a, {"message"});
        in.error("the template refuses: ", p[0] == nullptr ? "" : p[0]->text());
      }));
  set("strftime_now", native("strftime_now", [](Interpreter& in, const Arguments& a) {
        const auto p = bind(in, "strftime_now", a, {"format"});
        if (p[0] == nullptr) in.error("strftime_now needs a format");
        return in.time_now(in.string_of(*p[0], "strftime_now"));
      }));
  for (const auto& [name, value] : context) set(name.string(), value);
}

Value Interpreter::namespace_of(const Arguments& a) {
  spend_steps(1 + a.named.size());
  Namespace& space = namespaces_.emplace_back();
  if (!a.positional.empty()) {
    if (!a.positional[0].is_dict()) error("namespace takes a dict and named values");
    for (const auto& [key, value] : a.positional[0].members()) {
      space.members[string_of(key, "namespace")] = value;
    }
  }
  for (const auto& [name, value] : a.named) space.members[name] = value;
  return Value(&space);
}

Value Interpreter::time_now(const std::string& format) {
  if (format.size() > 256)
    error("the format of strftime_now has ", format.size(), " bytes; at most 256");
  const std::time_t now = clock_ ? static_cast<std::time_t>(*clock_) : std::time(nullptr);
  std::tm parts = {};
  const auto* done = clock_ ? gmtime_r(&now, &parts) : localtime_r(&now, &parts);
  if (done == nullptr) error("the clock stands at ", now, ", which is no date");
  if (format.empty()) return "";
  char buffer[4096];
  // A format may give nothing, which looks like a buffer that is too short: a sign tells.
  const size_t count = std::strftime(buffer, sizeof buffer, (format + "|").c_str(), &parts);
  if (count == 0) error("the format of strftime_now makes too long a text");
  return text(std::string(buffer, count - 1));
}

void Interpreter::set(const std::string& name, Value value) {
  scope_->variables.insert_or_assign(name, std::move(value));
}

Value Interpreter::lookup(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto place = scope->variables.find(name);
    if (place != scope->variables.end()) return place->second;
  }
  return Value::undefined("'" + name + "'");
}

void Interpreter::assign(const std::vector<Statement::Target>& targets, Value value) {
  const auto one = [&](const Statement::Target& target, Value v) {
    if (target.attribute.empty()) {
      set(target.name, std::move(v));
      return;
    }
    const Value space = lookup(target.name);
    if (!space.is_namespace()) {
      error("'", target.name, "' is a ", space.type(),
            "; only attributes of a namespace can be set");
    }
    space.space().members[target.attribute] = std::move(v);
  };
  if (targets.size() == 1) return one(targets[0], std::move(value));
  const Values parts = elements(value);
  if (parts.size() != targets.size()) {
    error(parts.size(), " values cannot be given to ", targets.size(), " names");
  }
  for (size_t i = 0; i < parts.size(); ++i) one(targets[i], parts[i]);
}

void Interpreter::print(const std::string& text) {
  spend_bytes(text.size());
  out_ += text;
}

std::string Interpreter::captured(const Block& block) {
  std::string outer = std::exchange(out_, "");
  execute(block);
  return std::exchange(out_, std::move(outer));
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const Statement& s : block) {
    const Flow flow = execute(s);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Statement& s) {
  using K = Statement::Kind;
  const Nested nested(*this);
  line_ = s.line;
  switch (s.kind) {
    case K::text:
      print(s.text);
      break;
    case K::print:
      print(shown(evaluate(*s.value)));
      break;
    case K::if_:
      for (const auto& [condition, block] : s.branches) {
        if (evaluate(*condition).truth()) return execute(block);
      }
      return execute(s.otherwise);
    case K::for_:
      return loop(s);
    case K::set:
      assign(s.targets, evaluate(*s.value));
      break;
    case K::set_block: {
      Value result;
      {
        const Inner inner(scope_, scope_);
        result = text(captured(s.body));
      }
      if (s.value) result = filter(*s.value, result);
      assign(s.targets, std::move(result));
      break;
    }
    case K::with: {
      std::vector<Value> values;
      for (const auto& [name, value] : s.bindings) values.push_back(evaluate(*value));
      const Inner inner(scope_, scope_);
      for (size_t i = 0; i < values.size(); ++i) set(s.bindings[i].first, values[i]);
      return execute(s.body);
    }
    case K::macro:
      set(s.macro->name, make_macro(s.macro));
      break;
    case K::call: {
      const Value caller = make_macro(s.macro);
      print(shown(call(*s.value, &caller)));
      break;
    }
    case K::filter: {
      const Inner inner(scope_, scope_);
      const Value body = text(captured(s.body));
      print(shown(filter(*s.value, body)));
      break;
    }
    case K::scope: {
      const Inner inner(scope_, scope_);
      return execute(s.body);
    }
    case K::break_:
      return Flow::break_;
    case K::continue_:
      return Flow::continue_;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::loop(const Statement& s) {
  Values items = elements(evaluate(*s.value));
  if (s.condition) {
    Values chosen;
    for (Value& item : items) {
      const Inner inner(scope_, scope_);
      assign(s.targets, item);
      if (evaluate(*s.condition).truth()) chosen.push_back(std::move(item));
    }
    items = std::move(chosen);
  }
  if (items.empty()) return execute(s.otherwise);

  const auto count = static_cast<int64_t>(items.size());
  const auto index = std::make_shared<int64_t>(0);
  const auto last_seen = std::make_shared<std::optional<Value>>();
  const Value cycle = native("cycle", [index](Interpreter& in, const Arguments& a) {
    if (a.positional.empty()) in.error("loop.cycle needs a value");
    return a.positional[static_cast<size_t>(*index) % a.positional.size()];
  });
  const Value changed = native("changed", [last_seen](Interpreter& in, const Arguments& a) {
    const Value now = Value::tuple(a.positional);
    const bool differs = !*last_seen || !in.same(**last_seen, now);
    *last_seen = now;
    return Value(differs);
  });
  const auto neighbour = [&](int64_t i) {
    return i >= 0 && i < count ? items[static_cast<size_t>(i)] : Value::undefined("a loop's end");
  };
  for (int64_t i = 0; i < count; ++i) {
    spend_steps(1);
    *index = i;
    const Inner inner(scope_, scope_);
    set("loop", Value::dict({{"index", i + 1},
                             {"index0", i},
                             {"revindex", count - i},
                             {"revindex0", count - i - 1},
                             {"first", i == 0},
                             {"last", i == count - 1},
                             {"length", count},
                             {"previtem", neighbour(i - 1)},
                             {"nextitem", neighbour(i + 1)},
                             {"cycle", cycle},
                             {"changed", changed}}));
    assign(s.targets, items[static_cast<size_t>(i)]);
    if (execute(s.body) == Flow::break_) break;
  }
  return Flow::next;
}

Value Interpreter::make_macro(const std::shared_ptr<const Macro>& macro) {
  if (kept_.empty() || kept_.back() != scope_) kept_.push_back(scope_);
  // Not owned: the interpreter keeps the scope as long as a macro can be called.
  Scope* const defined = scope_.get();
  return native(macro->name.c_str(), [macro, defined](Interpreter& in, const Arguments& given) {
    const std::shared_ptr<Scope> scope(std::shared_ptr<Scope>(), defined);
    return in.call_macro(*macro, scope, given);
  });
}

Value Interpreter::call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined,
                              const Arguments& given) {
  const Nested nested(*this);
  const size_t count = macro.parameters.size();
  if (given.positional.size() > count) {
    error("the macro '", macro.name, "' takes ", count, " arguments; ", given.positional.size(),
          " are given");
  }
  const Inner inner(scope_, defined);
  for (const auto& [name, value] : given.named) {
    const auto place = std::find(macro.parameters.begin(), macro.parameters.end(), name);
    if (place == macro.parameters.end() && name != "caller") {
      error("the macro '", macro.name, "' has no parameter '", name, "'");
    }
    if (place - macro.parameters.begin() < static_cast<ptrdiff_t>(given.positional.size()) &&
        place != macro.parameters.end()) {
      error("the macro '", macro.name, "' is given '", name, "' twice");
    }
    set(name, value);
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    if (i < given.positional.size()) {
      set(name, given.positional[i]);
      continue;
    }
    const bool named = std::any_of(given.named.begin(), given.named.end(),
                                   [&](const auto& argument) { return argument.first == name; });
    if (named) continue;
    const size_t without = count - macro.defaults.size();
    set(name, i < without ? Value::undefined("the parameter '" + name + "'")
                          : evaluate(*macro.defaults[i - without]));
  }
  const int line = line_;
  Value result = text(captured(*macro.body));
  line_ = line;
  return result;
}

Value Interpreter::call(const Value& function, const Arguments& given) {
  if (!function.is_function()) {
    if (function.is_undefined())
      error(function.undefined_name(), " is undefined; it cannot be called");
    error("a ", function.type(), " cannot be called");
  }
  const Nested nested(*this);
  return function.function().call(*this, given);
}

std::vector<const Value*> bind(const Interpreter& in, const char* function, const Arguments& given,
                               std::initializer_list<const char*> names) {
  std::vector<const Value*> result(names.size(), nullptr);
  if (given.positional.size() > names.size()) {
    in.error("'", function, "' takes at most ", names.size(), " arguments; ",
             given.positional.size(), " are given");
  }
  for (size_t i = 0; i < given.positional.size(); ++i) result[i] = &given.positional[i];
  for (const auto& [name, value] : given.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) in.error("'", function, "' has no argument '", name, "'");
    result[static_cast<size_t>(place - names.begin())] = &value;
  }
  return result;
}

}  // namespace halftone::jinja
