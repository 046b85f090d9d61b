// What the tests load in place of NVML: a GPU that clocks down by 100 MHz each time it is asked.
namespace {
int open_count = 0;
unsigned clock_mhz = 2000;
}  // namespace

extern "C" {
int nvmlInit_v2() { return ++open_count, 0; }
int nvmlShutdown() { return --open_count, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = &open_count;
  return bus[0] == '0' ? 0 : 6;  // not found
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? clock_mhz : 0;
  if (clock_mhz > 100) clock_mhz -= 100;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 650500, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) { return *milliwatts = 700000, 0; }
}
