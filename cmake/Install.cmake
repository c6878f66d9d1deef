# `cmake --install` puts the program, its data, the libraries and their headers below the prefix;
# find_package(orrery) then gives orrery::<room>.
include(CMakePackageConfigHelpers)

set(rooms base sim models topologies traces costmodel plan search studies
    calibrate)
install(TARGETS orrery RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(room IN LISTS rooms)
  install(TARGETS orrery_${room} EXPORT orrery-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/orrery
          FILES_MATCHING PATTERN "*.hpp")
endforeach()
install(DIRECTORY ${ORRERY_EXPECTED_INCLUDE}/tl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/orrery)
foreach(folder topologies/gpus topologies/nodes topologies/clusters models/zoo costmodel/profiles costmodel/kernels
        studies/headlines studies/data studies/gradients)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/${folder}/..
          FILES_MATCHING PATTERN "*.json")
endforeach()

install(EXPORT orrery-targets NAMESPACE orrery::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/orrery)
configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/orrery-config.cmake.in ${CMAKE_BINARY_DIR}/orrery-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/orrery)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/orrery-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/orrery-config.cmake
              ${CMAKE_BINARY_DIR}/orrery-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/orrery)
