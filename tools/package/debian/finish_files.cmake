# CPack runs this after it has installed everything and before it packs: what Debian's policy wants besides of each package.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
find_program(gzip gzip REQUIRED)

# compressed(FROM TO): without name and time, so that equal text gives an equal file.
function(compressed from to)
  execute_process(COMMAND "${gzip}" -9nc "${from}" OUTPUT_FILE "${to}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(package IN LISTS CPACK_COMPONENTS_ALL)
  set(root "${CPACK_TEMPORARY_DIRECTORY}/${package}/usr")
  set(doc "${root}/share/doc/${package}")
  if(IS_DIRECTORY "${root}/share/doc/tutti")
    file(RENAME "${root}/share/doc/tutti" "${doc}")
    file(REMOVE "${doc}/LICENSE")  # the file copyright names it
  endif()
  file(MAKE_DIRECTORY "${doc}")
  file(COPY_FILE "${CPACK_TUTTI_MADE}/copyright" "${doc}/copyright")
  compressed("${CPACK_TUTTI_MADE}/changelog" "${doc}/changelog.Debian.gz")

  file(GLOB manuals "${root}/share/man/man1/*.1")
  foreach(page IN LISTS manuals)
    compressed("${page}" "${page}.gz")
    file(REMOVE "${page}")
  endforeach()

  # The library is where the loader looks.
  file(GLOB_RECURSE files "${root}/bin/*" "${root}/lib/*")
  foreach(file IN LISTS files)
    if(IS_SYMLINK "${file}")
      continue()
    endif()
    file(READ "${file}" magic LIMIT 4 HEX)
    if(magic STREQUAL "7f454c46")
      file(RPATH_REMOVE FILE "${file}")
    endif()
  endforeach()
endforeach()
