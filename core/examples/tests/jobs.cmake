# The examples, run: as threads of one process, and as jobs under tuttirun. Each checks its own results.
set(transports)
if("plugins/shm" IN_LIST TUTTI_MEMBERS)
  list(APPEND transports shm)
endif()
if("net-tcp" IN_LIST TUTTI_MEMBERS)
  list(APPEND transports tcp)
endif()

foreach(transport IN LISTS transports)
  foreach(n 2 3 4)
    foreach(example IN LISTS short_examples)
      set(name example_${example}_${n}_${transport})
      add_test(NAME ${name} COMMAND ${example} --threads ${n})
      set_tests_properties(${name} PROPERTIES ENVIRONMENT "TUTTI_TRANSPORT=${transport}" TIMEOUT 30)
    endforeach()
  endforeach()
endforeach()
# One rank needs no transport; the examples must say so themselves when they cannot serve a number of ranks.
foreach(example IN LISTS short_examples)
  add_test(NAME example_${example}_1 COMMAND ${example} --threads 1)
  set_tests_properties(example_${example}_1 PROPERTIES TIMEOUT 30)
endforeach()
set_tests_properties(example_cheat_sheet_1 PROPERTIES WILL_FAIL ON)

# Each compares its loss with that of one rank.
foreach(transport IN LISTS transports)
  set(n 1 2 3 4)
  if(transport STREQUAL "tcp")
    set(n 4)
  endif()
  foreach(example IN LISTS parallel_examples)
    set(name example_${example}_${transport})
    add_test(NAME ${name} COMMAND ${example} --threads ${n} --epochs 1)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "TUTTI_TRANSPORT=${transport}" TIMEOUT 60)
  endforeach()
endforeach()
# With rings a step sends what the formulas say, to the byte.
foreach(example IN LISTS parallel_examples)
  if(transports AND NOT example STREQUAL "mixture_of_experts")  # the gate decides how much it sends
    list(GET transports 0 transport)
    set(name example_${example}_formula)
    add_test(NAME ${name} COMMAND ${example} --threads 4 --epochs 1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 60 FAIL_REGULAR_EXPRESSION
                         "library +[0-9]+\n;library +[0-9]+  [02-9];library +[0-9]+  1\\.([1-9]|0[1-9])")
    set(rings "TUTTI_ALGO=all_reduce:ring;reduce_scatter:ring;all_gather:ring")
    string(REPLACE ";" "\;" rings "${rings}")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "TUTTI_TRANSPORT=${transport};${rings}")
  endif()
endforeach()

# It loses a rank and takes in another.
foreach(transport IN LISTS transports)
  add_test(NAME example_elastic_${transport} COMMAND elastic)
  set_tests_properties(example_elastic_${transport} PROPERTIES ENVIRONMENT "TUTTI_TRANSPORT=${transport}" TIMEOUT 90
                       PASS_REGULAR_EXPRESSION "round 5: 4 ranks(.|\n)*3 of 4 ranks ended well")
endforeach()

# The loss of one rank, without a launcher, is what the jobs must reach.
set(loss "${CMAKE_CURRENT_BINARY_DIR}/one_rank.loss")
set(training --epochs 6 --min-accuracy 80)
add_test(NAME job_train_digits_1 COMMAND train_digits ${training} --loss-file ${loss})
set_tests_properties(job_train_digits_1 PROPERTIES LABELS job TIMEOUT 60 FIXTURES_SETUP one_rank_loss)
if("tools" IN_LIST TUTTI_MEMBERS)
  foreach(transport IN LISTS transports)
    set(name job_train_digits_4_${transport})
    add_test(NAME ${name} COMMAND tuttirun -n 4 $<TARGET_FILE:train_digits> ${training} --expect-loss ${loss}
                                  --expect-transport ${transport})
    set_tests_properties(${name} PROPERTIES LABELS job TIMEOUT 60 FIXTURES_REQUIRED one_rank_loss
                                            ENVIRONMENT "TUTTI_TRANSPORT=${transport}")
    add_test(NAME job_cheat_sheet_3_${transport} COMMAND tuttirun -n 3 $<TARGET_FILE:cheat_sheet>)
    set_tests_properties(job_cheat_sheet_3_${transport} PROPERTIES LABELS job TIMEOUT 60
                                                                   ENVIRONMENT "TUTTI_TRANSPORT=${transport}")
  endforeach()
  add_test(NAME job_elastic COMMAND tuttirun -n 4 --survive $<TARGET_FILE:elastic>)
  set_tests_properties(job_elastic PROPERTIES LABELS job TIMEOUT 90 PASS_REGULAR_EXPRESSION
                       "round 5: 4 ranks(.|\n)*3 of 4 ranks ended with status 0; rank 2 was killed by SIGKILL")
  # The same loss when sums are made in device memory.
  if("plugins/simulated-device" IN_LIST TUTTI_MEMBERS)
    add_test(NAME job_train_digits_2_device
             COMMAND tuttirun -n 2 $<TARGET_FILE:train_digits> ${training} --expect-loss ${loss} --device simulated)
    set_tests_properties(job_train_digits_2_device PROPERTIES LABELS job TIMEOUT 60 FIXTURES_REQUIRED one_rank_loss
                         ENVIRONMENT "TUTTI_PLUGIN_PATH=${CMAKE_BINARY_DIR}/lib/tutti-samples;TUTTI_SIMULATED_PRIVATE=1")
  endif()
  # Gradients that travel rounded reach the same accuracy.
  foreach(wire float16 bfloat16 float8)
    add_test(NAME job_train_digits_2_${wire} COMMAND tuttirun -n 2 $<TARGET_FILE:train_digits> ${training} --wire ${wire})
    set_tests_properties(job_train_digits_2_${wire} PROPERTIES LABELS job TIMEOUT 60)
  endforeach()
  # Defaults: 30 epochs, any number of ranks, at least 95 %.
  add_test(NAME job_train_digits_3_default COMMAND tuttirun -n 3 $<TARGET_FILE:train_digits>)
  set_tests_properties(job_train_digits_3_default PROPERTIES LABELS job TIMEOUT 60)
endif()
