# How a plugin and its tests are built: in the workspace, and out of tree after find_package(Tutti), which installs this file.
include(GNUInstallDirs)
set(TUTTI_PLUGIN_VERSION_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/plugin.map")
# g++ 12 warns falsely of restrict on std::string. nvcc has flags of its own.
set(TUTTI_WARNINGS "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Wshadow;-Wno-restrict;-Wno-missing-field-initializers>")

# tutti_plugin(NAME SOURCES... [LIBS libs...]): a plugin as a shared library build/lib/tutti/libtutti-<NAME>.so that exports
# its entry symbol and nothing else, and the same objects as the static library <NAME>_static for applications that
# want one binary. Plugins link tutti::abi, tutti::sdk and their own system libraries, never the core.
function(tutti_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  # Samples set TUTTI_PLUGIN_FOLDER: they are built beside, where nobody finds them unasked, and are not installed.
  set(folder tutti)
  if(TUTTI_PLUGIN_FOLDER)
    set(folder ${TUTTI_PLUGIN_FOLDER})
  endif()
  add_library(${name} MODULE ${arg_SOURCES})
  if(folder STREQUAL tutti)
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
    set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED ${name})
  endif()
  set_target_properties(${name} PROPERTIES
    # What a plugin needs is found in the build tree as where it is installed. CMake ends a path that it changes while it installs in a
    # colon, which the loader reads as the current folder.
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
    PREFIX "libtutti-" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/${folder}" LINK_DEPENDS "${TUTTI_PLUGIN_VERSION_SCRIPT}")
  target_link_options(${name} PRIVATE "LINKER:--version-script=${TUTTI_PLUGIN_VERSION_SCRIPT}" "LINKER:--no-undefined-version")
  target_link_libraries(${name} PRIVATE tutti::abi tutti::sdk $<TARGET_NAME_IF_EXISTS:tutti_build_flags> ${arg_LIBS})
  string(MAKE_C_IDENTIFIER ${name} identifier)
  target_compile_definitions(${name} PRIVATE TUTTI_SDK_NAMESPACE=v1_${identifier})
  target_compile_options(${name} PRIVATE ${TUTTI_WARNINGS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  add_library(${name}_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  set_target_properties(${name}_static PROPERTIES LINKER_LANGUAGE CXX)
  # What the objects have of fmt is compiled into them. Tests of their insides may use the shared library.
  list(REMOVE_ITEM arg_LIBS fmt::fmt-header-only)
  target_link_libraries(${name}_static INTERFACE tutti::abi tutti::sdk ${arg_LIBS})
endfunction()

# tutti_test_flags(TARGET): how a test is compiled.
function(tutti_test_flags target)
  target_compile_options(${target} PRIVATE ${TUTTI_WARNINGS})
  # A test is compiled more often than its own code has to be fast.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  target_link_libraries(${target} PRIVATE $<TARGET_NAME_IF_EXISTS:tutti_build_flags> GTest::gtest_main)
  if(TARGET tutti_test_headers AND NOT target STREQUAL tutti_test_headers)
    target_precompile_headers(${target} REUSE_FROM tutti_test_headers)
  endif()
endfunction()

# tutti_test_program(NAME SOURCES... [LIBS libs...]): a GoogleTest program build/tests/NAME, unless there are to be no tests. In the
# workspace TUTTI_BUILD_TESTS says whether there are any; out of tree BUILD_TESTING does, and whether GoogleTest is installed.
# ONE_THREAD: see tutti_test. Other words of tutti_test and tutti_test_group may stand among the arguments.
function(tutti_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ONE_THREAD" "PREFIX;TIMEOUT" "SOURCES;LIBS;ENVIRONMENT")
  if(DEFINED TUTTI_BUILD_TESTS)
    set(wanted ${TUTTI_BUILD_TESTS})
    set(required REQUIRED)
  else()
    set(wanted ${BUILD_TESTING})
    set(required "")
  endif()
  if(arg_ONE_THREAD AND DEFINED TUTTI_BUILD_ONE_THREAD_TESTS AND NOT TUTTI_BUILD_ONE_THREAD_TESTS)
    set(wanted OFF)
  endif()
  if(NOT wanted)
    return()
  endif()
  find_package(GTest ${required})
  if(NOT GTest_FOUND)
    message(STATUS "tutti: the test ${name} is left out: GoogleTest (libgtest-dev) was not found")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  tutti_test_flags(${name})
endfunction()

# tutti_add_test(NAME PROGRAM [SOURCES files...] [ARGUMENTS ...] [TIMEOUT seconds] [ENVIRONMENT NAME=value...]): the ctest test NAME
# runs the program. SOURCES tell whether it has RealTime cases, see tutti_test, whose other words may stand among the arguments.
function(tutti_add_test name program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "ONE_THREAD" "TIMEOUT" "SOURCES;LIBS;ARGUMENTS;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(real_time "")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    if(NOT real_time AND EXISTS "${source}")  # not the objects of another target
      file(STRINGS "${source}" real_time REGEX "^ *(TYPED_)?TEST(_[FP])?\\(.*RealTime" LIMIT_COUNT 1)
    endif()
  endforeach()
  set(tests ${name})
  if(real_time)
    add_test(NAME ${name} COMMAND ${program} ${arg_ARGUMENTS} --gtest_filter=-*RealTime*)
    add_test(NAME ${name}.real_time COMMAND ${program} ${arg_ARGUMENTS} --gtest_filter=*RealTime*)
    set_tests_properties(${name}.real_time PROPERTIES LABELS soak)
    list(APPEND tests ${name}.real_time)
  else()
    add_test(NAME ${name} COMMAND ${program} ${arg_ARGUMENTS})
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# tutti_test(NAME SOURCES... [LIBS libs...] [TIMEOUT seconds] [ENVIRONMENT NAME=value...] [ONE_THREAD]): a GoogleTest program
# of the ctest suite.
# ONE_THREAD: neither the test nor what it calls starts a thread or a process. The workspace builds it unless
# TUTTI_BUILD_ONE_THREAD_TESTS is off, which spares the thread sanitizer what has no races.
# Cases with RealTime in their name judge by a real clock, so they depend on the machine's load. They run as the ctest test
# NAME.real_time with the label soak, all others as NAME.
function(tutti_test name)
  tutti_test_program(${name} ${ARGN})
  if(TARGET ${name})
    tutti_add_test(${name} ${name} ${ARGN})
  endif()
endfunction()
