// A model on one device beside the same model on another: greedy tokens and perplexity.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model_options.h"

namespace halftone::app {

struct BesideRow {
  std::string weights, kv;
  int64_t tokens = 0, same = 0;  // written greedily, and equal before the first that differs
  TextScore here, there;
};
// Every format of the weights with every one of the cache. The first tokens of the text are the
// prompt that is continued; then all of it is scored.
std::vector<BesideRow> beside(const ModelOptions&, const std::string& other_device,
                              const std::string& text, int64_t window,
                              const std::vector<std::string>& weights,
                              const std::vector<std::string>& caches,
                              const std::function<void(double)>& progress);

}  // namespace halftone::app
