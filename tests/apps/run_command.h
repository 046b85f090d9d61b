// Runs the halftone command as a user would, and looks at what it leaves.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/source_path.h"

namespace halftone::test {

struct CommandResult {
  int exit_code = -1;  // 128 + signal when one killed it
  std::string out, err;
};

struct CommandCall {
  std::vector<std::string> arguments;
  std::vector<std::string> environment = {};  // "NAME=value", added
  std::string input = {};
  // Sent once, as soon as stdout or stderr has shown something, or at once.
  int signal = 0;
  enum class When { out, err, start } when = When::out;
};

inline CommandResult run_command(const CommandCall& call) {
  int in[2], out[2], err[2];
  if (pipe(in) != 0 || pipe(out) != 0 || pipe(err) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
    for (const int* ends : {in, out, err}) close(ends[0]), close(ends[1]);
    for (const std::string& variable : call.environment) {
      const size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> arguments{const_cast<char*>(HALFTONE_COMMAND)};
    for (const std::string& a : call.arguments) arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    execv(HALFTONE_COMMAND, arguments.data());
    _exit(127);
  }
  close(in[0]), close(out[1]), close(err[1]);
  if (!call.input.empty() && write(in[1], call.input.data(), call.input.size()) < 0) return {};
  close(in[1]);
  if (call.when == CommandCall::When::start) {
    usleep(300000);  // time enough to start, too short to end
    kill(child, call.signal);
  }
  CommandResult result;
  bool signalled = call.signal == 0 || call.when == CommandCall::When::start;
  pollfd ends[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  const pollfd* watched = &ends[call.when == CommandCall::When::err ? 1 : 0];
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    poll(ends, 2, -1);
    for (pollfd& end : ends) {
      if (end.fd < 0 || end.revents == 0) continue;
      char buffer[4096];
      const ssize_t count = read(end.fd, buffer, sizeof buffer);
      if (count <= 0) {
        end.fd = -1;
        continue;
      }
      (&end == ends ? result.out : result.err).append(buffer, static_cast<size_t>(count));
      if (!signalled && &end == watched) {
        kill(child, call.signal);
        signalled = true;
      }
    }
  }
  close(out[0]), close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

inline CommandResult run_command(const std::vector<std::string>& arguments) {
  return run_command(CommandCall{arguments});
}

inline std::string source(const std::string& path) { return source_path(path); }

}  // namespace halftone::test
