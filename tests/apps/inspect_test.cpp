// halftone inspect: known layouts, known conflicts, JSON, SVG, wrong arguments.
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "apps/run_command.h"

namespace halftone {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_command;

CommandResult inspect(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "inspect");
  return run_command(arguments);
}

json inspect_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const CommandResult r = inspect(arguments);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return json::parse(r.out, nullptr, false);
}

TEST(Inspect, SwizzleOf64Bytes) {
  const CommandResult r = inspect({"swizzle", "--swizzle", "64"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out, R"(swizzle 64
  line           64 bytes, 32 elements of 16 bits
  moves          pieces of 16 bytes
  repeats after  512 bytes: the alignment of the tile
  address bits   address ^ (address >> 3 & 0x30)

address/bank of each 16-byte chunk
line    0:0-7   1:8-15  2:16-23  3:24-31  <- chunk:elements
   0  0x000/0  0x010/4  0x020/8 0x030/12
   1 0x040/16 0x050/20 0x060/24 0x070/28
   2  0x090/4  0x080/0 0x0b0/12  0x0a0/8
   3 0x0d0/20 0x0c0/16 0x0f0/28 0x0e0/24
   4  0x120/8 0x130/12  0x100/0  0x110/4
   5 0x160/24 0x170/28 0x140/16 0x150/20
   6 0x1b0/12  0x1a0/8  0x190/4  0x180/0
   7 0x1f0/28 0x1e0/24 0x1d0/20 0x1c0/16

words per bank
                      0       8       16      24
chunk 0 of lines 0-7  11111111111111111111111111111111  no conflict
chunk 1 of lines 0-7  11111111111111111111111111111111  no conflict
chunk 2 of lines 0-7  11111111111111111111111111111111  no conflict
chunk 3 of lines 0-7  11111111111111111111111111111111  no conflict
4 wavefronts for 4 phases: no bank conflict
)");
}

TEST(Inspect, LdmatrixOfUnswizzledRows) {
  const CommandResult r = inspect({"ldmatrix", "--pitch", "128", "--count", "1"});
  EXPECT_EQ(r.out, R"(ldmatrix.x1, the lanes' addresses of fragment A
  row pitch  128 bytes
  swizzle    none

address/bank of each row
                           0       1       2       3       4       5       6       7  <- row of eight
matrix 0 (lanes 0-7) 0x000/0 0x080/0 0x100/0 0x180/0 0x200/0 0x280/0 0x300/0 0x380/0

lane.place that receives each element (register = matrix)
row    0    1    2    3    4    5    6    7  <- element of 16 bits
  0  0.0  0.1  1.0  1.1  2.0  2.1  3.0  3.1
  1  4.0  4.1  5.0  5.1  6.0  6.1  7.0  7.1
  2  8.0  8.1  9.0  9.1 10.0 10.1 11.0 11.1
  3 12.0 12.1 13.0 13.1 14.0 14.1 15.0 15.1
  4 16.0 16.1 17.0 17.1 18.0 18.1 19.0 19.1
  5 20.0 20.1 21.0 21.1 22.0 22.1 23.0 23.1
  6 24.0 24.1 25.0 25.1 26.0 26.1 27.0 27.1
  7 28.0 28.1 29.0 29.1 30.0 30.1 31.0 31.1

words per bank
          0       8       16      24
matrix 0  8888............................  8-way conflict
8 wavefronts for 1 phase: 8.0 times the time
)");
}

struct Known {
  std::vector<std::string> arguments;
  int wavefronts, phases;
};

TEST(Inspect, ConflictsCountedByHand) {
  const Known cases[] = {
      {{"ldmatrix", "--pitch", "128"}, 32, 4},
      {{"ldmatrix", "--pitch", "64"}, 16, 4},
      {{"ldmatrix", "--pitch", "128", "--padding", "16"}, 4, 4},
      {{"ldmatrix", "--swizzle", "128"}, 4, 4},
      {{"ldmatrix", "--swizzle", "128", "--form", "b"}, 4, 4},
      {{"ldmatrix", "--swizzle", "128", "--form", "b-trans", "--chunk", "6"}, 4, 4},
      {{"ldmatrix", "--swizzle", "64", "--pitch", "128"}, 8, 4},
      {{"stmatrix", "--swizzle", "128", "--count", "2"}, 2, 2},
      {{"ldmatrix", "--matrix", "m8n16.b4", "--pitch", "64"}, 16, 4},
      {{"ldmatrix", "--matrix", "m16n16.b8", "--pitch", "64"}, 16, 4},
      {{"ldmatrix", "--matrix", "m16n16.b8", "--swizzle", "128", "--count", "1"}, 2, 2},
      {{"tma", "--swizzle", "128", "--columns", "32"}, 4, 4},
      {{"tma", "--rows", "16", "--columns", "64"}, 64, 8},
      {{"stmatrix", "--pitch", "256"}, 32, 4},
      {{"access", "--bytes", "16"}, 4, 4},
      {{"access", "--bytes", "16", "--across", "1"}, 32, 4},
      {{"access", "--bytes", "16", "--across", "1", "--padding", "16"}, 4, 4},
      {{"access", "--bytes", "8", "--across", "1"}, 32, 2},
      {{"access", "--bytes", "4", "--across", "4", "--pitch", "128"}, 8, 1},
      {{"access", "--bytes", "4", "--across", "4", "--swizzle", "128"}, 1, 1},
      {{"access", "--bytes", "4", "--address", "lane * 4"}, 1, 1},
      {{"access", "--bytes", "4", "--address", "(lane & 15) << 7 | lane / 16 * 4"}, 16, 1},
      {{"access", "--bytes", "4", "--address", "0x80"}, 1, 1},
      {{"swizzle", "--swizzle", "none", "--pitch", "128"}, 64, 8},
      {{"operand", "--swizzle", "none", "--k", "16"}, 2, 2},
      {{"operand", "--unit", "tcgen05", "--major", "mn", "--mn", "128", "--k", "16"}, 8, 8},
  };
  for (const Known& k : cases) {
    const json j = inspect_json(k.arguments);
    std::string what;
    for (const std::string& a : k.arguments) what += a + " ";
    ASSERT_TRUE(j.is_object()) << what;
    EXPECT_EQ(j["wavefronts"], k.wavefronts) << what;
    EXPECT_EQ(j["conflict_free_wavefronts"], k.phases) << what;
  }
}

TEST(Inspect, OperandsNameTheirDescriptors) {
  const CommandResult r = inspect({"operand", "--base", "1024", "--mn", "128"});
  EXPECT_NE(r.out.find("0x4000004000010040\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("0x4000004000010042 (start + 32)"), std::string::npos);
  const CommandResult back = inspect({"descriptor", "0x4000004000010042"});
  EXPECT_NE(back.out.find("start        0x420\n"), std::string::npos) << back.out;
  EXPECT_NE(back.out.find("stride       1024 bytes\n"), std::string::npos);
  EXPECT_EQ(back.out.find("boundary"), std::string::npos);
  EXPECT_NE(inspect({"descriptor", "0x4000004000010048"}).out.find("boundary"), std::string::npos);
  const CommandResult instruction = inspect({"descriptor", "0x04210490", "--unit", "f16"});
  EXPECT_NE(instruction.out.find("64 x 128 x 16\n"), std::string::npos) << instruction.out;
  EXPECT_NE(instruction.out.find("B          bf16, MN-major\n"), std::string::npos);
}

TEST(Inspect, MapsHaveTheElements) {
  const json a = inspect_json({"fragment", "--unit", "mma", "--operand", "a"});
  EXPECT_EQ(a["maps"][0]["cells"][1][11], (json{{"thread", 5}, {"register", 2}, {"element", 1}}));
  const json d = inspect_json({"fragment", "--unit", "wgmma", "--operand", "d", "--n", "16"});
  EXPECT_EQ(d["maps"][0]["cells"][25][10], (json{{"thread", 37}, {"register", 6}, {"element", 0}}));
  const json t = inspect_json({"tmem", "--shape", "16x64b", "--num", "4"});
  EXPECT_EQ(t["maps"][0]["cells"][15][7], (json{{"thread", 31}, {"register", 3}, {"element", 0}}));
  const json b8 = inspect_json({"ldmatrix", "--matrix", "m16n16.b8"});
  EXPECT_EQ(b8["maps"][1]["cells"][7][8], (json{{"lane", 1}, {"register", 1}, {"place", 3}}));
  const json copy = inspect_json({"copy", "--shape", "64x128b.01_23"});
  EXPECT_EQ(copy["maps"][0]["cells"][8][1]["line"], 33);  // lane 65
  EXPECT_EQ(inspect_json({"copy", "--shape", "4x256b"})["maps"][0]["cells"][4][0]["line"], 1);
  EXPECT_TRUE(inspect_json({"copy", "--shape", "4x256b"})["maps"][0]["cells"][4][1].is_null());
  const json s = inspect_json({"scales"});
  EXPECT_EQ(s["maps"][0]["cells"][1][14], (json{{"row", 97}, {"block", 2}, {"byte", 30}}));
  const json c = inspect_json({"accumulator", "--m", "128", "--n", "64", "--ctas", "2"});
  EXPECT_EQ(c["maps"][0]["cells"][4][0], (json{{"m", 0}, {"n", 32}}));
  const json lane = inspect_json({"scales", "--unit", "mma"});
  EXPECT_EQ(lane["maps"][0]["cells"][1][9]["lane"], 7);
}

TEST(Inspect, TextFitsItsColumns) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"swizzle", "--swizzle", "128-atom32", "--bits", "8"},
           {"ldmatrix", "--base", "131072", "--form", "b-trans"},
           {"stmatrix"},
           {"ldmatrix", "--matrix", "m16n16.b8"},
           {"ldmatrix", "--matrix", "m8n16.b6"},
           {"tma", "--swizzle", "128", "--bits", "8", "--rows", "256"},
           {"copy"},
           {"access", "--base", "200000"},
           {"operand", "--k", "256", "--mn", "256", "--bits", "8"},
           {"fragment", "--unit", "wgmma", "--operand", "d", "--n", "256"},
           {"fragment", "--operand", "b", "--bits", "4"},
           {"tmem", "--shape", "16x256b", "--num", "32"},
           {"accumulator", "--m", "256", "--n", "256", "--ctas", "2"},
           {"scales"},
           {"scales", "--unit", "mma"},
           {"descriptor", "0x4000004000010048"}}) {
    const CommandResult r = inspect(arguments);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 100u) << arguments[0] << ": " << line;
    EXPECT_EQ(r.out.find('\x1b'), std::string::npos) << "colours without a terminal";
  }
}

TEST(Inspect, ColoursOnATerminal) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) GTEST_SKIP() << "this system has no pseudo-terminals";
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    execl(HALFTONE_COMMAND, HALFTONE_COMMAND, "inspect", "swizzle", nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(terminal);
  waitpid(child, nullptr, 0);
  EXPECT_NE(text.find("\x1b[30;48;5;"), std::string::npos);
  EXPECT_NE(text.find("colour: "), std::string::npos);
}

// Every tag closed in order, nothing from outside.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = svg.find('<', at)) != std::string::npos;) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end;
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.find("href"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(Inspect, WritesSvg) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("inspect_" + std::to_string(getpid()) + ".svg"))
          .string();
  for (const std::vector<std::string>& subject :
       std::vector<std::vector<std::string>>{{"swizzle"},
                                             {"ldmatrix"},
                                             {"fragment"},
                                             {"scales"},
                                             {"access", "--address", "lane<<4"}}) {
    std::vector<std::string> arguments = subject;
    arguments.insert(arguments.end(), {"--svg", path});
    ASSERT_EQ(inspect(arguments).exit_code, 0);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(text.str().starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    expect_well_formed(text.str());
  }
  std::filesystem::remove(path);
  const CommandResult r = inspect({"swizzle", "--svg", "/nonexistent/a.svg"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.err.find("/nonexistent/a.svg"), std::string::npos);
}

TEST(Inspect, WrongArgumentsAreNamed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"swizle"}, "the nearest is \"swizzle\""},
      {{}, "subject is missing"},
      {{"swizzle", "12"}, "one argument too many"},
      {{"swizzle", "--swizzle", "256"}, "--swizzle \"256\""},
      {{"swizzle", "--swizzle", "64", "--pitch", "128"}, "--pitch is 128"},
      {{"swizzle", "--bits", "5"}, "--bits is 5"},
      {{"ldmatrix", "--count", "3"}, "--count is 3"},
      {{"ldmatrix", "--form", "c"}, "--form \"c\""},
      {{"ldmatrix", "--matrix", "m8n16.b4", "--form", "b-trans"}, "not transposed"},
      {{"ldmatrix", "--matrix", "m16n16.b8", "--count", "4"}, "1 or 2 matrices"},
      {{"stmatrix", "--matrix", "m16n16.b8"}, "--matrix is m16n16.b8"},
      {{"tma", "--columns", "60"}, "box[0] is 60, 120 bytes"},
      {{"tma", "--swizzle", "64", "--columns", "64"}, "must fit"},
      {{"tma", "--rows", "257"}, "box[1] is 257"},
      {{"copy", "--shape", "32x32b"}, "--shape \"32x32b\""},
      {{"ldmatrix", "--padding", "8"}, "aligned to 16"},
      {{"ldmatrix", "--swizzle", "128", "--base", "128"}, "--base is 128"},
      {{"access", "--bytes", "3"}, "--bytes is 3"},
      {{"access", "--address", "lane *"}, "at letter 7"},
      {{"access", "--address", "lane % 0"}, "not 0"},
      {{"access", "--address", "lane << 40"}, "below 32"},
      {{"access", "--address", "(lane"}, "\")\""},
      {{"access", "--address", "lane 4"}, "an operator"},
      {{"access", "--address", "0 - lane * 16"}, "below 262144"},
      {{"access", "--address", "99999999999"}, "2^32"},
      {{"access", "--address", std::string(1000, '(')}, "parentheses"},
      {{"operand", "--mn", "12"}, "multiple of 8"},
      {{"operand", "--major", "mn", "--bits", "8", "--mn", "128"}, "16-bit elements only"},
      {{"operand", "--unit", "mma"}, "--unit \"mma\""},
      {{"fragment", "--operand", "d"}, "--operand \"d\""},
      {{"fragment", "--unit", "wgmma", "--n", "12"}, "--n is 12"},
      {{"fragment", "--operand", "c", "--bits", "8"}, "--bits is 8"},
      {{"tmem", "--num", "3"}, "--num is 3"},
      {{"accumulator", "--m", "96"}, "M is 64 or 128"},
      {{"descriptor"}, "hexadecimal"},
      {{"descriptor", "xyz"}, "\"xyz\""},
      {{"descriptor", "0x123456789", "--unit", "f16"}, "32 bits"},
      {{"descriptor", "1", "--unit", "f32"}, "--unit \"f32\""},
  };
  for (const auto& [arguments, words] : cases) {
    const CommandResult r = inspect(arguments);
    EXPECT_EQ(r.exit_code, 2) << words;
    EXPECT_NE(r.err.find(words), std::string::npos) << words << " is not in: " << r.err;
    EXPECT_TRUE(r.out.empty());
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
}

}  // namespace
}  // namespace halftone
