// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nvml.hpp"

#include <array>

namespace orrery::calibrate {
namespace {

constexpr int kSmClock = 1;      // NVML_CLOCK_SM
constexpr int kMemoryClock = 2;  // NVML_CLOCK_MEM
constexpr int kGpuSensor = 0;    // NVML_TEMPERATURE_GPU
// nvmlClocksEventReason: HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown.
constexpr unsigned long long kSlowdowns = 0x8 | 0x20 | 0x40 | 0x80;

const std::array<std::string, 2> kNames = {"libnvidia-ml.so.1", "libnvidia-ml.so"};

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) : library_(kNames) {
  const bool complete =
      library_.try_load(functions_.init, "nvmlInit_v2") &&
      library_.try_load(functions_.shutdown, "nvmlShutdown") &&
      library_.try_load(functions_.device_by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
  library_.try_load(functions_.driver_version, "nvmlSystemGetDriverVersion");
  library_.try_load(functions_.clock, "nvmlDeviceGetClockInfo");
  library_.try_load(functions_.max_clock, "nvmlDeviceGetMaxClockInfo");
  library_.try_load(functions_.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  library_.try_load(functions_.temperature, "nvmlDeviceGetTemperature");
  library_.try_load(functions_.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  started_ = complete && functions_.init() == 0;
  if (started_ && functions_.device_by_bus(pci_bus_id.c_str(), &device_) != 0) {
    device_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (started_) {
    functions_.shutdown();
  }
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const bool known = started_ && functions_.driver_version != nullptr &&
                     functions_.driver_version(text.data(), text.size() - 1) == 0;
  return known ? text.data() : "";
}

unsigned Nvml::clock_of(int (*function)(void*, int, unsigned*), int which) const {
  unsigned value = 0;
  const bool known =
      device_ != nullptr && function != nullptr && function(device_, which, &value) == 0;
  return known ? value : 0;
}

double Nvml::sm_clock_mhz() const { return clock_of(functions_.clock, kSmClock); }
double Nvml::max_sm_clock_mhz() const { return clock_of(functions_.max_clock, kSmClock); }
double Nvml::memory_clock_mhz() const { return clock_of(functions_.clock, kMemoryClock); }
double Nvml::temperature_c() const { return clock_of(functions_.temperature, kGpuSensor); }

double Nvml::power_limit_w() const {
  unsigned milliwatts = 0;
  const bool known = device_ != nullptr && functions_.power_limit != nullptr &&
                     functions_.power_limit(device_, &milliwatts) == 0;
  return known ? milliwatts / 1000.0 : 0;
}

bool Nvml::slowed() const {
  unsigned long long reasons = 0;
  const bool known = device_ != nullptr && functions_.reasons != nullptr &&
                     functions_.reasons(device_, &reasons) == 0;
  return known && (reasons & kSlowdowns) != 0;
}

}  // namespace orrery::calibrate
