// What a driver tells of a kernel without compiling it, and the constants that its user may set before that. No LLVM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zefuse::spirv {

struct SpecConstant {
  uint32_t id;
  std::vector<std::byte> value;
};

enum class ArgKind : uint8_t {
  scalar,
  global_pointer,
  constant_pointer,
  local_pointer,
  by_value_struct,
  image,
  sampler
};
struct ArgInfo {
  ArgKind kind;
  uint32_t size;
  uint32_t alignment;
};

struct KernelInfo {
  std::string name;
  std::vector<ArgInfo> args;
  uint32_t required_group_size[3] = {0, 0, 0};  // 0: any
  uint32_t required_subgroup_size = 0;
  uint32_t local_bytes = 0;    // static Workgroup variables
  uint32_t private_bytes = 0;  // per work-item: on the stack, or across barriers in thread-local memory
  bool has_barrier = false;    // or any other operation of a work-group or sub-group
  std::string source_attributes;
};

}  // namespace zefuse::spirv
