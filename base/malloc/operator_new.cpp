// SPDX-License-Identifier: Apache-2.0
// operator new of executables on mimalloc, whose own aborts where there is no memory: as a library
// in C it cannot throw. operator delete stands here as well, so that what these give goes back to
// mimalloc whatever libraries are loaded first.
#include <mimalloc.h>

#include <cstddef>
#include <new>

namespace {

template <typename Allocate>
void* allocate_or_throw(Allocate allocate) {
  for (void* block = allocate();; block = allocate()) {
    if (block != nullptr) {
      return block;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) {
      throw std::bad_alloc();
    }
    handler();
  }
}

void* allocate_aligned(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(
      [&] { return mi_malloc_aligned(size, static_cast<std::size_t>(alignment)); });
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate_or_throw([size] { return mi_malloc(size); });
}
void* operator new[](std::size_t size) {
  return allocate_or_throw([size] { return mi_malloc(size); });
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_aligned(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_aligned(size, alignment);
}

void operator delete(void* block) noexcept { mi_free(block); }
void operator delete[](void* block) noexcept { mi_free(block); }
void operator delete(void* block, std::size_t) noexcept { mi_free(block); }
void operator delete[](void* block, std::size_t) noexcept { mi_free(block); }
void operator delete(void* block, std::align_val_t) noexcept { mi_free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { mi_free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { mi_free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { mi_free(block); }
