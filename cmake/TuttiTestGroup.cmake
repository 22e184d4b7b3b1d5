# tutti_test_group(NAME SOURCES files... [PREFIX text] [LIBS libs...] [TIMEOUT seconds] [ENVIRONMENT NAME=value...] [ONE_THREAD]):
# the tests of a folder as one program, of which each file is a ctest test as by tutti_test: PREFIX and the file's name without .cpp.
# Where several files are compiled as one they share what they include, so names that differ in meaning must differ.
# Tests of the soak tier (cmake/soak_tests.txt) are programs of their own, so the gate need not build them.
function(tutti_test_group program)
  tutti_test_program(${program} ${ARGN})
  if(NOT TARGET ${program})
    return()
  endif()
  target_sources(${program} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/test_group.cpp")
  cmake_parse_arguments(PARSE_ARGV 1 arg "ONE_THREAD" "PREFIX;TIMEOUT" "SOURCES;LIBS;ENVIRONMENT")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(GET source STEM stem)
    cmake_path(GET source FILENAME file)
    tutti_add_test(${arg_PREFIX}${stem} ${program} SOURCES ${source} ARGUMENTS --sources=${file} TIMEOUT ${arg_TIMEOUT}
                   ENVIRONMENT ${arg_ENVIRONMENT})
  endforeach()
endfunction()
