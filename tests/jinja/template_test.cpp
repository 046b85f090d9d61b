// Errors of templates, and limits on hostile ones.
#include "engine/jinja/template.h"

#include <gtest/gtest.h>

#include "engine/jinja/value.h"
#include "support/compare.h"

namespace halftone {
namespace {

std::string render(const std::string& source) { return jinja::Template(source, "t").render({}, 0); }
std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

struct Case {
  std::string source;
  std::vector<std::string> words;
};

// A long text leaves its digits on the stack, where a short one after it must not find them.
TEST(Jinja, RealsAreReadWithinTheirText) {
  EXPECT_EQ(jinja::real_text(1.2345678912345678e-300), "1.2345678912345677e-300");
  EXPECT_EQ(jinja::real_text(123456789.125), "123456789.125");
  EXPECT_EQ(jinja::real_text(1e15), "1000000000000000.0");
  EXPECT_EQ(jinja::real_text(1e16), "1e+16");
  EXPECT_EQ(jinja::real_text(-1.5e-5), "-1.5e-05");
}

TEST(Jinja, WhatIsNotImplementedNamesLineAndFeature) {
  const Case cases[] = {
      {"a\n{% include 'x' %}", {"t, line 2", "tag 'include'", "not implemented"}},
      {"{% extends 'x' %}", {"line 1", "'extends'"}},
      {"{% import 'x' as y %}", {"'import'"}},
      {"{% block b %}{% endblock %}", {"'block'"}},
      {"{% do x.append(1) %}", {"'do'"}},
      {"\n\n{{ x | xmlattr }}", {"line 3", "filter 'xmlattr'"}},
      {"{{ x is escaped }}", {"test 'escaped'"}},
      {"{% for a, (b, c) in y %}{% endfor %}", {"nested in brackets"}},
      {"{% for x in y recursive %}{% endfor %}", {"recursive"}},
      {"{{ f(*x) }}", {"unpacked with *"}},
      {"{{ f(**x) }}", {"unpacked with **"}},
      {"{{ x[1, 2] }}", {"subscript of several"}},
      {"{{ 'x' is filter }}", {"test 'filter'"}},
      {"{{ '%s' % 'x' }}", {"formatting with %"}},
      {"{{ 'ff' | int(0, 16) }}", {"base 16"}},
      {"{{ ['a'] | map('random') | list }}", {"filter 'random'"}},
      {"{{ 'a b'.rsplit(none, 1) }}", {"rsplit"}},
      {"{{ 'x'.encode() }}", {"line 1", "no method 'encode'"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    test::expect_error([&] { render(c.source); }, c.words);
  }
}

TEST(Jinja, MalformedTemplates) {
  const Case cases[] = {
      {"{{ x", {"line 1", "{{ has no end }}"}},
      {"\n{% if x", {"line 2", "{% has no end %}"}},
      {"{# x", {"the comment has no end"}},
      {"{% raw %} x", {"raw has no endraw"}},
      {"{% if x %}", {"has no endif"}},
      {"{% for x in y %}", {"has no endfor"}},
      {"{% macro m() %}", {"has no endmacro"}},
      {"{% set x %}", {"has no endset"}},
      {"{% endif %}", {"'endif' without"}},
      {"{% else %}", {"'else' without"}},
      {"{% if x %}{% endfor %}", {"'endfor' without"}},
      {"{% %}", {"expected a name, found %}"}},
      {"{{ }}", {"expected a value, found }}"}},
      {"{{ 1 2 }}", {"expected }}, found \"2\""}},
      {"{{ 'abc }}", {"a string has no end"}},
      {"{{ '\\x4' }}", {"\\x needs 2 hex digits"}},
      {"{{ '\\ud800' }}", {"no character"}},
      {"{{ (1 }}", {"'}'"}},
      {"{{ [1, }}", {"'}'"}},
      {"{{ a.) }}", {"')'"}},
      {"{{ 1 $ 2 }}", {"\"$\"", "means nothing"}},
      {"{{ 12x }}", {"runs into a name"}},
      {"{{ 99999999999999999999 }}", {"does not fit 64 bits"}},
      {"{{ f(a=1, 2) }}", {"behind a named argument"}},
      {"{% for in x %}{% endfor %}", {"expected 'in'"}},
      {"{% for x of y %}{% endfor %}", {"expected 'in', found \"of\""}},
      {"{% set = 1 %}", {"expected a name, found \"=\""}},
      {"{% set x, y %}{% endset %}", {"expected '='"}},
      {"{% macro m(a=1, b) %}{% endmacro %}", {"parameter b needs a default"}},
      {"{% break %}", {"'break' outside of a loop"}},
      {"{% call x %}{% endcall %}", {"needs a call"}},
      {"{{ x is }}", {"expected a name"}},
      {"{{ x | }}", {"expected a name"}},
      {"{{ " + repeated("(", 300) + "1" + repeated(")", 300) + " }}", {"nests deeper than 120"}},
      {"{{ " + repeated("-", 300) + "1 }}", {"without end"}},
      {"{{ " + repeated("not ", 300) + "1 }}", {"without end"}},
      {"{{ 1" + repeated("+1", 300) + " }}", {"nests deeper than 120"}},
      {repeated("{% if 1 %}", 100), {"blocks nest deeper than 60"}},
      {std::string((1 << 20) + 1, 'x'), {"1048577 bytes", "1048576"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source.substr(0, 60));
    test::expect_error([&] { render(c.source); }, c.words);
  }
}

TEST(Jinja, ErrorsWhileRunning) {
  const Case cases[] = {
      {"\n{{ raise_exception('no tools') }}", {"t, line 2", "refuses: no tools"}},
      {"{{ x.y }}", {"'x' is undefined"}},
      {"{{ x() }}", {"'x' is undefined", "called"}},
      {"{{ x + 1 }}", {"'x' is undefined"}},
      {"{{ {}.a.b }}", {"attribute 'a' of a dict", "undefined"}},
      {"{{ 'a' + 1 }}", {"+", "str and int"}},
      {"{{ 1 + 'a' }}", {"int and str"}},
      {"{{ none + 'a' }}", {"NoneType and str"}},
      {"{{ 1 < 'a' }}", {"int", "str", "no order"}},
      {"{{ 1 // 0 }}", {"division by zero"}},
      {"{{ 1 % 0 }}", {"division by zero"}},
      {"{{ 9223372036854775807 + 1 }}", {"64 bits"}},
      {"{{ 3 ** 99 }}", {"64 bits"}},
      {"{% for x in none %}{% endfor %}", {"NoneType has no elements"}},
      {"{% for a, b in [1] %}{% endfor %}", {"int has no elements"}},
      {"{% for a, b in [[1, 2, 3]] %}{% endfor %}", {"3 values", "2 names"}},
      {"{{ 5 | length }}", {"int has no length"}},
      {"{{ 5() }}", {"int cannot be called"}},
      {"{% set x = [] %}{{ x.append(1) }}", {"must not change a list"}},
      {"{% set x = {} %}{{ x.update({}) }}", {"must not change a dict"}},
      {"{% set x = {} %}{% set x.a = 1 %}", {"only attributes of a namespace"}},
      {"{{ {[]: 1} }}", {"list cannot be the key"}},
      {"{{ x | tojson }}", {"tojson", "undefined"}},
      {"{{ range | tojson }}", {"tojson", "function"}},
      {"{{ 'a'.strip(1) }}", {"'strip' needs a text, not a int"}},
      {"{{ 'a'.strip('a', 'b') }}", {"'strip' takes at most 1"}},
      {"{{ 'a' | replace('b', with='c') }}", {"no argument 'with'"}},
      {"{{ 'a'[::0] }}", {"step of a slice is 0"}},
      {"{{ range(1, 2, 0) }}", {"step of range is 0"}},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", {"'m' takes 1 arguments; 2"}},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", {"no parameter 'b'"}},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", {"'a' twice"}},
      {"{{ 'x'.split('') }}", {"not empty"}},
      {"{{ [1] | sum('a.b') }}", {"undefined"}},
      {"{{ 'x' | round }}", {"round needs a number"}},
      {"{{ {'a': 1} | dictsort(by='x') }}", {"key or value"}},
      {"{{ [1] | select('x') }}", {"test 'x'"}},
      {"{{ strftime_now(5) }}", {"needs a text"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    test::expect_error([&] { render(c.source); }, c.words);
  }
}

TEST(Jinja, HostileTemplatesEnd) {
  const Case cases[] = {
      {"{% for a in range(99999999999) %}{% endfor %}", {"steps"}},
      {"{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}", {"steps"}},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {"nest deeper than 600"}},
      {"{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
       "%}",
       {"bytes of text"}},
      {"{{ 'x' * 99999999999 }}", {"bytes of text"}},
      {"{{ ('x' * 9999999).replace('', 'xxxxxxxxxxxxxxxx') }}", {"bytes of text"}},
      {"{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}",
       {"nested deeper than 100"}},
      {"{% set n = namespace(l=[1]) %}{% for i in range(90) %}{% set n.l = [n.l, n.l] %}{% endfor "
       "%}",
       {"larger than"}},
      {"{% set n = namespace(l=[1]) %}{% for i in range(90) %}{% set n.l = n.l + n.l %}{% endfor "
       "%}",
       {"steps"}},
      {"{{ 'x' | indent(99999) }}", {"indent by 99999"}},
      {"{{ ('a,' * 9999999).split(',') | length }}", {"steps"}},
      {"{{ 'x'.center(99999999999) }}", {"bytes of text"}},
      {"{{ [1] | batch(99999999999, 0) | list }}", {"steps"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    test::expect_error([&] { render(c.source); }, c.words);
  }
  // Namespaces and macros that hold themselves, and long chains of them, go without a leak.
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n, n] %}{{ n.n.n.l }}"),
            "[<Namespace>, <Namespace>]");
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in range(20000) %}{% set n.c = "
                   "namespace(p=n.c) %}{% endfor %}x"),
            "x");
  EXPECT_EQ(render("{% macro a(f) %}{% set g = f %}{% endmacro %}{{ a(a) }}{% set b = a %}y"), "y");
}

TEST(Jinja, BothLimitsAreFarAboveOrdinaryUse) {
  EXPECT_EQ(render("{% for a in range(100000) %}{% endfor %}x"), "x");
  EXPECT_EQ(render("{{ 1" + repeated("+1", 100) + " }}"), "101");
  EXPECT_EQ(render("{{ ''" + repeated(" ~ 'a'", 5000) + " }}").size(), 5000u);
  EXPECT_EQ(render("{% macro m(n) %}{% if n %}{{ m(n - 1) }}.{% endif %}{% endmacro %}{{ m(60) }}"),
            std::string(60, '.'));
}

}  // namespace
}  // namespace halftone
