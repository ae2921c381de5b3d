# hognose_library(NAME SOURCES ... DEPS ...): a static library of one src/ folder.
function(hognose_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(hognose_${name} STATIC ${ARG_SOURCES})
  target_include_directories(hognose_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(hognose_${name} PUBLIC ${ARG_DEPS})
endfunction()

# hognose_test(NAME SOURCES ... DEPS ... [LABEL unit|parity|fuzz|slow]): one GoogleTest program.
# Tests find committed files through HOGNOSE_SOURCE_DIR and generated ones through HOGNOSE_BUILD_DIR.
function(hognose_test name)
  if(NOT HOGNOSE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HOGNOSE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             HOGNOSE_BUILD_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 1200)
endfunction()

# hognose_kernel(NAME [SOURCES ...] [TEST_SOURCES ...]): src/kernels/NAME/NAME{.h,.cc,_test.cc,
# _bench.cc}. A missing one is an error. The lists are further files of the kernel and of its test.
function(hognose_kernel name)
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  foreach(file ${name}.h ${name}.cc ${name}_test.cc ${name}_bench.cc)
    if(NOT EXISTS ${dir}/${file})
      message(FATAL_ERROR "kernel ${name}: ${dir}/${file} is missing")
    endif()
  endforeach()
  cmake_parse_arguments(ARG "" "" "SOURCES;TEST_SOURCES" ${ARGN})
  target_sources(hognose_kernels PRIVATE ${dir}/${name}.cc)
  foreach(source ${ARG_SOURCES})
    target_sources(hognose_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  hognose_test(${name}_test SOURCES ${dir}/${name}_test.cc ${ARG_TEST_SOURCES}
               DEPS hognose_kernels hognose_test_support)
  if(HOGNOSE_BENCH)
    add_executable(${name}_bench ${dir}/${name}_bench.cc)
    target_link_libraries(${name}_bench PRIVATE hognose_kernels benchmark::benchmark_main)
  endif()
endfunction()
