#include "engine/model/rope_config.h"

#include <algorithm>

#include "engine/limits.h"

namespace halftone {

namespace {

// Trained length: beside the scaling in Phi-3's configurations, else in it.
int64_t original_length(const JsonField& root, const JsonField& scaling, int64_t otherwise) {
  const JsonField outer = root["original_max_position_embeddings"];
  if (outer.present()) return outer.integer(1, kMaxIndex);
  return scaling["original_max_position_embeddings"].integer_or(otherwise, 1, kMaxIndex);
}

std::optional<double> optional_factor(const JsonField& field) {
  if (!field.present()) return std::nullopt;
  return field.number(1e-6, 1e6);
}

Llama3Scaling read_llama3(const JsonField& scaling, int64_t original) {
  Llama3Scaling s;
  s.factor = scaling["factor"].number(1, 1e6);
  s.low_freq_factor = scaling["low_freq_factor"].number(1e-6, 1e6);
  s.high_freq_factor = scaling["high_freq_factor"].number(1e-6, 1e6);
  s.original_max_position = original;
  if (!(s.high_freq_factor > s.low_freq_factor)) {
    scaling["high_freq_factor"].malformed(" is ", s.high_freq_factor,
                                          "; it must exceed low_freq_factor, which is ",
                                          s.low_freq_factor);
  }
  return s;
}

// `factor`, or how far the model's positions exceed the trained ones.
double stretch(const JsonField& scaling, int64_t positions, int64_t original) {
  const JsonField factor = scaling["factor"];
  if (factor.present()) return factor.number(1, 1e6);
  return std::max(1.0, static_cast<double>(positions) / static_cast<double>(original));
}

YarnScaling read_yarn(const JsonField& scaling, int64_t positions, int64_t original) {
  YarnScaling s;
  s.factor = stretch(scaling, positions, original);
  s.original_max_position = original;
  s.beta_fast = scaling["beta_fast"].number_or(32, 1e-6, 1e6);
  s.beta_slow = scaling["beta_slow"].number_or(1, 1e-6, 1e6);
  if (s.beta_fast < s.beta_slow) {
    scaling["beta_fast"].malformed(" is ", s.beta_fast,
                                   "; it must be at least beta_slow, which is ", s.beta_slow);
  }
  s.truncate = scaling["truncate"].boolean_or(true);
  s.attention_factor = optional_factor(scaling["attention_factor"]);
  s.mscale = scaling["mscale"].number_or(0, 0, 1e6);
  s.mscale_all_dim = scaling["mscale_all_dim"].number_or(0, 0, 1e6);
  return s;
}

std::vector<double> read_factors(const JsonField& field, int64_t pairs) {
  if (!field.is_array()) field.expected("an array of numbers");
  std::vector<double> factors;
  for (const JsonField& item : field.items()) factors.push_back(item.number(1e-6, 1e6));
  if (static_cast<int64_t>(factors.size()) != pairs) {
    field.malformed(" has ", factors.size(), " entries; ", 2 * pairs, " rotated dimensions need ",
                    pairs);
  }
  return factors;
}

LongRopeScaling read_longrope(const JsonField& scaling, int64_t positions, int64_t original,
                              int64_t pairs) {
  LongRopeScaling s;
  s.factor = stretch(scaling, positions, original);
  s.original_max_position = original;
  s.short_factor = read_factors(scaling["short_factor"], pairs);
  s.long_factor = read_factors(scaling["long_factor"], pairs);
  s.attention_factor = optional_factor(scaling["attention_factor"]);
  return s;
}

int64_t times(int64_t positions, double factor) {
  const double product = static_cast<double>(positions) * factor;
  return static_cast<int64_t>(std::min(product, static_cast<double>(kMaxIndex)));
}

}  // namespace

void read_rope(const JsonField& root, double default_theta, ModelConfig& model) {
  RopeOptions& rope = model.rope;
  const JsonField parameters = root["rope_parameters"];
  const bool new_keys = parameters.present();
  const JsonField scaling = new_keys ? parameters : root["rope_scaling"];
  const JsonField theta = new_keys && parameters["rope_theta"].present() ? parameters["rope_theta"]
                                                                         : root["rope_theta"];
  rope.theta = theta.number_or(default_theta, 1, 1e12);
  const JsonField partial = new_keys && parameters["partial_rotary_factor"].present()
                                ? parameters["partial_rotary_factor"]
                                : root["partial_rotary_factor"];
  const double share = partial.number_or(1, 0, 1);
  if (share != 1) {
    rope.rotary_dim = static_cast<int64_t>(static_cast<double>(model.head_dim) * share);
    if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
      partial.malformed(" is ", share, ": ", rope.rotary_dim, " of ", model.head_dim,
                        " dimensions would rotate; the number must be even and positive");
    }
  }
  if (!scaling.present()) return;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (!scaling[layer_type].present()) continue;
    scaling[layer_type].unsupported(" gives layers of this type a rotation of their own, which no ",
                                    "architecture of this version has");
  }
  const JsonField type = scaling["rope_type"].present() ? scaling["rope_type"] : scaling["type"];
  const std::string kind = type.text_or("default");
  const int64_t positions = model.max_positions;
  const int64_t original = original_length(root, scaling, positions);
  const int64_t rotated = rope.rotary_dim == 0 ? model.head_dim : rope.rotary_dim;
  if (kind == "llama3") {
    rope.llama3 = read_llama3(scaling, original);
  } else if (kind == "linear") {
    rope.linear = LinearScaling{scaling["factor"].number(1, 1e6)};
    model.max_positions = times(positions, rope.linear->factor);
  } else if (kind == "dynamic") {
    rope.dynamic = DynamicNtkScaling{scaling["factor"].number(1, 1e6), positions};
    model.max_positions = times(positions, rope.dynamic->factor);
    if (rotated <= 2) type.malformed(" is \"dynamic\"; more than 2 dimensions must rotate");
  } else if (kind == "yarn") {
    rope.yarn = read_yarn(scaling, positions, original);
    model.max_positions = std::max(positions, times(original, rope.yarn->factor));
    if (!(rope.theta > 1)) theta.malformed(" is ", rope.theta, "; yarn needs more than 1");
  } else if (kind == "longrope" || kind == "su") {
    rope.longrope = read_longrope(scaling, positions, original, rotated / 2);
    if (original < 2) type.malformed(" is ", quote(kind), "; the trained length must be over 1");
  } else if (kind != "default") {
    type.unsupported(" is ", quote(kind), "; \"default\", \"linear\", \"dynamic\", \"yarn\", ",
                     "\"longrope\" and \"llama3\" are implemented");
  }
}

}  // namespace halftone
