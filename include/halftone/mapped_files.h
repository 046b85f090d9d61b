// Model files that another program shortens while they are in use.
#pragma once

namespace halftone {

// Weights are mapped from their files, whose sizes are checked when they are opened. A file that
// becomes shorter later (another program writes it anew) ends the process with SIGBUS, unless this
// was called: it installs a handler of that signal, and forward throws an Error (io) instead.
void guard_mapped_files();

}  // namespace halftone
