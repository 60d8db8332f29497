# Target helpers. They make the layering rules of docs/architecture.md fail the
# build instead of a review:
#  * a module's public headers live in <module>/include, everything else is
#    private because no other target has it on its include path;
#  * every public header is compiled alone (elasticdl_library);
#  * a *_test.cc that no elasticdl_test names is a configure error
#    (elasticdl_check_tests);
#  * a forbidden dependency, direct or not, is a configure error
#    (elasticdl_forbid_dependency).

include_guard(GLOBAL)
include(GoogleTest)

# Errors with the compilers of Debian 12, which CI uses. Newer ones warn about
# more, and newer libraries deprecate what the older ones need.
set(ELASTICDL_WERROR)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 OR
   (CMAKE_CXX_COMPILER_ID MATCHES Clang AND
    CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(ELASTICDL_WERROR -Werror)
endif()
set(ELASTICDL_WARNINGS -Wall -Wextra ${ELASTICDL_WERROR} -Wno-unused-parameter)

# What many files include, parsed once: without it, parsing abseil, JSON and
# Protocol Buffers is a third of the whole build. Only GCC, which lets targets
# with other definitions share the header; clang, which checks the code, sees
# each file's own includes.
set(ELASTICDL_PCH_HEADERS
  <algorithm> <functional> <map> <memory> <optional> <set> <string> <utility>
  <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/match.h>
  <absl/strings/numbers.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>
  <absl/strings/str_split.h> <absl/time/time.h>
  <google/protobuf/message.h> <nlohmann/json.hpp>)
set(ELASTICDL_TEST_PCH_HEADERS <gmock/gmock.h> <gtest/gtest.h>)
# Tests are compiled with less optimisation than what they test: two thirds of
# their compiler's time would go into the macros of GoogleTest, which run once.
# It differs from the product's, so that tests have a precompiled header of
# their own. Flags of other build types say what they want.
set(ELASTICDL_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

# _elasticdl_pch_owner(<name> <header>...): a library whose precompiled header
# other targets share.
function(_elasticdl_pch_owner name)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc
       CONTENT "// Owns a precompiled header.\n")
  add_library(elasticdl_${name} STATIC ${CMAKE_BINARY_DIR}/${name}.cc)
  target_compile_options(elasticdl_${name} PRIVATE ${ELASTICDL_WARNINGS})
  target_precompile_headers(elasticdl_${name} PRIVATE ${ARGN})
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  _elasticdl_pch_owner(pch ${ELASTICDL_PCH_HEADERS})
  if(ELASTICDL_BUILD_TESTS)
    _elasticdl_pch_owner(pch_test
      ${ELASTICDL_PCH_HEADERS} ${ELASTICDL_TEST_PCH_HEADERS})
    target_compile_options(elasticdl_pch_test PRIVATE ${ELASTICDL_TEST_OPTIONS})
    target_link_libraries(elasticdl_pch_test PRIVATE GTest::gmock)
  endif()
endif()
if(ELASTICDL_BUILD_TESTS AND ELASTICDL_WITH_TORCH)
  _elasticdl_pch_owner(pch_torch_test
    <torch/torch.h> ${ELASTICDL_TEST_PCH_HEADERS})
  target_compile_options(elasticdl_pch_torch_test PRIVATE
    ${ELASTICDL_TEST_OPTIONS})
  target_link_libraries(elasticdl_pch_torch_test PRIVATE
    elasticdl::torch GTest::gmock)
endif()

# Compiles the files of a module in groups of about <most>: what they include,
# and the templates that they use, are compiled once for each group. Groups are
# of equal size, so that none is left over for one processor.
function(_elasticdl_compile_in_groups target most)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources files)
  math(EXPR groups "(${files} + ${most} - 1) / ${most}")
  math(EXPR size "(${files} + ${groups} - 1) / ${groups}")
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # GCC takes the files of a group for headers.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# elasticdl_test_code(<target> [NO_GTEST|TORCH]): the options of code of tests,
# of helpers too. NO_GTEST: it is not linked with GoogleTest. TORCH: it includes
# torch.
function(elasticdl_test_code target)
  cmake_parse_arguments(arg "NO_GTEST;TORCH" "" "" ${ARGN})
  # Programs are -fPIE by default, the libraries that own a header are not.
  target_compile_options(${target} PRIVATE
    ${ELASTICDL_WARNINGS} ${ELASTICDL_TEST_OPTIONS} -fPIC)
  if(arg_TORCH)
    target_precompile_headers(${target} REUSE_FROM elasticdl_pch_torch_test)
  elseif(TARGET elasticdl_pch_test AND NOT arg_NO_GTEST)
    target_precompile_headers(${target} REUSE_FROM elasticdl_pch_test)
  endif()
endfunction()

# elasticdl_library(<module> SRCS ... [PUBLIC_HDRS ...] [DEPS ...]
#                   [PRIVATE_DEPS ...] [TORCH])
# Makes target elasticdl_<module>, alias elasticdl::<module>. PUBLIC_HDRS are
# paths below include/ (e.g. elasticdl/data.h). TORCH: most files include torch;
# the module has a precompiled header of its own.
function(elasticdl_library module)
  cmake_parse_arguments(arg "TORCH" ""
                        "SRCS;PUBLIC_HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "elasticdl_library(${module}): unknown '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(target elasticdl_${module})
  # One generated file per public header proves that it compiles alone. Torch
  # headers are too slow for that and are covered by the model's own tests.
  set(alone)
  if(NOT arg_TORCH)
    foreach(header IN LISTS arg_PUBLIC_HDRS)
      string(MAKE_C_IDENTIFIER "${module}_${header}" id)
      set(file ${CMAKE_CURRENT_BINARY_DIR}/alone_${id}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "#include <${header}>\n")
      list(APPEND alone ${file})
    endforeach()
  endif()
  add_library(${target} STATIC ${arg_SRCS})
  add_library(elasticdl::${module} ALIAS ${target})
  if(alone)
    # Part of the target product, which clang compiles, and of nothing else.
    add_library(${target}_headers OBJECT EXCLUDE_FROM_ALL ${alone})
    target_compile_options(${target}_headers PRIVATE ${ELASTICDL_WARNINGS})
    target_link_libraries(${target}_headers PRIVATE ${target})
  endif()
  # Reading torch's precompiled header and instantiating its templates takes
  # longer than compiling what a file has of its own: always in groups.
  if(arg_TORCH AND ELASTICDL_UNITY)
    _elasticdl_compile_in_groups(${target} 14)
  elseif(arg_TORCH)
    _elasticdl_compile_in_groups(${target} 5)
  elseif(ELASTICDL_UNITY)
    _elasticdl_compile_in_groups(${target} 16)
  endif()
  if(arg_TORCH)
    # It has a precompiled header of its own.
  elseif(TARGET elasticdl_pch)
    target_precompile_headers(${target} REUSE_FROM elasticdl_pch)
  endif()
  set_target_properties(${target} PROPERTIES
    ELASTICDL_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${target}
    PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${ELASTICDL_WARNINGS})
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  set_property(GLOBAL APPEND PROPERTY ELASTICDL_MODULES ${module})
endfunction()

# elasticdl_program(<name> SRCS ... DEPS ...): a program in build/bin.
function(elasticdl_program name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_compile_options(${name} PRIVATE ${ELASTICDL_WARNINGS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  # The client's programs are a Debian package of their own (ElasticdlPackage).
  set(component elasticdl)
  if(name MATCHES "^elasticdl(-cluster|-ckpt)?$")
    set(component client)
  endif()
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${component})
endfunction()

# elasticdl_test(<module>/<unit> [LABEL unit|contract|integration|kube|gpu]
#                [SRCS helper.cc ...] [DEPS ...] [PROGRAMS target ...]
#                [TIMEOUT seconds] [COST number] [SERIAL] [THREADS] [TORCH]
#                [LONG_FILTER pattern])
# Registers tests/<module>/<unit>_test.cc. The test sees the private headers of
# its own module and links GoogleTest. PROGRAMS are built before it. COST: ctest
# starts those with the highest first, so that the longest do not end alone. THREADS: the
# code under test has threads of its own and needs no gRPC, so that ThreadSanitizer
# can judge it: `make tsan` runs it. Its label gets "-threads" at the end, which
# ctest's -L unit matches too. TORCH: see elasticdl_test_code. LONG_FILTER: the
# tests of this file, as of --gtest_filter, that `make test` leaves to `make
# test-long`.
function(elasticdl_test path)
  cmake_parse_arguments(arg "SERIAL;THREADS;TORCH"
                        "LABEL;TIMEOUT;COST;LONG_FILTER"
                        "SRCS;DEPS;PROGRAMS"
                        ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  get_filename_component(module ${path} DIRECTORY)
  get_filename_component(unit ${path} NAME)
  set(target ${module}_${unit}_test)
  if(arg_THREADS)
    string(APPEND arg_LABEL -threads)
    set_property(GLOBAL APPEND PROPERTY ELASTICDL_THREAD_TESTS ${target})
  endif()
  set(source ${ELASTICDL_ROOT}/tests/${path}_test.cc)
  list(TRANSFORM arg_SRCS PREPEND ${ELASTICDL_ROOT}/tests/${module}/)
  add_executable(${target} ${source} ${arg_SRCS})
  if(arg_TORCH)
    elasticdl_test_code(${target} TORCH)
  else()
    elasticdl_test_code(${target})
  endif()
  target_include_directories(${target} PRIVATE ${ELASTICDL_ROOT}/tests)
  if(TARGET elasticdl_${module})
    get_target_property(dir elasticdl_${module} ELASTICDL_SOURCE_DIR)
    target_include_directories(${target} PRIVATE ${dir})
    target_link_libraries(${target} PRIVATE elasticdl::${module})
  endif()
  target_link_libraries(${target} PRIVATE ${arg_DEPS} GTest::gmock
                                          GTest::gtest_main)
  if(arg_PROGRAMS)
    add_dependencies(${target} ${arg_PROGRAMS})
  endif()
  set(schedule)
  if(arg_SERIAL)
    list(APPEND schedule RUN_SERIAL TRUE)
  endif()
  if(arg_COST)
    list(APPEND schedule COST ${arg_COST})
  endif()
  if(module MATCHES "^(model|worker)$" AND arg_TIMEOUT EQUAL 60)
    # Loading libtorch takes longer than one of these tests: one process runs all
    # of a file.
    set(arg_TIMEOUT 300)
    add_test(NAME ${module}/${unit} COMMAND ${target})
    set_tests_properties(${module}/${unit} PROPERTIES
      LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} ${schedule})
  else()
    if(ELASTICDL_SANITIZE)
      # Several times slower.
      math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
    endif()
    set(filter "*")
    if(arg_LONG_FILTER)
      set(filter "-${arg_LONG_FILTER}")
      gtest_discover_tests(${target}
        TEST_PREFIX ${module}/ TEST_LIST ${target}_long
        TEST_FILTER "${arg_LONG_FILTER}"
        PROPERTIES LABELS ${arg_LABEL}-long TIMEOUT ${arg_TIMEOUT} ${schedule}
        DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120)
    endif()
    gtest_discover_tests(${target}
      TEST_PREFIX ${module}/
      TEST_FILTER "${filter}"
      PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} ${schedule}
      # A busy machine may take long to load libtorch.
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120)
  endif()
  # Target <module>_tests: the tests of one folder.
  if(NOT TARGET ${module}_tests)
    add_custom_target(${module}_tests)
  endif()
  add_dependencies(${module}_tests ${target})
  if(arg_LABEL MATCHES "^(unit|contract)")
    set_property(GLOBAL APPEND PROPERTY ELASTICDL_UNIT_TESTS ${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY ELASTICDL_TESTS ${source})
  set_property(GLOBAL APPEND PROPERTY ELASTICDL_TEST_TARGETS ${target})
endfunction()

# elasticdl_gpu_tests(<target> PREFIX <prefix>): the tests of this program on
# real GPUs, label `gpu`. They are skipped, with the reason, where there are none.
function(elasticdl_gpu_tests target)
  cmake_parse_arguments(arg "" "PREFIX" "" ${ARGN})
  # One at a time. NCCL needs a second or two for each world.
  gtest_discover_tests(${target}
    TEST_PREFIX ${arg_PREFIX}
    PROPERTIES LABELS gpu TIMEOUT 600 RUN_SERIAL TRUE
      ENVIRONMENT ELASTICDL_TEST_GPU=1
    DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120)
  set_property(GLOBAL APPEND PROPERTY ELASTICDL_GPU_TESTS ${target})
endfunction()

# Fails when a *_test.cc below tests/ is not registered.
function(elasticdl_check_tests)
  get_property(registered GLOBAL PROPERTY ELASTICDL_TESTS)
  file(GLOB_RECURSE present CONFIGURE_DEPENDS ${ELASTICDL_ROOT}/tests/*_test.cc)
  if(NOT ELASTICDL_WITH_TORCH)
    list(FILTER present EXCLUDE REGEX "/tests/(model|worker|integration)/")
  endif()
  foreach(file IN LISTS present)
    if(NOT file IN_LIST registered)
      message(FATAL_ERROR "${file} is not registered with elasticdl_test")
    endif()
  endforeach()
endfunction()

# Targets for parts of the tests: unit_tests is what `make asan` builds, all that
# needs no programs; thread_tests is what `make tsan` builds; tests_on_gpu is what
# `make test-gpu` builds.
function(elasticdl_add_test_targets)
  get_property(targets GLOBAL PROPERTY ELASTICDL_GPU_TESTS)
  add_custom_target(tests_on_gpu DEPENDS ${targets})
  get_property(targets GLOBAL PROPERTY ELASTICDL_UNIT_TESTS)
  add_custom_target(unit_tests DEPENDS ${targets})
  get_property(targets GLOBAL PROPERTY ELASTICDL_THREAD_TESTS)
  add_custom_target(thread_tests DEPENDS ${targets})
endfunction()

# Collects all targets that <target> links, directly or not, into <out>.
function(_elasticdl_closure target out)
  set(seen)
  set(todo ${target})
  while(todo)
    list(POP_FRONT todo next)
    if(TARGET ${next})
      get_target_property(real ${next} ALIASED_TARGET)
      if(real)
        set(next ${real})
      endif()
    endif()
    if(next IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${next})
    if(TARGET ${next})
      foreach(kind LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(libraries ${next} ${kind})
        if(libraries)
          foreach(library IN LISTS libraries)
            string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library
                                 "${library}")
            list(APPEND todo ${library})
          endforeach()
        endif()
      endforeach()
    endif()
  endwhile()
  set(${out} ${seen} PARENT_SCOPE)
endfunction()

# elasticdl_forbid_dependency(<target> <forbidden>...): configure error when
# target reaches one of the others.
function(elasticdl_forbid_dependency target)
  if(NOT TARGET ${target})
    return()
  endif()
  _elasticdl_closure(${target} closure)
  foreach(forbidden IN LISTS ARGN)
    if(forbidden IN_LIST closure)
      message(FATAL_ERROR
        "${target} must not depend on ${forbidden} (docs/architecture.md)")
    endif()
  endforeach()
endfunction()
