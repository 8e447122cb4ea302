# Included before project() in a wheel build (scikit-build-core sets SKBUILD): all that a user's machine lacks in one message,
# and the compiler. A checkout's scripts/setup has installed these already.
set(missing)
function(zefuse_require what)  # FILE or PROGRAM, then the names
  cmake_parse_arguments(ARG "" "FILE;PROGRAM" "" ${ARGN})
  if(ARG_PROGRAM)
    find_program(found ${ARG_PROGRAM} HINTS ${ZEFUSE_LLVM_ROOT}/bin)
  else()
    find_file(found ${ARG_FILE} PATHS ${ZEFUSE_LLVM_ROOT} /usr /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/.. /usr/include
              ${ZEFUSE_PYTHON_PREFIXES} PATH_SUFFIXES include lib lib64)
  endif()
  if(NOT found)
    set(missing ${missing} "${what}" PARENT_SCOPE)
  endif()
  unset(found CACHE)
endfunction()

zefuse_require("clang (apt: clang-${ZEFUSE_LLVM_VERSION})" PROGRAM clang++-${ZEFUSE_LLVM_VERSION})
zefuse_require("lld (apt: lld-${ZEFUSE_LLVM_VERSION})" PROGRAM ld.lld-${ZEFUSE_LLVM_VERSION})
zefuse_require("LLVM ${ZEFUSE_LLVM_VERSION} (apt: llvm-${ZEFUSE_LLVM_VERSION}-dev)" FILE libLLVMCore.a)
zefuse_require("MLIR ${ZEFUSE_LLVM_VERSION} (apt: libmlir-${ZEFUSE_LLVM_VERSION}-dev mlir-${ZEFUSE_LLVM_VERSION}-tools)" FILE libMLIRIR.a)
zefuse_require("lld's library (apt: liblld-${ZEFUSE_LLVM_VERSION}-dev)" FILE liblldELF.a)
zefuse_require("FlatBuffers (apt: flatbuffers-compiler libflatbuffers-dev)" PROGRAM flatc)
zefuse_require("SPIRV-Tools (apt: spirv-tools)" FILE libSPIRV-Tools.a)
zefuse_require("Level Zero's headers (apt: libze-dev)" FILE level_zero/ze_ddi.h)
zefuse_require("zstd (apt: libzstd-dev)" FILE libzstd.a)
zefuse_require("zlib (apt: zlib1g-dev)" FILE libz.a)
if(NOT ZEFUSE_ONEDNN)  # copied by an earlier build
  zefuse_require("oneDNN (pip: onednn-devel-cpu-gomp)" FILE dnnl.hpp)
endif()
if(NOT ZEFUSE_TORCH_DIRS)
  list(APPEND missing "torch (pip install torch, before zefuse; or set ZEFUSE_TORCH_DIRS)")
endif()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "zefuse cannot be built here; missing: ${missing}. docs/install.md has the list for each system.")
endif()

# clang, which compiles the kernels' math library in any case; CXX is what Python itself was built with.
if(NOT CMAKE_CXX_COMPILER)
  find_program(CMAKE_CXX_COMPILER clang++-${ZEFUSE_LLVM_VERSION})
  find_program(CMAKE_C_COMPILER clang-${ZEFUSE_LLVM_VERSION})
endif()
