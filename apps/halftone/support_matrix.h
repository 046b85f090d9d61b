// What runs where, made from every family's `can_run`.
#pragma once
#include <string>
#include <vector>

#include "halftone/device.h"

namespace halftone::app {

struct DeviceState {
  std::string name;
  bool available = false;
  std::string note;  // what it is, or why it is missing
  Device device;
};
std::vector<DeviceState> devices();

// Markdown: rows are operations and formats (those with the same support together), columns are
// devices.
std::string support_matrix();

}  // namespace halftone::app
