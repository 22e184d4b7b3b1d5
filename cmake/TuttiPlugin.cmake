# tutti_plugin(NAME SOURCES... [LIBS libs...]): a plugin as a shared library build/lib/tutti/lib<NAME>.so that exports
# its entry symbol and nothing else, and the same sources as the static library <NAME>_static for applications that
# want one binary. Plugins link tutti::abi, tutti::sdk and their own system libraries, never the core.
set(TUTTI_PLUGIN_VERSION_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/plugin.map")
function(tutti_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  # Samples set TUTTI_PLUGIN_FOLDER: they are built beside, where nobody finds them unasked, and are not installed.
  set(folder tutti)
  if(TUTTI_PLUGIN_FOLDER)
    set(folder ${TUTTI_PLUGIN_FOLDER})
  endif()
  add_library(${name} MODULE ${arg_SOURCES})
  if(folder STREQUAL tutti)
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
  endif()
  set_target_properties(${name} PROPERTIES
    PREFIX "libtutti-" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/${folder}"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${TUTTI_PLUGIN_VERSION_SCRIPT}")
  target_link_options(${name} PRIVATE "LINKER:--version-script=${TUTTI_PLUGIN_VERSION_SCRIPT}" "LINKER:--no-undefined-version")
  target_link_libraries(${name} PRIVATE tutti::abi tutti::sdk tutti_build_flags ${arg_LIBS})
  string(MAKE_C_IDENTIFIER ${name} identifier)
  add_library(${name}_static STATIC EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_compile_definitions(${name}_static PRIVATE TUTTI_PLUGIN_STATIC TUTTI_SDK_NAMESPACE=v1_${identifier})
  target_link_libraries(${name}_static PRIVATE tutti_build_flags PUBLIC tutti::abi tutti::sdk ${arg_LIBS})
endfunction()
