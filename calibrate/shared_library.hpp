// SPDX-License-Identifier: Apache-2.0
// A library opened while the program runs (cuBLASLt, cuDNN, NVML, NCCL), so that the program starts
// where it is missing. It stays open until the program ends: CUDA libraries do not survive closing.
#pragma once

#include <span>
#include <string>

namespace orrery::calibrate {

class SharedLibrary {
 public:
  // Tries the file names in order, as the loader finds them and then in the folder of the toolkit
  // the program was built with.
  explicit SharedLibrary(std::span<const std::string> names);
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& problem() const { return problem_; }  // why it could not be opened

  // Error(DeviceMissing) naming library and function when it is not there.
  template <class Function>
  void load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }
  // False when it is not there.
  template <class Function>
  bool try_load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(find(name));
    return function != nullptr;
  }

 private:
  void* symbol(const char* name) const;
  void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string name_;
  std::string problem_;
};

}  // namespace orrery::calibrate
