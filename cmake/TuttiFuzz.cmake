# tutti_fuzz(NAME SOURCES... LIBS libs... DEFINITIONS d...): a fuzz target, one file with LLVMFuzzerTestOneInput, and its corpus, the folder
# fuzz/corpus/NAME of the member.
#   TUTTI_FUZZ on (preset fuzz, clang)  build/fuzz/NAME, a libFuzzer program; all of them: the target fuzzers
#   otherwise, with tests               build/tests/fuzz_NAME, which replays the corpus and seeded mutations of it, in one
#                                       thread: ctest fuzz.NAME
option(TUTTI_FUZZ "Build fuzz targets with libFuzzer (clang only)" OFF)
set(TUTTI_FUZZ_FOLDER "${CMAKE_CURRENT_LIST_DIR}/fuzz")
if(TUTTI_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "tutti: TUTTI_FUZZ needs clang, and this is ${CMAKE_CXX_COMPILER_ID}: use the preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_custom_target(fuzzers)
endif()

function(tutti_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;DEFINITIONS")
  set(program fuzz_${name})
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}")
  if(TUTTI_FUZZ)
    add_executable(${program} EXCLUDE_FROM_ALL ${arg_SOURCES})
    set_target_properties(${program} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${program})
    # For tools/fuzz, which runs them all.
    file(WRITE "${CMAKE_BINARY_DIR}/fuzz/${name}.corpus" "${corpus}\n")
  elseif(TUTTI_BUILD_TESTS AND TUTTI_BUILD_ONE_THREAD_TESTS)
    add_executable(${program} ${arg_SOURCES} "${TUTTI_FUZZ_FOLDER}/replay.cpp")
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    target_compile_options(${program} PRIVATE $<$<CONFIG:Release>:-Og>)  # as tests
    add_test(NAME fuzz.${name} COMMAND ${program} "${corpus}")
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120)
  else()
    return()
  endif()
  target_include_directories(${program} PRIVATE "${TUTTI_FUZZ_FOLDER}")
  target_compile_definitions(${program} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${program} PRIVATE tutti_build_flags ${arg_LIBS})
endfunction()
