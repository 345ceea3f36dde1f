# SPDX-License-Identifier: Apache-2.0
# suites.cmake: run by ctest once for each program of zoff_test(). Adds one test, NAME.SUITE, for each Google Test suite that
# the program lists. A process for each of the 2,000 cases would take longer than the cases. The list is cached until the
# program changes.
if(NOT EXISTS "${zoff_program}")
  add_test(${zoff_name}_NOT_BUILT ${zoff_name}_NOT_BUILT)
  set_tests_properties(${zoff_name}_NOT_BUILT PROPERTIES LABELS "${zoff_labels}")
  return()
endif()
if(NOT EXISTS "${zoff_list}" OR "${zoff_program}" IS_NEWER_THAN "${zoff_list}")
  execute_process(COMMAND "${zoff_program}" --gtest_list_tests
                  WORKING_DIRECTORY "${zoff_folder}" TIMEOUT 60 OUTPUT_VARIABLE words RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${zoff_program} --gtest_list_tests ended with ${result}:\n${words}")
  endif()
  string(REGEX MATCHALL "(^|\n)[^ \n]+\\.[ \n]" lines "${words}") # cases are indented
  string(REGEX REPLACE "[ \n]|\\.[ \n]" "" suites "${lines}")
  file(WRITE "${zoff_list}" "set(suites \"${suites}\")\n")
endif()
include("${zoff_list}")

set(zoff_limit 600) # in seconds
if(NOT "$ENV{ZOFF_TEST_TIMEOUT}" STREQUAL "")
  set(zoff_limit "$ENV{ZOFF_TEST_TIMEOUT}")
elseif(NOT "$ENV{ZOFF_TEST_FULL}" MATCHES "^0?$")
  set(zoff_limit 3600)
endif()
foreach(suite IN LISTS suites)
  add_test("${zoff_name}.${suite}" "${zoff_program}" "--gtest_filter=${suite}.*")
  set_tests_properties("${zoff_name}.${suite}" PROPERTIES LABELS "${zoff_labels}" TIMEOUT ${zoff_limit} COST ${zoff_cost}
                       WORKING_DIRECTORY "${zoff_folder}" ENVIRONMENT "${zoff_environment}")
endforeach()
