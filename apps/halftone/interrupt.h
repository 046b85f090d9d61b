// Ctrl-C: the first asks a command to end, the second ends the process.
#pragma once
#include <stop_token>

namespace halftone::app {

// Call before any thread starts: SIGINT and SIGTERM are then taken by a thread of their own.
void watch_interrupts();
// The first signal stops this token. Until someone has asked for it, a signal ends the process.
std::stop_token stop_on_interrupt();

}  // namespace halftone::app
