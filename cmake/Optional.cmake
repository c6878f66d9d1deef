# Finds what measuring collectives and distributed search need, and says what is left out without:
# CUDA (cmake/Cuda.cmake), NCCL and MPI (cmake/Mpi.cmake). And a faster malloc for the program.
find_package(CUDAToolkit QUIET)
find_package(MPI QUIET COMPONENTS CXX)
find_package(mimalloc 2 CONFIG QUIET)
find_path(ORRERY_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(ORRERY_NCCL_INCLUDE)

if(ORRERY_HAS_CUDA)
  message(NOTICE "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: `orrery calibrate gpu` is built")
  if(NOT ORRERY_NCCL_INCLUDE)
    message(NOTICE "No NCCL: `orrery calibrate nccl` will say so")
  endif()
else()
  message(NOTICE "No CUDA: `orrery calibrate gpu` will say so")
endif()
if(NOT MPI_CXX_FOUND)
  message(NOTICE "No MPI: `orrery plan` will search on one machine")
endif()
