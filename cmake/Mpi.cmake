# MPI, where there is one, is in a module of its own: the program loads it only when an MPI launcher
# started it, and starts as fast as without.
if(MPI_CXX_FOUND)
  add_library(orrery_mpi MODULE ${CMAKE_SOURCE_DIR}/search/mpi/module.cpp)
  set_target_properties(orrery_mpi PROPERTIES PREFIX "")
  target_include_directories(orrery_mpi PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(orrery_mpi PRIVATE orrery_options MPI::MPI_CXX)
  add_dependencies(orrery orrery_mpi)
  install(TARGETS orrery_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery)
endif()
file(RELATIVE_PATH to_libraries "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}/orrery")
set_target_properties(orrery PROPERTIES
  BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN/${to_libraries}")
