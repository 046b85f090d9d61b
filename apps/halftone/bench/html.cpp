// The page of `halftone bench --html`: bench_page.html with the report put in.
#include "bench/report.h"
#include "bench_page.h"

namespace halftone::app {

std::string report_to_html(const nlohmann::json& report) {
  // In a script element of the page; "<" as an escape, so that no text of the report can end it or
  // begin a comment. Everything shown is set as text, never as markup.
  std::string data;
  for (const char c : report.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  std::string page = kBenchPage;
  const std::string mark = "@REPORT@";
  page.replace(page.find(mark), mark.size(), data);
  return page;
}

}  // namespace halftone::app
