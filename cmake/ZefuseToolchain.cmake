# Flags and helper functions that every folder uses. Included once, from the root.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Several files of a library in one translation unit: headers of MLIR and torch are read, and their templates compiled,
# once for all of them (docs/design.md, "The build"). scripts/clang_tidy.py still looks at each file by itself.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "compile several source files as one translation unit")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "files in one translation unit")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # no NDEBUG: our asserts are cheap and find bugs

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(ZEFUSE_SANITIZE)
  add_compile_definitions(ZEFUSE_SANITIZED)  # tests leave out what limits memory
  add_compile_options(-fsanitize=${ZEFUSE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${ZEFUSE_SANITIZE})
endif()
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})  # includes are written from the root
add_link_options(-fuse-ld=lld -Wl,--build-id=sha1)  # the build id names the driver in cache keys

# zefuse_add_library(name SOURCES... [LINK libs...] [PCH_FROM target]): a static archive linked into what needs it.
function(zefuse_add_library name)
  cmake_parse_arguments(ARG "" "PCH_FROM" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_PCH_FROM)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PCH_FROM})
  endif()
endfunction()

# zefuse_add_unit_test(name SOURCES... LINK libs...): one gtest program, registered with ctest.
function(zefuse_add_unit_test name)
  cmake_parse_arguments(ARG "" "PCH_FROM" "SOURCES;LINK" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(ARG_PCH_FROM)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PCH_FROM})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  zefuse_sanitized_test(${name})
endfunction()

# What a test's run under a sanitizer needs to know. Every ctest entry of ours passes through here. Tests fork, die by
# SIGSEGV and ask for more memory than there is, on purpose.
function(zefuse_sanitized_test name)
  if(ZEFUSE_SANITIZE MATCHES "thread")
    string(JOIN " " options suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan.supp die_after_fork=0 handle_segv=0
           allocator_may_return_null=1)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "TSAN_OPTIONS=set:${options}")
  elseif(ZEFUSE_SANITIZE MATCHES "address")
    # LLVM gives threads that compile a signal stack of its own, which the sanitizer would unmap when they end.
    set(options use_sigaltstack=0 handle_segv=0 allocator_may_return_null=1)
    list(JOIN options ":" options)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=set:${options}")
  endif()
endfunction()
