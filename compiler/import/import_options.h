// What the importer is told besides the graph.
#pragma once

#include <vector>

namespace zefuse {

struct ImportOptions {
  // Which inputs (placeholder numbers) are a module's parameters or buffers: kind "parameter" instead of "user".
  std::vector<unsigned> parameters;
  // Whether operators without a lowering may be calls of ATen on the host; else each is an ImportError, which names its
  // node. (Of a graph whose tensors lie on a GPU they run there, outside of the plan.)
  bool host_calls = true;
  // Whether products of f32 may round their operands to bf16, as torch.set_float32_matmul_precision("medium") permits.
  bool bf16_products = false;
};

}  // namespace zefuse
