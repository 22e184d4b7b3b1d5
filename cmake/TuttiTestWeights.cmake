# What a test takes of the machine, for `ctest -j`: its PROCESSORS, counted in half cores. `ctest -j 5` is right on two cores
# (tools/check: twice the cores, and one): one test of several ranks, or two of one core, and one that waits beside them.
#
#   1  waits: nearly all of its time are deadlines and pauses; these start first
#   2  one core: one thread, or several that wait half of the time
#   4  everything else: several ranks or processes; network namespaces, of which a host has one set
set(TUTTI_TESTS_THAT_WAIT
  absent_rank_test bootstrap_test chaos_test chaos_posted_test descriptors_test info.hang job_test
  several_communicators_test stream_failure_test tcp_connect_test tcp_failure_test tcp_late_test window_calls_test
  windows_test)
set(TUTTI_TESTS_OF_ONE_CORE
  abi.* algorithms_.* conform.mutate conform_report_test documents examples_.*_test fuzz.* kernels_test
  link_test plan_test registry_test schedule_mutants_test schedule_mutation_test schedule_test stream_test.* survival
  topology_test tutti_plan_test unknown_settings_test)

# tutti_weigh_tests(): called after all members. A test's properties can be set in its own folder only, so ctest itself does it:
# it reads this last folder's file after all tests.
function(tutti_weigh_tests)
  list(JOIN TUTTI_TESTS_THAT_WAIT "|" waits)
  list(JOIN TUTTI_TESTS_OF_ONE_CORE "|" one_core)
  set(script "")
  set(folders "${CMAKE_SOURCE_DIR}")
  while(folders)
    list(POP_FRONT folders folder)
    get_property(below DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
    get_property(tests DIRECTORY "${folder}" PROPERTY TESTS)
    list(APPEND folders ${below})
    foreach(test IN LISTS tests)
      set(weight "PROCESSORS 4")
      if(test MATCHES "^(${waits})$")
        set(weight "PROCESSORS 1 COST 1000")
      elseif(test MATCHES "^(${one_core})$")
        set(weight "PROCESSORS 2")
      endif()
      string(APPEND script "set_tests_properties(\"${test}\" PROPERTIES ${weight})\n")
    endforeach()
  endwhile()
  set(last "${CMAKE_BINARY_DIR}/test_weights")
  file(WRITE "${last}/weights.cmake" "${script}")
  file(WRITE "${last}/CMakeLists.txt" "set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES \"${last}/weights.cmake\")\n")
  add_subdirectory("${last}" "${last}/build")
endfunction()
