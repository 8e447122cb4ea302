# scripts/versions.env as CMake variables: LLVM_VERSION=22 becomes ZEFUSE_LLVM_VERSION.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../scripts/versions.env lines REGEX "^[A-Z_]+=")
foreach(line ${lines})
  string(REGEX MATCH "^([A-Z_]+)=(.*)$" _ ${line})
  set(ZEFUSE_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()
set(ZEFUSE_LLVM_ROOT /usr/lib/llvm-${ZEFUSE_LLVM_VERSION})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../scripts/versions.env)
