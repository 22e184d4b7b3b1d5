# Which tests are left to `tools/check --soak`, and what a test takes of the machine.
#
# Tiers: the gate (`tools/check`) runs the tests without the label soak. Those have it whose result can depend on the machine's
# speed or load, or on chance, and those that take long; cmake/soak_tests.txt names them, one regular expression a line. Cases of
# GoogleTest programs that judge by a clock have RealTime in their names: tutti_test makes a test NAME.real_time of them, which has
# the label, too. Tests of several seconds have the label long, unless they have soak; `tools/check --quick` leaves them out.
#
# Weights, for `ctest -j`: a test's PROCESSORS, counted in half cores. `ctest -j 6` is right on two cores
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
  simulated_hazards_test stream_failure_test stream_transfer_.* tcp_failure_test tcp_late_test tuttirun_tls_test)
set(TUTTI_TESTS_OF_ONE_CORE
  abi.* algorithms_.* bootstrap_test call_check_test chaos_posted_test chaos_test compare.* conform.mutate conform.proofs_. conform_report_test
  conformance.contract.* conformance.walk.* documents.* examples_.*_test fused_stream_test fuzz.* codec_test gradient_lost_rank_test host_rate ib_model_test info.topology input_pages_test interrupted_calls_test kernels_test link_test order_page out_of_memory_test
  package.debian package.guide package.vendor plan_test python_.* registry_test schedule_mutants_test schedule_mutation_test schedule_test several_communicators_test shell.*
  starved_rank_test stream_hazards_test stream_process_test stream_test.* survival tcp_connect_test topology_test tuning_test tutti_plan_test unknown_settings_test
  unequal_process_test.* window_calls_test.* window_deadlines_test.* windows_test)

# Those that take longest start first, so that no core is idle at the end: seconds on an idle machine, and all of them above 3.
set(TUTTI_LONG_TESTS
  conform.proofs_1=8 conform.proofs_2=8 conform.proofs_3=8 conform.proofs_4=8 conform.smoke_tcp=19 algorithms_proof_test=13 check.script=13 algorithms_numbers_test=13 collectives_test=12
  conform.command_line=12 conform.smoke_mixed=11 window_calls_test=8 unequal_blocks_test=8 kernels_test=8 conform.smoke_shm=8
  abi.checks=8 conformance.contract.tcp=7 abi.headers=7 python_choice_test=6 out_of_memory_test=5 stream_transfer_test=5
  conform_report_test=5 bootstrap_test=15 api_compile_errors_test=4 order_page=4 ib_model_test=4 captured_stream_test=3
  canonical_order_test=3 algorithms_hosts_test=3 tcp_transfer_test=3)

# Programs and plugins that only tests of the soak tier use, besides the tests in GoogleTest programs of their own.
set(TUTTI_SOAK_PROGRAMS differential_test from_mpi_test hang_rank limits mixed_hosts mpi_mean mutants mutants-exports-more survival traced_rank)

# tutti_sort_tests(): called after all members. Without TUTTI_BUILD_SOAK_TESTS the tests of the soak tier are disabled, and the
# target all leaves out what they alone use. A test's properties can be set in its own folder only, so ctest itself does it:
# it reads this last folder's file after all tests. tools/check adds limits of time that follow the machine's speed (limits.cmake).
function(tutti_sort_tests)
  list(JOIN TUTTI_TESTS_THAT_WAIT "|" waits)
  list(JOIN TUTTI_TESTS_OF_ONE_CORE "|" one_core)
  set(list "${CMAKE_SOURCE_DIR}/cmake/soak_tests.txt")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}")
  file(STRINGS "${list}" lines REGEX "^[^#]")
  list(TRANSFORM lines REPLACE "#.*" "")
  list(TRANSFORM lines STRIP)
  list(JOIN lines "|" soak)
  set(script "")
  set(soak_tests "")
  set(folders "${CMAKE_SOURCE_DIR}")
  while(folders)
    list(POP_FRONT folders folder)
    get_property(below DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
    get_property(tests DIRECTORY "${folder}" PROPERTY TESTS)
    list(APPEND folders ${below})
    foreach(test IN LISTS tests)
      string(REGEX REPLACE "\\.real_time$" "" program "${test}")
      set(weight 4)
      if(program MATCHES "^(${waits})$")
        set(weight 1)
      elseif(program MATCHES "^(${one_core})$")
        set(weight 2)
      endif()
      set(cost ${weight})
      set(label "")
      foreach(row IN LISTS TUTTI_LONG_TESTS)
        if(row MATCHES "^([^=]+)=([0-9]+)$" AND CMAKE_MATCH_1 STREQUAL test)
          set(cost ${CMAKE_MATCH_2}000)
          set(label long)
        endif()
      endforeach()
      if(test MATCHES "^(${soak})$")
        set(label soak)
        list(APPEND soak_tests ${test})
      elseif(NOT test STREQUAL program)
        list(APPEND soak_tests ${test})
      endif()
      string(APPEND script "set_tests_properties(\"${test}\" PROPERTIES PROCESSORS ${weight} COST ${cost}")
      if(label)
        string(APPEND script " LABELS ${label}")
      endif()
      string(APPEND script ")\n")
    endforeach()
  endwhile()
  if(DEFINED TUTTI_BUILD_SOAK_TESTS AND NOT TUTTI_BUILD_SOAK_TESTS)
    foreach(target IN LISTS soak_tests TUTTI_SOAK_PROGRAMS)
      if(TARGET ${target})
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
      endif()
    endforeach()
    foreach(test IN LISTS soak_tests)
      string(APPEND script "set_tests_properties(\"${test}\" PROPERTIES DISABLED ON)\n")
    endforeach()
  endif()
  set(last "${CMAKE_BINARY_DIR}/test_tiers")
  string(APPEND script "include(\"${last}/limits.cmake\" OPTIONAL)\n")
  file(WRITE "${last}/tiers.cmake" "${script}")
  file(WRITE "${last}/CMakeLists.txt" "set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES \"${last}/tiers.cmake\")\n")
  add_subdirectory("${last}" "${last}/build")
endfunction()
