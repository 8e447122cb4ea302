# MLIR's headers and its table generator.
list(PREPEND CMAKE_PREFIX_PATH ${ZEFUSE_LLVM_ROOT})
find_package(MLIR REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)

target_include_directories(zefuse_mlir SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS})

# zefuse_tablegen(target td GENERATOR OUTPUT ...): writes OUTPUT files of one .td into the build tree. A generator may bring
# flags of its own: "-gen-pass-decls -name=Fuse".
function(zefuse_tablegen target td)
  set(outputs)
  set(rest ${ARGN})
  file(GLOB tds CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.td)  # one may include another
  while(rest)
    list(POP_FRONT rest generator output)
    separate_arguments(generator)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${output})
    add_custom_command(OUTPUT ${file}
      COMMAND ${ZEFUSE_LLVM_ROOT}/bin/mlir-tblgen ${generator} -I ${ZEFUSE_LLVM_ROOT}/include -I ${PROJECT_SOURCE_DIR}
              ${CMAKE_CURRENT_SOURCE_DIR}/${td} -o ${file}
      DEPENDS ${tds} COMMENT "tablegen ${output}")
    list(APPEND outputs ${file})
  endwhile()
  add_custom_target(${target} DEPENDS ${outputs})
endfunction()
