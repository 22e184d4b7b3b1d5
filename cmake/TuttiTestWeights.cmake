# What a test takes of the machine, for `ctest -j`: its PROCESSORS, counted in half cores. `ctest -j 6` is right on two cores
# (tools/check: twice the cores, and two): tests of both cores, and beside them one of one core or two that wait.
#
#   4  both cores: several ranks or processes that compute; network namespaces, of which a host has one set; what measures
#   2  one core: one thread, or several that wait half of the time
#   1  waits: nearly all of its time are deadlines and pauses
#
# Those of more weight start first, so that what waits fills the place beside them and no core is idle until the end. The
# lists are by processor seconds in each second of a test alone on an idle machine: below 0.25 it waits, below 1.2 it is one core.
set(TUTTI_TESTS_THAT_WAIT
  absent_rank_test check.script conform_runner_test descriptors_test info.hang job_test operations_test operations_checksum_test
  simulated_hazards_test stream_failure_test stream_transfer_test.* tcp_failure_test tcp_late_test tuttirun_tls_test)
set(TUTTI_TESTS_OF_ONE_CORE
  abi.* algorithms_.* bootstrap_test call_check_test chaos_posted_test chaos_test compare.* conform.mutate conform_report_test
  conformance.contract.* conformance.walk.* documents.* examples_.*_test fused_stream_test fuzz.* gradient_codec_test gradient_lost_rank_test host_rate ib_model_test info.topology kernels_test link_test order_page out_of_memory_test
  package.debian package.guide package.vendor plan_test python_.* registry_test schedule_mutants_test schedule_mutation_test schedule_test several_communicators_test shell.* test_rules.*
  starved_rank_test stream_hazards_test stream_process_test stream_test.* survival tcp_connect_test topology_test tuning_test tutti_plan_test unknown_settings_test
  unequal_process_test.* window_calls_test.* windows_test)

# tutti_weigh_tests(): called after all members. It weighs the tests, and labels those of soak_tests.txt. A test's properties can
# be set in its own folder only, so ctest itself does it: it reads this last folder's file after all tests.
function(tutti_weigh_tests)
  list(JOIN TUTTI_TESTS_THAT_WAIT "|" waits)
  list(JOIN TUTTI_TESTS_OF_ONE_CORE "|" one_core)
  set(soak_tests "${CMAKE_SOURCE_DIR}/cmake/soak_tests.txt")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${soak_tests}")
  file(STRINGS "${soak_tests}" soak REGEX "^[^#]")
  list(JOIN soak "|" soak)
  set(script "")
  set(folders "${CMAKE_SOURCE_DIR}")
  while(folders)
    list(POP_FRONT folders folder)
    get_property(below DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
    get_property(tests DIRECTORY "${folder}" PROPERTY TESTS)
    list(APPEND folders ${below})
    foreach(test IN LISTS tests)
      set(weight 4)
      if(test MATCHES "^(${waits})$")
        set(weight 1)
      elseif(test MATCHES "^(${one_core})$")
        set(weight 2)
      endif()
      string(APPEND script "set_tests_properties(\"${test}\" PROPERTIES PROCESSORS ${weight} COST ${weight}000)\n")
      if(test MATCHES "^(${soak})$")
        string(APPEND script "set_tests_properties(\"${test}\" PROPERTIES LABELS soak)\n")
      endif()
    endforeach()
  endwhile()
  set(last "${CMAKE_BINARY_DIR}/test_weights")
  file(WRITE "${last}/weights.cmake" "${script}")
  file(WRITE "${last}/CMakeLists.txt" "set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES \"${last}/weights.cmake\")\n")
  add_subdirectory("${last}" "${last}/build")
endfunction()
