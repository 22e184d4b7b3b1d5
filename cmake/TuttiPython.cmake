# One Python interpreter serves everything: the scripts of the build and of the tests, the package tutti, tutti.torch. An
# extension module loads in one version of Python only, and its tests must start the interpreter that it was built for.
#
#   -DPython3_EXECUTABLE=FILE   that interpreter
#   otherwise                   python3 in PATH or /usr/bin/python3, whichever has more of TUTTI_PYTHON_WANTED. At a tie PATH's:
#                               users start that one. Debian's packages of modules (tools/packages) serve /usr/bin/python3 only.
#
# Each configuration chooses anew, so modules that were installed since count. The result is find_package(Python3)'s, with
# the targets Python3::Interpreter and Python3::Module, and TUTTI_PYTHON_HEADERS: an extension can be built.
# TUTTI_PYTHON_FOLDER is the package's folder below the prefix: where Debian's interpreters look below /usr (elsewhere PYTHONPATH
# names it; not in CMAKE_INSTALL_LIBDIR, which may have more parts), or in a wheel the prefix itself.
set(TUTTI_PYTHON_FOLDER "lib/python3/dist-packages/tutti")
if(TUTTI_WHEEL)
  set(TUTTI_PYTHON_FOLDER ".")
endif()
set(PYBIND11_NOPYTHON ON)  # its headers are for every interpreter; its own search would take another one
find_package(pybind11 CONFIG QUIET)

# What an interpreter should have, the most important first. headers: Python.h, which this pybind11 compiles with.
set(TUTTI_PYTHON_WANTED headers numpy)
if(TUTTI_BUILD_TESTS)
  list(APPEND TUTTI_PYTHON_WANTED jsonschema)
endif()
list(APPEND TUTTI_PYTHON_WANTED torch)

# tutti_python_facts(COMMAND NAME): sets NAME to the interpreter's own path, its version, the folder of its headers and what it
# has; empty if it does not run. torch is only looked up: its import takes seconds.
function(tutti_python_facts command name)
  execute_process(OUTPUT_VARIABLE facts RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND "${command}" -B -c [[
import importlib.util, os, platform, sys, sysconfig
include = sysconfig.get_path("include")
has = [include] if os.path.exists(os.path.join(include, "Python.h")) else [""]
for module in ("numpy", "jsonschema"):
    try:
        __import__(module)
        has.append(module)
    except Exception:
        pass
if importlib.util.find_spec("torch"):
    has.append("torch")
print(sys.executable, platform.python_version(), *has, sep=";")
]])
  if(NOT status STREQUAL "0" OR NOT facts)
    set(${name} "" PARENT_SCOPE)
    return()
  endif()
  list(POP_FRONT facts path version include)
  if(include AND pybind11_FOUND)
    # An older pybind11 does not compile with a newer Python.
    string(MD5 key "${include} ${version} ${pybind11_VERSION}")
    if(NOT DEFINED TUTTI_PYBIND11_COMPILES_${key})
      execute_process(RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET
        COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only "-I${include}" "-I${pybind11_INCLUDE_DIR}"
                -include pybind11/pybind11.h -x c++ /dev/null)
      set(TUTTI_PYBIND11_COMPILES_${key} "${status}" CACHE INTERNAL "the compiler's status for ${include}")
    endif()
    if(NOT TUTTI_PYBIND11_COMPILES_${key} STREQUAL "0")
      set(include "")
    endif()
  endif()
  if(include)
    list(PREPEND facts headers)
  endif()
  set(${name} "${path};${version};${include};${facts}" PARENT_SCOPE)
endfunction()

# tutti_choose_python(NAME COMMANDS...): sets NAME to the facts of the chosen interpreter, empty if none runs, and NAME_why to
# why it was chosen and what it lacks.
function(tutti_choose_python name)
  set(why "")
  set(best "")
  foreach(command IN LISTS ARGN)
    tutti_python_facts("${command}" facts)
    if(NOT facts)
      continue()
    endif()
    # How many of what is wanted it has before it lacks one.
    set(has 0)
    set(lacks "")
    foreach(wanted IN LISTS TUTTI_PYTHON_WANTED)
      if(wanted IN_LIST facts)
        if(NOT lacks)
          math(EXPR has "${has} + 1")
        endif()
      else()
        list(APPEND lacks ${wanted})
      endif()
    endforeach()
    list(GET facts 0 path)
    list(JOIN lacks ", " lacks)
    if(NOT best OR has GREATER most)
      if(best)
        set(why ", chosen before ${best_path}, which has no ${best_lacks}")
      endif()
      set(best "${facts}")
      set(best_path "${path}")
      set(best_lacks "${lacks}")
      set(most ${has})
    endif()
  endforeach()
  if(best_lacks)
    string(APPEND why "; it has no ${best_lacks}")
  endif()
  set(${name} "${best}" PARENT_SCOPE)
  set(${name}_why "${why}" PARENT_SCOPE)
endfunction()

set(Python3_EXECUTABLE "" CACHE FILEPATH "The interpreter of Python for everything; empty: cmake/TuttiPython.cmake chooses")
if(Python3_EXECUTABLE)
  tutti_choose_python(facts "${Python3_EXECUTABLE}")
  if(NOT facts)
    message(FATAL_ERROR "tutti: Python3_EXECUTABLE is ${Python3_EXECUTABLE}, which does not run as an interpreter of Python 3")
  endif()
else()
  find_program(in_path python3 NO_CACHE NO_PACKAGE_ROOT_PATH NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
  set(commands "${in_path}" /usr/bin/python3)
  list(REMOVE_DUPLICATES commands)
  tutti_choose_python(facts ${commands})
endif()
if(facts)
  # Both are said, since find_package remembers the headers of the interpreter before.
  list(GET facts 0 Python3_EXECUTABLE)
  list(GET facts 2 Python3_INCLUDE_DIR)
  find_package(Python3 QUIET REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
  set(TUTTI_PYTHON_HEADERS OFF)
  if(headers IN_LIST facts AND Python3_Development.Module_FOUND)
    set(TUTTI_PYTHON_HEADERS ON)
  endif()
  set(TUTTI_PYTHON "${Python3_EXECUTABLE}" CACHE INTERNAL "the interpreter in use, for scripts that look here")
  tutti_summary(Python "${Python3_EXECUTABLE} (${Python3_VERSION})${facts_why}")
elseif(TUTTI_BUILD_TESTS)
  message(FATAL_ERROR "tutti: the tests need Python 3 (python3), which was not found")
else()
  tutti_summary(Python "left out: not found: python3")
endif()
