// The one exception type of Halftone.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace halftone {

enum class ErrorCode : uint8_t {
  invalid_argument,  // the caller broke a documented rule
  unsupported,       // valid, but no kernel of this build does it on this device
  malformed_file,    // a file breaks its format
  io,                // a file cannot be read or written
  out_of_memory,     // the message says how much was needed
  device,            // a driver or a device failed
  interrupted,       // the caller asked to stop
};

// The message is one sentence that names the argument, its value and the rule, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Answer of every `can_run`: `reason` is empty when ok, else names the argument, its value, the
// rule.
struct Support {
  bool ok = true;
  std::string reason;
  explicit operator bool() const { return ok; }
};

}  // namespace halftone
