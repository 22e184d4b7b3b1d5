# `cmake --install` adds for those who build against Tutti: the CMake package Tutti and pkg-config files. Both find
# everything relative to themselves, so that the prefix may be moved.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME libtutti-dev)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Tutti")
set(pkgconfig_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

foreach(part abi sdk)
  set_target_properties(tutti_${part} PROPERTIES EXPORT_NAME ${part})
  install(TARGETS tutti_${part} EXPORT Tutti)
endforeach()
install(EXPORT Tutti FILE TuttiTargets.cmake NAMESPACE tutti:: DESTINATION ${package_folder})

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/TuttiConfig.cmake.in" "${CMAKE_BINARY_DIR}/package/TuttiConfig.cmake"
  INSTALL_DESTINATION ${package_folder} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR)
# Before 1.0 a minor version may break.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/TuttiConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/package/TuttiConfig.cmake" "${CMAKE_BINARY_DIR}/package/TuttiConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/TuttiPlugin.cmake" "${CMAKE_CURRENT_LIST_DIR}/plugin.map" DESTINATION ${package_folder})

file(RELATIVE_PATH prefix_from_pkgconfig "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
set(packages tutti-abi tutti-sdk)
if(TARGET tutti)
  list(APPEND packages tutti)
endif()
foreach(package IN LISTS packages)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${package}.pc.in" "${CMAKE_BINARY_DIR}/package/${package}.pc" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/package/${package}.pc" DESTINATION ${pkgconfig_folder})
endforeach()

# Files that a plugin's author copies, for those who have the package only.
install(DIRECTORY "${CMAKE_SOURCE_DIR}/plugins/template/" DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/template)

# Pages and examples; of docs/performance the pictures: docs/performance.md has what is in the other files.
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "performance/*.json" EXCLUDE PATTERN "performance/*.md" EXCLUDE)
install(DIRECTORY core/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN tests EXCLUDE PATTERN CMakeLists.txt EXCLUDE)

# The files that `cmake --install` looks for first.
get_property(installed GLOBAL PROPERTY TUTTI_INSTALLED)
get_property(files GLOBAL PROPERTY TUTTI_INSTALLED_FILES)
list(TRANSFORM files APPEND "\n")
list(JOIN files "" files)
foreach(target IN LISTS installed)
  string(APPEND files "$<TARGET_FILE:${target}>\n")
endforeach()
file(GENERATE OUTPUT "${tutti_installed_files}" CONTENT "${files}")

if(TARGET tutti)
  include(TuttiDebian)
endif()
