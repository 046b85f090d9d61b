// RoPE frequencies with every scaling of context length.
#include "ops/rope/frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/message.h"

namespace halftone {

namespace {

std::string refuse_factor(const char* kind, double factor, int64_t original) {
  if (factor >= 1 && std::isfinite(factor) && original >= 1) return "";
  return concat("rope: ", kind, " scaling has factor ", factor, " and original_max_position ",
                original, "; both must be finite and at least 1");
}

std::string refuse_magnitude(const char* kind, const std::optional<double>& factor) {
  if (!factor || (*factor > 0 && std::isfinite(*factor))) return "";
  return concat("rope: ", kind, " scaling has attention_factor ", *factor,
                "; it must be positive and finite");
}

std::string refuse_llama3(const Llama3Scaling& s) {
  if (s.factor >= 1 && s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor &&
      s.original_max_position >= 1) {
    return "";
  }
  return concat("rope: llama3 scaling has factor ", s.factor, ", low_freq_factor ",
                s.low_freq_factor, ", high_freq_factor ", s.high_freq_factor,
                ", original_max_position ", s.original_max_position,
                "; factor must be at least 1, the others positive and high above low");
}

std::string refuse_yarn(const YarnScaling& s, double theta) {
  if (std::string r = refuse_factor("yarn", s.factor, s.original_max_position); !r.empty())
    return r;
  if (!(theta > 1)) return concat("rope: theta is ", theta, "; yarn scaling needs more than 1");
  if (!(s.beta_slow > 0) || !(s.beta_fast >= s.beta_slow) || !std::isfinite(s.beta_fast)) {
    return concat("rope: yarn scaling has beta_fast ", s.beta_fast, " and beta_slow ", s.beta_slow,
                  "; both must be positive and beta_fast at least beta_slow");
  }
  if (!(s.mscale >= 0) || !(s.mscale_all_dim >= 0)) {
    return concat("rope: yarn scaling has mscale ", s.mscale, " and mscale_all_dim ",
                  s.mscale_all_dim, "; neither may be negative");
  }
  return refuse_magnitude("yarn", s.attention_factor);
}

std::string refuse_longrope(const LongRopeScaling& s, int64_t pairs) {
  if (std::string r = refuse_factor("longrope", s.factor, s.original_max_position); !r.empty()) {
    return r;
  }
  if (s.original_max_position < 2) return "rope: longrope's original_max_position must be over 1";
  for (const auto* factors : {&s.short_factor, &s.long_factor}) {
    const char* which = factors == &s.short_factor ? "short_factor" : "long_factor";
    if (static_cast<int64_t>(factors->size()) != pairs) {
      return concat("rope: ", which, " has ", factors->size(), " entries; ", 2 * pairs,
                    " rotated dimensions need ", pairs);
    }
    for (const double f : *factors) {
      if (f > 0 && std::isfinite(f)) continue;
      return concat("rope: ", which, " holds ", f, "; factors must be positive and finite");
    }
  }
  return refuse_magnitude("longrope", s.attention_factor);
}

// YaRN: blends the frequency of pair i with the interpolated one by its number of rotations.
struct YarnRamp {
  double low, high;
  YarnRamp(const YarnScaling& s, double theta, double rotary) {
    const auto pair_of = [&](double turns) {
      const double length = static_cast<double>(s.original_max_position);
      return rotary * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    low = pair_of(s.beta_fast);
    high = pair_of(s.beta_slow);
    if (s.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, rotary - 1);
    if (low == high) high += 0.001;
  }
  double interpolated(double pair) const {
    return std::clamp((pair - low) / (high - low), 0.0, 1.0);
  }
};

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

std::string refuse_rope(const RopeOptions& o, int64_t head_dim) {
  const int64_t rotary = o.rotary_dim == 0 ? head_dim : o.rotary_dim;
  if (head_dim < 1) return concat("rope: head_dim is ", head_dim, "; it must be at least 1");
  if (rotary < 0 || rotary > head_dim || rotary % 2 != 0) {
    return concat("rope: rotary_dim is ", rotary, "; it must be even and from 2 to head_dim ",
                  head_dim);
  }
  if (!(o.theta >= 1) || !std::isfinite(o.theta)) {
    return concat("rope: theta is ", o.theta, "; it must be finite and at least 1");
  }
  const int scalings = int{o.llama3.has_value()} + int{o.linear.has_value()} +
                       int{o.dynamic.has_value()} + int{o.yarn.has_value()} +
                       int{o.longrope.has_value()};
  if (scalings > 1) return concat("rope: ", scalings, " scalings are given; give at most one");
  if (o.llama3) return refuse_llama3(*o.llama3);
  if (o.linear) return refuse_factor("linear", o.linear->factor, 1);
  if (o.dynamic) {
    if (rotary <= 2) return "rope: dynamic scaling needs a rotary_dim above 2";
    return refuse_factor("dynamic", o.dynamic->factor, o.dynamic->original_max_position);
  }
  if (o.yarn) return refuse_yarn(*o.yarn, o.theta);
  if (o.longrope) return refuse_longrope(*o.longrope, rotary / 2);
  return "";
}

bool depends_on_length(const RopeOptions& options) { return options.dynamic || options.longrope; }

int64_t sequence_length(const RopeOptions& options, const Tensor& positions) {
  if (!depends_on_length(options) || !positions.defined() || positions.rank() != 1) return 0;
  int64_t largest = -1;
  for (int64_t i = 0; i < positions.size(0); ++i) {
    const int64_t where = i * positions.stride(0);
    if (positions.format() == Format::i64) {
      largest = std::max(largest, positions.data<int64_t>()[where]);
    } else if (positions.format() == Format::i32) {
      largest = std::max<int64_t>(largest, positions.data<int32_t>()[where]);
    }
  }
  return std::min(largest, int64_t{1} << 31) + 1;
}

double rope_magnitude(const RopeOptions& o) {
  if (o.yarn) {
    const YarnScaling& s = *o.yarn;
    if (s.attention_factor) return *s.attention_factor;
    if (s.mscale > 0 && s.mscale_all_dim > 0) {
      return yarn_mscale(s.factor, s.mscale) / yarn_mscale(s.factor, s.mscale_all_dim);
    }
    return yarn_mscale(s.factor, 1);
  }
  if (o.longrope) {
    const LongRopeScaling& s = *o.longrope;
    if (s.attention_factor) return *s.attention_factor;
    if (s.factor <= 1) return 1;
    return std::sqrt(1 +
                     std::log(s.factor) / std::log(static_cast<double>(s.original_max_position)));
  }
  return 1;
}

std::vector<double> rope_frequencies(const RopeOptions& o, int64_t head_dim, int64_t length) {
  const std::string reason = refuse_rope(o, head_dim);
  require(reason.empty(), reason);
  const double rotary = static_cast<double>(o.rotary_dim == 0 ? head_dim : o.rotary_dim);
  double theta = o.theta;
  if (o.dynamic && length > o.dynamic->original_max_position) {
    const double stretch =
        static_cast<double>(length) / static_cast<double>(o.dynamic->original_max_position);
    const double f = o.dynamic->factor;
    theta *= std::pow(f * stretch - (f - 1), rotary / (rotary - 2));
  }
  std::vector<double> frequencies(static_cast<size_t>(rotary / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& f = frequencies[i];
    f = std::pow(theta, -2.0 * static_cast<double>(i) / rotary);
    if (o.linear) f /= o.linear->factor;
    if (o.longrope) {
      const bool beyond = length > o.longrope->original_max_position;
      f /= (beyond ? o.longrope->long_factor : o.longrope->short_factor)[i];
    }
    if (o.yarn) {
      const double share = YarnRamp(*o.yarn, theta, rotary).interpolated(static_cast<double>(i));
      f = f / o.yarn->factor * share + f * (1 - share);
    }
    if (o.llama3) {
      // Llama 3.1: long wavelengths are slowed by `factor`, short ones stay, those between are
      // blended linearly in the number of rotations within the original context.
      const Llama3Scaling& s = *o.llama3;
      const double turns =
          static_cast<double>(s.original_max_position) * f / (2 * std::numbers::pi);
      const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      const double kept = std::clamp(smooth, 0.0, 1.0);
      f = (1 - kept) * f / s.factor + kept * f;
    }
  }
  return frequencies;
}

}  // namespace halftone
