// SPDX-License-Identifier: Apache-2.0
// Clocks, temperature and power limit of a GPU through NVML, opened while the program runs: without
// it every reading is 0 (unknown) and nothing else changes. Function and constant names are those
// of NVIDIA's NVML reference; their binary interface has been stable since driver 450.
#pragma once

#include <string>

#include "calibrate/shared_library.hpp"

namespace orrery::calibrate {

class Nvml {
 public:
  // `pci_bus_id` as cudaDeviceGetPCIBusId writes it.
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool available() const { return device_ != nullptr; }
  std::string driver_version() const;
  double sm_clock_mhz() const;
  double max_sm_clock_mhz() const;
  double memory_clock_mhz() const;
  double power_limit_w() const;
  double temperature_c() const;
  // A thermal or power-brake slowdown is in force; the usual power cap is none.
  bool slowed() const;

 private:
  struct Functions {
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    int (*device_by_bus)(const char*, void**) = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    int (*clock)(void*, int, unsigned*) = nullptr;
    int (*max_clock)(void*, int, unsigned*) = nullptr;
    int (*power_limit)(void*, unsigned*) = nullptr;
    int (*temperature)(void*, int, unsigned*) = nullptr;
    int (*reasons)(void*, unsigned long long*) = nullptr;
  };
  unsigned clock_of(int (*function)(void*, int, unsigned*), int which) const;

  SharedLibrary library_;
  Functions functions_;
  bool started_ = false;
  void* device_ = nullptr;
};

}  // namespace orrery::calibrate
