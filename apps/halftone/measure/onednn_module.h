// What the module of oneDNN products exports; `halftone bench` finds it beside the command.
#pragma once
#include <cstdint>

enum class OneDnnType { f32, bf16, int8 };

// y = x W^T with x [m, k] and W [n, k] copied, W `copies` times; null: not supported.
extern "C" void* halftone_onednn_open(OneDnnType, int64_t m, int64_t n, int64_t k, const void* x,
                                      const void* w, int copies);
extern "C" void halftone_onednn_run(void* product, int turn);
extern "C" void halftone_onednn_close(void* product);
