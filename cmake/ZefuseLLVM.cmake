# Where LLVM and MLIR come from, as targets: zefuse_llvm and zefuse_mlir. During development their shared libraries (quick
# links). ZEFUSE_STATIC_LLVM: their archives, for a wheel. Archives are named by path: MLIR's CMake targets would bring
# libLLVM.so as well, and two copies of LLVM in one process abort it.
option(ZEFUSE_STATIC_LLVM "link LLVM and MLIR statically, once, into libzefuse_core.so.1 (for wheels; no tests)" OFF)
set(ZLIB_USE_STATIC_LIBS ${ZEFUSE_STATIC_LLVM})  # LLVM's package looks for it
find_package(LLVM REQUIRED CONFIG PATHS ${ZEFUSE_LLVM_ROOT})

add_library(zefuse_llvm INTERFACE)
target_include_directories(zefuse_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
add_library(zefuse_mlir INTERFACE)
target_link_libraries(zefuse_mlir INTERFACE zefuse_llvm)
if(ZEFUSE_STATIC_LLVM)
  # Nothing is linked by those who include: libzefuse_core.so.1 links ZEFUSE_LLVM_ARCHIVES.
  file(GLOB archives ${ZEFUSE_LLVM_ROOT}/lib/libMLIR*.a ${ZEFUSE_LLVM_ROOT}/lib/libLLVM*.a)
  set(ZEFUSE_TARGETS_LEFT_OUT ${LLVM_TARGETS_TO_BUILD})  # of LLVM's targets: kernels are for X86, SPIRV and NVPTX
  list(REMOVE_ITEM ZEFUSE_TARGETS_LEFT_OUT X86 SPIRV NVPTX)
  list(JOIN ZEFUSE_TARGETS_LEFT_OUT "|" left_out)
  list(FILTER archives EXCLUDE REGEX "/libLLVM(${left_out})(AsmParser|CodeGen|Desc|Disassembler|Info|Utils|TargetMCA|Analysis)[.]a$")
  if(NOT archives)
    message(FATAL_ERROR "no libMLIR*.a in ${ZEFUSE_LLVM_ROOT}/lib: install libmlir-${ZEFUSE_LLVM_VERSION}-dev and llvm-${ZEFUSE_LLVM_VERSION}-dev")
  endif()
  find_library(ZEFUSE_ZSTD libzstd.a REQUIRED)
  set(ZEFUSE_LLVM_ARCHIVES -Wl,--start-group ${archives} -Wl,--end-group)
else()
  target_link_libraries(zefuse_llvm INTERFACE ${LLVM_LIBRARY_DIRS}/libLLVM.so)
  target_link_libraries(zefuse_mlir INTERFACE ${LLVM_LIBRARY_DIRS}/libMLIR.so)
  set(ZEFUSE_ZSTD zstd)
endif()
