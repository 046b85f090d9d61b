#include "info_problem.h"

#include <charconv>
#include <functional>
#include <map>
#include <system_error>

#include "base/message.h"
#include "halftone/error.h"

namespace halftone::app {

const char* const kGemmWords =
    "a GEMM: matmul m= n= k=, grouped groups= rows= n= k=, or moe tokens= hidden= intermediate= "
    "experts= top_k=; weight= and x= as formats (bf16, fp8, nvfp4, fp8_1x128, ...), align= bytes "
    "at "
    "which rows begin; of matmul also out= bias= residual= gated= transposed= norm= tf32= library=";

namespace gemm_words {

// Where the values of words go.
using Words = std::map<std::string, std::function<void(const std::string&)>>;

void into(int64_t* to, const std::string& key, const std::string& value) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *to);
  require(error == std::errc() && end == value.data() + value.size() && *to >= 0, key, " is \"",
          value, "\"; it must be a whole number, not negative");
}
void into(bool* to, const std::string& key, const std::string& value) {
  require(value == "0" || value == "1", key, " is \"", value, "\"; it must be 0 or 1");
  *to = value == "1";
}
// A plain format, or a quantised one with its scales.
void into(Format* format, bool* scaled, Scaling* scaling, const std::string& value) {
  if (value == "f32" || value == "f16" || value == "bf16") {
    *format = parse_format(value), *scaled = false;
    return;
  }
  const QuantizeOptions q = parse_quantization(value);
  *format = q.format, *scaling = q.scaling, *scaled = true;
}
void align(OperandAlignment* a, int64_t bytes) {
  require(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16, "align is ", bytes,
          "; it must be 1, 2, 4, 8 or 16");
  const int to = static_cast<int>(bytes);
  a->x = a->weight = a->weight_scales = a->scale_storage = to;
  a->out = a->residual = a->norm = to;
}

template <class T>
void add(Words* words, const char* key, T* to) {
  (*words)[key] = [=](const std::string& value) { into(to, key, value); };
}
template <class Problem>
void add_weight(Words* words, Problem* p) {
  (*words)["weight"] = [=](const std::string& v) { into(&p->weight, &p->scaled, &p->scaling, v); };
}

void read(const std::vector<std::string>& given, const Words& words) {
  std::string known;
  for (const auto& [key, to] : words) known += (known.empty() ? "" : ", ") + key;
  for (size_t i = 1; i < given.size(); ++i) {
    const size_t equals = given[i].find('=');
    const std::string key = given[i].substr(0, equals);
    const auto word = words.find(key);
    require(equals != std::string::npos && word != words.end(), "\"", given[i], "\" is no word of ",
            given[0], "; it takes ", known, ", each as key=value");
    word->second(given[i].substr(equals + 1));
  }
}

}  // namespace gemm_words

GemmQuestion parse_gemm(const std::vector<std::string>& given) {
  using namespace gemm_words;
  Words words;
  const std::string family = given.empty() ? "" : given[0];
  int64_t bytes = 0;
  add(&words, "align", &bytes);
  if (family == "matmul") {
    MatmulProblem p;
    p.m = 1, p.n = p.k = 4096;
    bool gated = false, norm = false;
    std::string out;
    add(&words, "m", &p.m), add(&words, "n", &p.n), add(&words, "k", &p.k);
    add_weight(&words, &p);
    add(&words, "batch_invariant", &p.batch_invariant);
    words["x"] = [&](const std::string& v) { into(&p.x, &p.x_scaled, &p.x_scaling, v); };
    words["quantize_x"] = [&](const std::string& v) { p.quantize_x = parse_quantization(v); };
    words["out"] = [&](const std::string& v) { out = v; };
    words["library"] = [&](const std::string& v) {
      require(v == "automatic" || v == "halftone" || v == "cublaslt", "library is \"", v,
              "\"; it must be automatic, halftone or cublaslt");
      p.library = v == "halftone"   ? MatmulLibrary::halftone
                  : v == "cublaslt" ? MatmulLibrary::cublaslt
                                    : MatmulLibrary::automatic;
    };
    add(&words, "bias", &p.bias), add(&words, "residual", &p.residual);
    add(&words, "gated", &gated), add(&words, "transposed", &p.weight_transposed);
    add(&words, "norm", &norm), add(&words, "tf32", &p.tf32);
    read(given, words);
    p.out = !out.empty() ? parse_format(out) : is_plain_float(p.x) ? p.x : Format::bf16;
    if (gated) p.gated = GatedActivation::swiglu(), p.separate_up = true;
    if (norm) p.norm = MatmulNorm{};
    if (bytes > 0) align(&p.alignment, bytes);
    return p;
  }
  if (family == "grouped") {
    GroupedProblem p;
    p.groups = 8, p.rows = 64, p.n = p.k = 4096;
    add(&words, "groups", &p.groups), add(&words, "rows", &p.rows);
    add(&words, "n", &p.n), add(&words, "k", &p.k), add(&words, "masked", &p.masked);
    add_weight(&words, &p);
    add(&words, "batch_invariant", &p.batch_invariant);
    words["x"] = [&](const std::string& v) { into(&p.x, &p.x_scaled, &p.x_scaling, v); };
    read(given, words);
    p.out = is_plain_float(p.x) ? p.x : Format::bf16;
    if (bytes > 0) align(&p.alignment, bytes);
    return p;
  }
  require(family == "moe", "\"", family, "\" is no GEMM; it must be matmul, grouped or moe");
  MoeProblem p;
  p.tokens = 1, p.hidden = 2048, p.intermediate = 768, p.experts = 128;
  int64_t top_k = 8;
  add(&words, "tokens", &p.tokens), add(&words, "hidden", &p.hidden);
  add(&words, "intermediate", &p.intermediate), add(&words, "experts", &p.experts);
  add(&words, "top_k", &top_k), add(&words, "shared", &p.shared_intermediate);
  add_weight(&words, &p);
  add(&words, "batch_invariant", &p.batch_invariant);
  words["x"] = [&](const std::string& v) { p.x = parse_format(v); };
  words["quantize_x"] = [&](const std::string& v) { p.quantize_x = parse_quantization(v); };
  read(given, words);
  p.top_k = static_cast<int>(top_k);
  p.shared_weight = p.weight, p.shared_scaled = p.scaled, p.shared_scaling = p.scaling;
  if (bytes > 0) {
    for (OperandAlignment* a :
         {&p.alignment.up, &p.alignment.down, &p.alignment.shared_up, &p.alignment.shared_down}) {
      align(a, bytes);
    }
  }
  return p;
}

}  // namespace halftone::app
