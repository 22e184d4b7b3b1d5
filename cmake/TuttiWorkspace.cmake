# Shared by all members: language level, warnings, sanitizers, output folders, and how a member is added.
include(GNUInstallDirs)
include(CTest)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this ccache keeps nothing that was compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER)
  tutti_summary("compiler cache" "${CCACHE}")
else()
  tutti_summary("compiler cache" "left out: not found: ccache")
endif()

if(TUTTI_WHEEL)
  # Its files find each other whatever LD_LIBRARY_PATH names: a path of the kind that comes before it.
  add_link_options(-Wl,--disable-new-dtags)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_SOURCE_DIR}/cmake/wheel_symbols.hpp\">")
endif()

# Flags of our own code only. They are never exported: the package's users get the warnings, not the errors.
add_library(tutti_build_flags INTERFACE)
target_compile_options(tutti_build_flags INTERFACE ${TUTTI_WARNINGS})
# The same objects, and so hits of the compiler cache, wherever the checkout lies.
target_compile_options(tutti_build_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.>)
if(TUTTI_WERROR)
  target_compile_options(tutti_build_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Werror>)
endif()
# The files of a folder are compiled as one, which takes half the time: headers are read and templates made once. Debug builds go
# file by file, for those who change one file at a time.
if(NOT DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
endif()
if(CMAKE_UNITY_BUILD)
  # A name of one file then seems to hide another's, and g++ 12 sees more that is falsely uninitialized. Debug builds have these
  # warnings.
  foreach(warning shadow subobject-linkage maybe-uninitialized)
    target_compile_options(tutti_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-${warning}>)
  endforeach()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # for fuzzing only; the code is kept free of g++'s warnings
  target_compile_options(tutti_build_flags INTERFACE -Wno-everything)
endif()
if(TUTTI_SANITIZE)
  # -g1: line numbers for the reports; more takes the compiler half as long again.
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
  # g++ 12 warns falsely of them on std::string in instrumented code.
  foreach(warning array-bounds stringop-overflow)
    target_compile_options(tutti_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-${warning}>)
  endforeach()
endif()

# tutti_computes(TARGET...): targets that compute more than they wait. The preset asan-ubsan compiles without the optimiser, which
# its instrumentation keeps busy for longer than the tests run; these targets are optimised all the same. So are programs among them
# in a release, in which tests are compiled with -Og.
function(tutti_computes)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    if(TUTTI_SANITIZE)
      target_compile_options(${target} PRIVATE -O1)
      set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    elseif(type STREQUAL EXECUTABLE)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
      set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# tutti_precompile_test_headers(): the target tutti_test_headers, a precompiled header that tutti_test() uses. It has only headers
# that no change of the tree touches. Its flags must be those of every test: g++ crashes on a header made for another -O.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without it, and so finds a test that forgets an #include.
function(tutti_precompile_test_headers)
  if(NOT TUTTI_BUILD_TESTS)
    return()
  endif()
  find_package(GTest REQUIRED)
  add_library(tutti_test_headers OBJECT "${CMAKE_SOURCE_DIR}/cmake/test_headers.cpp")
  target_precompile_headers(tutti_test_headers PRIVATE <gtest/gtest.h> <algorithm> <array> <atomic> <barrier> <chrono> <cmath> <cstdio>
    <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
    <sstream> <string> <thread> <vector>)
  tutti_test_flags(tutti_test_headers)
  # As a program's objects are compiled.
  set_target_properties(tutti_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(tutti_test_headers PRIVATE -fPIE)
endfunction()

# The plugin ABI (pure C headers), and the SDK: header-only C++ over it, and over what core and plugins do alike.
add_library(tutti_abi INTERFACE)
add_library(tutti::abi ALIAS tutti_abi)
target_include_directories(tutti_abi INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/core/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(tutti_sdk INTERFACE)
add_library(tutti::sdk ALIAS tutti_sdk)
set(tutti_shared_headers "${CMAKE_SOURCE_DIR}/core/base/include" "${CMAKE_SOURCE_DIR}/core/net/include")
target_include_directories(tutti_sdk INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/plugins/sdk/include>
  "$<BUILD_INTERFACE:${tutti_shared_headers}>" $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tutti_sdk INTERFACE tutti_abi)
target_compile_features(tutti_sdk INTERFACE cxx_std_20)

# tutti_lightly_optimised(TARGET...): code that reads options and files, prints and calls libraries. The optimiser takes longer for
# the templates of CLI11, JSON and pybind11 than it saves: -O3 half as long again as -O1, and -O1 a fifth longer than -Og.
function(tutti_lightly_optimised)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endforeach()
endfunction()

# tutti_unity_by_folder(TARGET): a library of several folders. Where several files are compiled as one, those of a folder are.
# Called after all its sources are added.
function(tutti_unity_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(home ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${home}")
    cmake_path(GET source PARENT_PATH folder)
    file(RELATIVE_PATH folder "${home}" "${folder}")
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
endfunction()

# tutti_loader_path(TARGET): the installed program TARGET finds libtutti wherever the prefix is moved, and has the same path in the
# build tree. The path of a build that CMake changes while it installs ends in a colon, which the loader reads as the current folder.
function(tutti_loader_path target)
  file(RELATIVE_PATH path "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  file(RELATIVE_PATH build_path "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  set(paths "$ORIGIN/${path}" "$ORIGIN/${build_path}")
  list(REMOVE_DUPLICATES paths)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${paths}" INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# tutti_install_python_module(TARGET DESTINATION): installs an extension module of Python into DESTINATION below the prefix, where
# it finds libtutti wherever the prefix is moved. In the build tree its path is that tree's, which is changed when it is installed.
# A path that is changed in place gets no longer: the first one is filled with "/.".
function(tutti_install_python_module target destination)
  file(RELATIVE_PATH path "${CMAKE_INSTALL_PREFIX}/${destination}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(path "$ORIGIN/${path}")
  if(TUTTI_WHEEL)  # nobody uses its build tree
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path}" BUILD_WITH_INSTALL_RPATH ON)
    install(TARGETS ${target} LIBRARY DESTINATION ${destination})
    set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED ${target})
    return()
  endif()
  set(build_path "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  string(LENGTH "${path}" length)
  string(LENGTH "${build_path}" build_length)
  while(build_length LESS length)
    string(APPEND build_path "/.")
    string(LENGTH "${build_path}" build_length)
  endwhile()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${build_path}" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${target} LIBRARY DESTINATION ${destination})
  set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED ${target})
  if(CMAKE_SKIP_RPATH OR CMAKE_SKIP_INSTALL_RPATH)
    return()  # there is none
  endif()
  install(CODE "file(RPATH_CHANGE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${destination}/$<TARGET_FILE_NAME:${target}>\"
    OLD_RPATH [[${build_path}]] NEW_RPATH [[${path}]])")
endfunction()

# tutti_manual(NAME PROGRAM SUMMARY): build/man/NAME.1, made from what PROGRAM prints for --help. The target man makes them all.
find_program(TUTTI_HELP2MAN help2man)
set(TUTTI_MANUALS OFF)
if(NOT TUTTI_HELP2MAN)
  tutti_summary("man pages" "left out: not found: help2man")
elseif(NOT Python3_Interpreter_FOUND)
  tutti_summary("man pages" "left out: not found: python3")
elseif(TUTTI_WHEEL)
  tutti_summary("man pages" "left out: a wheel has none")
elseif(TUTTI_SANITIZE OR CMAKE_CROSSCOMPILING)
  tutti_summary("man pages" "left out: sanitized and cross-compiled programs are not run to write them")
else()
  set(TUTTI_MANUALS ON)
  tutti_summary("man pages" "by ${TUTTI_HELP2MAN}")
endif()
function(tutti_manual name program summary)
  if(NOT TUTTI_MANUALS)
    return()
  endif()
  set(page "${CMAKE_BINARY_DIR}/man/${name}.1")
  set(script "${CMAKE_SOURCE_DIR}/tools/shell/manual.py")
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/man")
  add_custom_command(OUTPUT "${page}" DEPENDS "${program}" "${script}" VERBATIM COMMENT "Man page of ${name}"
    COMMAND Python3::Interpreter -B "${script}" "${TUTTI_HELP2MAN}" "${program}" ${name} ${PROJECT_VERSION} "${summary}" "${page}")
  add_custom_target(man_${name} ALL DEPENDS "${page}")
  if(NOT TARGET man)
    add_custom_target(man)
  endif()
  add_dependencies(man man_${name})
  install(FILES "${page}" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED_FILES "${page}")
endfunction()

# tutti_install_program(NAME SUMMARY): a program that belongs to the package. Its man page begins with the summary.
function(tutti_install_program name summary)
  tutti_loader_path(${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED ${name})
  tutti_manual(${name} $<TARGET_FILE:${name}> "${summary}")
endfunction()

# tutti_install_only_what_is_whole(): `cmake --install` stops before it copies anything where something is not built. Called
# before the members, since install rules run in the order in which they were added.
set(tutti_installed_files "${CMAKE_BINARY_DIR}/package/installed_files.txt")
function(tutti_install_only_what_is_whole)
  install(CODE "
    file(STRINGS \"${tutti_installed_files}\" files)
    foreach(file IN LISTS files)
      if(NOT EXISTS \"\${file}\")
        list(APPEND missing \"\${file}\")
      endif()
    endforeach()
    if(missing)
      list(JOIN missing \", \" missing)
      message(FATAL_ERROR \"tutti: nothing was installed: not built yet: \${missing}. Build everything first: cmake --build ${CMAKE_BINARY_DIR}\")
    endif()" ALL_COMPONENTS)
endfunction()

# tutti_needs(WHAT FOUND): called by a member whose toolkit may be absent; leaves the member out with one line, or stops.
macro(tutti_needs what found)
  if(NOT ${found})
    if(TUTTI_REQUIRE_ALL_MEMBERS)
      message(FATAL_ERROR "tutti: ${CMAKE_CURRENT_SOURCE_DIR} needs ${what}, which was not found (TUTTI_REQUIRE_ALL_MEMBERS is on)")
    endif()
    file(RELATIVE_PATH member "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
    tutti_summary(${member} "left out: not found: ${what}")
    return()
  endif()
endmacro()

function(tutti_member member)
  if(NOT EXISTS "${CMAKE_SOURCE_DIR}/${member}/CMakeLists.txt")
    message(FATAL_ERROR "tutti: TUTTI_MEMBERS names \"${member}\", which has no CMakeLists.txt")
  endif()
  # An install component is the Debian package of the same name (TuttiDebian.cmake).
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tutti-plugins)
  if(member MATCHES "^(core|plugins/sdk)$")
    set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME libtutti-dev)
  elseif(member MATCHES "^(tools|conformance)$")
    set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tutti-tools)
  elseif(member STREQUAL "cuda-kernels")
    set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tutti-plugin-cuda)
  elseif(member STREQUAL "net-ib")
    set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tutti-plugin-ib)
  endif()
  add_subdirectory(${member})
endfunction()

# tutti_bench(NAME SOURCES... [LIBS libs...]): a Google Benchmark program; never a test.
function(tutti_bench name)
  if(NOT TUTTI_BUILD_BENCHES)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  find_package(benchmark REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/benches")
  target_link_libraries(${name} PRIVATE tutti_build_flags ${arg_LIBS} benchmark::benchmark_main)
endfunction()
