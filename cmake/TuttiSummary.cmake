# tutti_summary(NAME TEXT): a line of what CMake prints at the end of configuring: what was found for NAME and is used, or that
# it is left out, and why.
function(tutti_summary name text)
  string(LENGTH "${name}" length)
  math(EXPR missing "28 - ${length}")
  if(missing LESS 1)
    set(missing 1)
  endif()
  string(REPEAT " " ${missing} space)
  set_property(GLOBAL APPEND_STRING PROPERTY TUTTI_SUMMARY "\n--   ${name}${space}${text}")
endfunction()

# tutti_print_summary(): called once, after everything else.
function(tutti_print_summary)
  get_property(lines GLOBAL PROPERTY TUTTI_SUMMARY)
  message(STATUS "${PROJECT_NAME} ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}:${lines}")
endfunction()
