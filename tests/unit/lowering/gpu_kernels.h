// One kernel of each family, for the tests that only compile.
#pragma once

#include <string>
#include <vector>

namespace zefuse::test {

struct NamedKernel {
  std::string name, module;
};
std::vector<NamedKernel> kernelFamilies();

}  // namespace zefuse::test
