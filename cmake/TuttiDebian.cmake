# cpack -G DEB: a package of each install component; cpack -G TGZ: everything in one folder that may lie anywhere. Included last:
# tools/debian-packages, docs/packages.md.
set(TUTTI_PACKAGE_MAINTAINER "Tutti developers <tutti@example.org>" CACHE STRING "Maintainer of the Debian packages")
set(debian "${CMAKE_SOURCE_DIR}/tools/package/debian")
set(made "${CMAKE_BINARY_DIR}/package/debian")
set(revision 0tutti1)  # not from Debian: one of theirs will be newer
set(TUTTI_DEBIAN_VERSION ${PROJECT_VERSION}-${revision})
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_TUTTI_MADE "${made}")
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_CONTACT "${TUTTI_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_FILE_NAME tutti-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_PRE_BUILD_SCRIPTS "${debian}/finish_files.cmake")
set(CPACK_POST_BUILD_SCRIPTS "${debian}/finish_packages.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE tutti)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
if(NOT CPACK_DEBIAN_COMPRESSION_TYPE)
  set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
endif()

# tutti_debian_package(NAME WHEN targets... SECTION section [OWN packages...] [DEPENDS ...] [RECOMMENDS ...] [CONTROL files...]
# TEXT lines...): one package. OWN are packages of this version. A package without one of its targets is not made. The backend of
# torch.distributed has none: Debian's torch is too old for it.
set(CPACK_COMPONENTS_ALL "")
set(not_made "")
function(tutti_debian_package name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SECTION" "WHEN;OWN;DEPENDS;RECOMMENDS;CONTROL;TEXT")
  foreach(target IN LISTS arg_WHEN)
    if(NOT TARGET ${target})
      tutti_summary("package ${name}" "left out: ${target} is not built")
      set(not_made "${not_made}${name}: ${target} is not built\n" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  list(TRANSFORM arg_OWN APPEND " (= ${TUTTI_DEBIAN_VERSION})")
  list(JOIN arg_TEXT "\n" text)
  foreach(field OWN DEPENDS RECOMMENDS)
    set(${field} "${arg_${field}}")
  endforeach()
  list(APPEND OWN ${DEPENDS})
  list(JOIN OWN ", " depends)
  list(JOIN RECOMMENDS ", " recommends)
  string(TOUPPER ${name} upper)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${arg_SECTION} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS "${recommends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${arg_CONTROL}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
endfunction()

string(TIMESTAMP year "%Y" UTC)
foreach(file copyright changelog shlibs)
  configure_file("${debian}/${file}.in" "${made}/${file}" @ONLY)
endforeach()

set(body
  "Tutti carries broadcast, all-reduce, all-to-all and the other collectives"
  "between threads, processes and hosts. Algorithms emit schedules that are"
  "proved before they run. Transports are plugins that are found at run time."
  "")
tutti_debian_package(libtutti0 WHEN tutti SECTION libs
  RECOMMENDS "tutti-plugins (= ${TUTTI_DEBIAN_VERSION})" CONTROL "${made}/shlibs" "${debian}/triggers"
  TEXT "collective communication library" ${body}
  "This package has the shared library. It needs tutti-plugins, which have the"
  "transports and algorithms, for jobs of more than one rank.")
tutti_debian_package(libtutti-dev WHEN tutti SECTION libdevel OWN libtutti0 RECOMMENDS "tutti-plugins (= ${TUTTI_DEBIAN_VERSION})"
  TEXT "collective communication library - development files" ${body}
  "This package has the headers for applications in C and C++ and for plugins,"
  "the CMake package Tutti, pkg-config files, a template for plugins, pages"
  "and examples.")
tutti_debian_package(tutti-plugins WHEN algorithms shm net-tcp SECTION libs OWN libtutti0
  TEXT "collective communication library - plugins" ${body}
  "This package has the algorithms, the transports shm (shared memory) and tcp,"
  "checksums, traces, faults for tests, memory shared between devices, meetings"
  "by PMI-1 and PMIx, and a network plugin by which NCCL uses a transport.")
tutti_debian_package(tutti-plugin-ib WHEN net-ib SECTION libs OWN libtutti0
  TEXT "collective communication library - InfiniBand plugin" ${body}
  "This package has the transport ib for InfiniBand and RoCE adapters.")
tutti_debian_package(tutti-plugin-cuda WHEN cuda-kernels SECTION contrib/libs OWN libtutti0 tutti-plugins
  TEXT "collective communication library - CUDA plugin" ${body}
  "This package has the device cuda: memory, streams and kernels of NVIDIA's"
  "GPUs. It contains NVIDIA's static run-time library and needs its driver.")
tutti_debian_package(tutti-tools WHEN tuttirun tutti-info tutti-perf SECTION utils OWN libtutti0 tutti-plugins
  TEXT "collective communication library - programs" ${body}
  "This package has tuttirun, which starts jobs, tutti-info, tutti-doctor,"
  "tutti-perf, tutti-plan, tutti-trace and tutti-conform, their man pages and"
  "bash completion.")
# An extension is for one version of Python.
if(TARGET tutti_python)
  get_target_property(minor tutti_python TUTTI_PYTHON_MINOR)
  math(EXPR next "${minor} + 1")
  set(python "python3 (>= 3.${minor})" "python3 (<< 3.${next})")
endif()
tutti_debian_package(python3-tutti WHEN tutti_python SECTION python OWN libtutti0 tutti-plugins DEPENDS ${python}
  RECOMMENDS "tutti-tools (= ${TUTTI_DEBIAN_VERSION})" python3-numpy CONTROL "${debian}/postinst" "${debian}/prerm"
  TEXT "collective communication library - Python package" ${body}
  "This package has the Python package tutti: collectives on numpy arrays,"
  "tensors and anything with the buffer protocol.")
file(WRITE "${made}/not_made.txt" "${not_made}")
# Headers and pages only: nothing to search.
set(CPACK_DEBIAN_LIBTUTTI-DEV_PACKAGE_SHLIBDEPS OFF)

include(CPack)
