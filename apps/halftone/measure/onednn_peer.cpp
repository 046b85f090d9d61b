#include "measure/onednn_peer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "measure/onednn_module.h"

namespace halftone {

namespace {

struct Module {
  decltype(&halftone_onednn_open) open = nullptr;
  decltype(&halftone_onednn_run) run = nullptr;
  decltype(&halftone_onednn_close) close = nullptr;
};

// Loaded once, from the directory of the command. Threads of OpenMP must not spin between calls:
// they would take the processors from our products.
const Module& module(int threads) {
  static const Module loaded = [&] {
    Module m;
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0 || length == static_cast<ssize_t>(sizeof path)) return m;
    std::string file(path, static_cast<size_t>(length));
    file = file.substr(0, file.rfind('/') + 1) + "halftone_onednn.so";
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return m;
    m.open = reinterpret_cast<decltype(m.open)>(dlsym(library, "halftone_onednn_open"));
    m.run = reinterpret_cast<decltype(m.run)>(dlsym(library, "halftone_onednn_run"));
    m.close = reinterpret_cast<decltype(m.close)>(dlsym(library, "halftone_onednn_close"));
    return m;
  }();
  return loaded;
}

std::optional<OneDnnType> type_of(Format f) {
  if (f == Format::f32) return OneDnnType::f32;
  if (f == Format::bf16) return OneDnnType::bf16;
  if (f == Format::int8) return OneDnnType::int8;
  return std::nullopt;
}

}  // namespace

OneDnnPeer::OneDnnPeer(const Tensor& x, const Tensor& weight, int copies, int threads) {
  const auto type = type_of(x.format());
  if (!type || weight.format() != x.format() || module(threads).open == nullptr) return;
  product_ = module(threads).open(*type, x.size(0), weight.size(0), x.size(1), x.data(),
                                  weight.data(), copies);
}
OneDnnPeer::~OneDnnPeer() {
  if (product_ != nullptr) module(0).close(product_);
}
void OneDnnPeer::run(int turn) const { module(0).run(product_, turn); }

}  // namespace halftone
