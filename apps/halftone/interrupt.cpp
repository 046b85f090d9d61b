#include "interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "command.h"

namespace halftone::app {

namespace {

// Never destroyed: the watching thread may outlive main's statics.
std::stop_source& source() {
  static auto* const stop = new std::stop_source;
  return *stop;
}
std::atomic<bool> graceful{false};

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void watch_interrupts() {
  static const sigset_t set = signals();
  source();
  // Blocked here and in every thread to come; a signal waits for sigwait below, where any function
  // may be called, unlike in a handler.
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([] {
    for (;;) {
      int signal = 0;
      if (sigwait(&set, &signal) != 0) continue;
      if (graceful && source().request_stop()) continue;
      // Nothing of a progress bar stays on the line; the system takes back memory, a GPU's too.
      constexpr char kClearLine[] = "\r\x1b[K";
      if (isatty(2) != 0) (void)!write(2, kClearLine, sizeof kClearLine - 1);
      _exit(128 + signal);
    }
  }).detach();
}

std::stop_token stop_on_interrupt() {
  graceful = true;
  return source().get_token();
}

}  // namespace halftone::app
