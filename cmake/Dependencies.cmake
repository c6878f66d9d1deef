find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_path(ORRERY_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
find_package(pugixml REQUIRED)

# Detected and reported only: no part of this version is built with them.
include(cmake/Optional.cmake)
