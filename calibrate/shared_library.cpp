// SPDX-License-Identifier: Apache-2.0
#include "calibrate/shared_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery::calibrate {

SharedLibrary::SharedLibrary(std::span<const std::string> names) {
  for (const std::string& name : names) {
    for (const std::string& folder : {std::string(), std::string(ORRERY_CUDA_LIBRARY_DIR)}) {
      handle_ = dlopen((folder.empty() ? name : folder + "/" + name).c_str(), RTLD_NOW);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
      if (const char* message = dlerror(); problem_.empty() && message != nullptr) {
        problem_ = message;
      }
    }
  }
}

void* SharedLibrary::find(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void* SharedLibrary::symbol(const char* name) const {
  void* address = find(name);
  if (address == nullptr) {
    throw Error(ErrorKind::DeviceMissing, name_.empty() ? "library" : name_,
                handle_ == nullptr ? problem_ : fmt::format("has no function {}", name));
  }
  return address;
}

}  // namespace orrery::calibrate
