# Most of the build time of a small file goes to headers. Those of the standard library and of fmt
# are compiled once; the rooms' own, and the templates that both leave to be instantiated, are paid
# once for sixteen files of a folder, whose helpers have names of their own in it, therefore.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers.cpp CONTENT "")
add_library(orrery_headers STATIC ${CMAKE_BINARY_DIR}/headers.cpp)
target_include_directories(orrery_headers SYSTEM PRIVATE ${ORRERY_EXPECTED_INCLUDE})
target_link_libraries(orrery_headers PRIVATE orrery_options fmt::fmt)
set(common_headers
  <algorithm> <array> <cmath> <cstdint> <functional> <limits> <map> <memory> <numeric> <optional>
  <set> <span> <string> <string_view> <utility> <vector> <fmt/format.h> <tl/expected.hpp>)
target_precompile_headers(orrery_headers PRIVATE ${common_headers})

# GCC 12 takes short string literals for accesses out of bounds (GCC bug 105329) where the string
# class comes from a precompiled header: these files read it themselves.
set_source_files_properties(search/space/layout_fields.cpp studies/rows/assumptions.cpp studies/rows/row_cluster.cpp
                            traces/nccl_log.cpp
                            PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

# orrery_compile_together(TARGET SOURCE...): those of C++. A file that is added or taken away moves
# none of another folder to other company.
function(orrery_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  set(last_folder "")
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    if(NOT folder STREQUAL last_folder)
      set(last_folder "${folder}")
      set(number 0)
    endif()
    math(EXPR part "${number} / 16")
    math(EXPR number "${number} + 1")
    file(RELATIVE_PATH group "${CMAKE_SOURCE_DIR}" "${folder}")
    string(REPLACE "/" "_" group "${group}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}_${part}")
  endforeach()
endfunction()

# One library a room, of its folder and the FOLDERS in it that are no registry; the links are the
# whole dependency order of the rooms.
function(orrery_room name)
  cmake_parse_arguments(R "" "" "FOLDERS;LINK;PRIVATE" ${ARGN})
  set(patterns "${CMAKE_SOURCE_DIR}/${name}/*.cpp")
  foreach(folder IN LISTS R_FOLDERS)
    list(APPEND patterns "${CMAKE_SOURCE_DIR}/${name}/${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    set(sources "${CMAKE_BINARY_DIR}/empty_room.cpp")
    file(TOUCH ${sources})
  endif()
  add_library(orrery_${name} STATIC ${sources})
  add_library(orrery::${name} ALIAS orrery_${name})
  set_target_properties(orrery_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_compile_features(orrery_${name} PUBLIC cxx_std_20)
  target_include_directories(orrery_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/orrery>)
  foreach(lib IN LISTS R_LINK)
    target_link_libraries(orrery_${name} PUBLIC orrery_${lib})
  endforeach()
  target_link_libraries(orrery_${name} PRIVATE $<BUILD_INTERFACE:orrery_options> fmt::fmt ${R_PRIVATE})
  target_precompile_headers(orrery_${name} REUSE_FROM orrery_headers)
  orrery_compile_together(orrery_${name} ${sources})
endfunction()

orrery_room(base PRIVATE nlohmann_json::nlohmann_json Threads::Threads)
target_include_directories(orrery_base SYSTEM PUBLIC $<BUILD_INTERFACE:${ORRERY_EXPECTED_INCLUDE}>)
target_compile_definitions(orrery_base PRIVATE
  ORRERY_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  ORRERY_BINARY_DIR="${CMAKE_BINARY_DIR}"
  ORRERY_INSTALL_DATADIR="${CMAKE_INSTALL_DATADIR}/orrery"
  ORRERY_VERSION="${PROJECT_VERSION}")
orrery_room(sim FOLDERS engine orders pipeline LINK base)
orrery_registry(TARGET orrery_sim FOLDER sim/schedules TYPE Schedule PREFIX schedule
                HEADER sim/schedule.hpp NAMESPACE orrery::sim)
orrery_registry(TARGET orrery_sim FOLDER sim/collectives TYPE CollectiveAlgorithm PREFIX collective
                HEADER sim/collective.hpp NAMESPACE orrery::sim)
orrery_room(models LINK base)
orrery_registry(TARGET orrery_models FOLDER models/import TYPE ConfigImporter PREFIX importer
                HEADER models/config_import.hpp NAMESPACE orrery::models)
orrery_room(topologies LINK sim PRIVATE Boost::headers pugixml::pugixml)
orrery_registry(TARGET orrery_topologies FOLDER topologies/builders TYPE TopologyBuilder PREFIX builder
                HEADER topologies/builder.hpp NAMESPACE orrery::topologies)
orrery_room(traces LINK sim PRIVATE nlohmann_json::nlohmann_json)
orrery_room(costmodel LINK models topologies)
orrery_room(plan FOLDERS block document flat launch_script mixed recommender replay serving
                         simulation stage
            LINK costmodel)
orrery_registry(TARGET orrery_plan FOLDER plan/exporters TYPE Exporter PREFIX exporter
                HEADER plan/exporter.hpp NAMESPACE orrery::plan)
orrery_registry(TARGET orrery_plan FOLDER plan/importers TYPE Importer PREFIX importer
                HEADER plan/importer.hpp NAMESPACE orrery::plan)
orrery_room(search FOLDERS mixed per_block problems space tree LINK plan
            PRIVATE Threads::Threads ${CMAKE_DL_LIBS} ${ORRERY_GLPK_LIBRARY})
target_include_directories(orrery_search SYSTEM PRIVATE ${ORRERY_GLPK_INCLUDE})
orrery_registry(TARGET orrery_search FOLDER search/planners TYPE Planner PREFIX planner
                HEADER search/planner.hpp NAMESPACE orrery::search)
orrery_registry(TARGET orrery_search FOLDER search/baselines TYPE Baseline PREFIX baseline
                HEADER search/baseline.hpp NAMESPACE orrery::search)
# The one file that depends on all sources of a search is small: an edit compiles it again, no other.
set(hashed "${CMAKE_SOURCE_DIR}/cmake/Compiler.cmake")
foreach(room base models topologies sim costmodel plan search)
  list(APPEND hashed "${CMAKE_SOURCE_DIR}/${room}/*.cpp" "${CMAKE_SOURCE_DIR}/${room}/*.hpp")
endforeach()
file(GLOB_RECURSE hashed CONFIGURE_DEPENDS ${hashed})
set(source_hash "${CMAKE_BINARY_DIR}/generated/search/tree/build.cpp")
add_custom_command(OUTPUT "${source_hash}"
  COMMAND ${CMAKE_COMMAND} "-DROOT=${CMAKE_SOURCE_DIR}" "-DOUT=${source_hash}"
          "-DBUILD=${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_CXX_FLAGS} ${CMAKE_BUILD_TYPE}"
          -P "${CMAKE_SOURCE_DIR}/cmake/source_hash.cmake"
  DEPENDS ${hashed} "${CMAKE_SOURCE_DIR}/cmake/source_hash.cmake"
  COMMENT "Hashing the sources of searches" VERBATIM)
target_sources(orrery_search PRIVATE "${source_hash}")
orrery_room(studies FOLDERS reproduction rows sweeps validation LINK search traces calibrate PRIVATE Threads::Threads)
orrery_room(calibrate FOLDERS fit LINK traces costmodel
            PRIVATE Eigen3::Eigen nlohmann_json::nlohmann_json SQLite::SQLite3 ZLIB::ZLIB
                    ${CMAKE_DL_LIBS})
orrery_registry(TARGET orrery_calibrate FOLDER calibrate/readers TYPE SampleReader PREFIX reader
                HEADER calibrate/reader.hpp NAMESPACE orrery::calibrate)
target_compile_definitions(orrery_calibrate PRIVATE
  ORRERY_CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}")
if(ORRERY_HAS_CUDA)
  file(GLOB cuda_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/calibrate/cuda/*.cpp"
       "${CMAKE_SOURCE_DIR}/calibrate/cuda/*.cu")
  list(REMOVE_ITEM cuda_sources "${CMAKE_SOURCE_DIR}/calibrate/cuda/no_device.cpp")
  if(ORRERY_CUDNN_INCLUDE)
    target_compile_definitions(orrery_calibrate PRIVATE ORRERY_HAS_CUDNN)
    target_include_directories(orrery_calibrate SYSTEM PRIVATE ${ORRERY_CUDNN_INCLUDE})
  else()
    list(FILTER cuda_sources EXCLUDE REGEX "/cudnn_")
  endif()
  target_sources(orrery_calibrate PRIVATE ${cuda_sources})
  orrery_compile_together(orrery_calibrate ${cuda_sources})
  target_compile_options(orrery_calibrate PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")
  target_link_libraries(orrery_calibrate PRIVATE CUDA::cudart_static)
  target_include_directories(orrery_calibrate SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  orrery_registry(TARGET orrery_calibrate FOLDER calibrate/cuda/benchmarks TYPE Benchmark
                  PREFIX benchmark HEADER calibrate/cuda/benchmark.hpp
                  NAMESPACE orrery::calibrate::cuda)
  # nvcc reads the headers four times for every file: all kernels are one file to it, a ninth of the
  # time. Their helpers have names of their own, therefore, those of the registry's entries too.
  file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/calibrate/cuda/*.cu"
       "${CMAKE_SOURCE_DIR}/calibrate/cuda/benchmarks/*.cu")
  set_source_files_properties(${kernels} PROPERTIES HEADER_FILE_ONLY ON)
  list(TRANSFORM kernels REPLACE "^.+$" "#include \"\\0\"")
  list(JOIN kernels "\n" kernels)
  set(all_kernels "${CMAKE_BINARY_DIR}/generated/calibrate/cuda/kernels.cu")
  file(CONFIGURE OUTPUT "${all_kernels}" CONTENT "${kernels}\n" @ONLY)
  target_sources(orrery_calibrate PRIVATE "${all_kernels}")
else()
  target_sources(orrery_calibrate PRIVATE "${CMAKE_SOURCE_DIR}/calibrate/cuda/no_device.cpp")
endif()
file(GLOB nccl_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/calibrate/nccl/*.cpp")
if(ORRERY_HAS_CUDA AND ORRERY_NCCL_INCLUDE)
  list(REMOVE_ITEM nccl_sources "${CMAKE_SOURCE_DIR}/calibrate/nccl/no_device.cpp")
  target_include_directories(orrery_calibrate SYSTEM PRIVATE ${ORRERY_NCCL_INCLUDE})
else()
  list(REMOVE_ITEM nccl_sources "${CMAKE_SOURCE_DIR}/calibrate/nccl/nccl_device.cpp"
       "${CMAKE_SOURCE_DIR}/calibrate/nccl/nccl_library.cpp")
endif()
target_sources(orrery_calibrate PRIVATE ${nccl_sources})
orrery_compile_together(orrery_calibrate ${nccl_sources})

# Of every executable. Searches on several threads allocate many small vectors: GPT 1T takes 6 %
# less processor time, the properties of small searches a fifth less.
add_library(orrery_malloc INTERFACE)
if(mimalloc_FOUND AND NOT ORRERY_SANITIZE)
  add_library(orrery_operator_new OBJECT ${CMAKE_SOURCE_DIR}/base/malloc/operator_new.cpp)
  target_link_libraries(orrery_operator_new PRIVATE orrery_options mimalloc)
  target_sources(orrery_malloc INTERFACE $<TARGET_OBJECTS:orrery_operator_new>)
  target_link_libraries(orrery_malloc INTERFACE mimalloc)
endif()

file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/cli/*.cpp")
add_executable(orrery ${cli_sources})
target_include_directories(orrery PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(orrery PRIVATE orrery_options orrery_malloc orrery_studies orrery_calibrate
                      CLI11::CLI11 fmt::fmt)
target_precompile_headers(orrery PRIVATE ${common_headers})
orrery_compile_together(orrery ${cli_sources})

# Nothing in these is hot.
foreach(target orrery orrery_studies orrery_topologies orrery_traces)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endforeach()
