// What the importer is told besides the graph.
#pragma once

#include <string>
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
  // What was measured of operators (implementations.h), as Options::tuning has it; empty: nothing.
  std::string tuning;
  // Whether a measurement may have chosen eager's operators.
  bool eager_operators = true;
  // Whether the function says what there is to measure: zefuse.operators, an entry for each node.
  bool list_operators = false;
};

}  // namespace zefuse
