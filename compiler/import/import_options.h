// What the importer is told besides the graph.
#pragma once

#include <vector>

namespace zefuse {

struct ImportOptions {
  // Which inputs (placeholder numbers) are a module's parameters or buffers: kind "parameter" instead of "user".
  std::vector<unsigned> parameters;
};

}  // namespace zefuse
