#include "tests/unit/lowering/matmul_text.h"

#include <cstdlib>

#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {

std::string contiguousLayoutOf(const std::string& type) {
  std::vector<long> sizes;
  for (const char* at = type.c_str() + 7; *at >= '0' && *at <= '9';) {
    char* end = nullptr;
    sizes.push_back(std::strtol(at, &end, 10));
    at = end + 1;  // past the x
  }
  std::string dims, offset;
  long stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    dims = "d" + std::to_string(i) + (dims.empty() ? "" : ", ") + dims;
    offset = "d" + std::to_string(i) + " * " + std::to_string(stride) + (offset.empty() ? "" : " + ") + offset;
  }
  return "(" + dims + ") -> (" + (offset.empty() ? "0" : offset) + ")";
}

MatmulText::MatmulText(std::string a, std::string b, std::string result)
    : layouts{contiguousLayoutOf(a), contiguousLayoutOf(b), contiguousLayoutOf(result)}, a_(std::move(a)),
      b_(std::move(b)), result_(std::move(result)) {}

std::string MatmulText::module() const {
  KernelText text;
  text.name = "matmul";
  text.input({"%a", a_, layouts[0]});
  text.input({"%b", b_, layouts[1]});
  if (!bias.empty())
    text.input({"%bias", bias, contiguousLayoutOf(bias)});
  text.line("%p = zefuse.matmul %a, %b" + std::string(bias.empty() ? "" : " bias %bias") + " {" + attributes + "} : (" +
            a_ + ", " + b_ + (bias.empty() ? "" : ", " + bias) + ") -> " + result_);
  text.output({"%p", result_, layouts[2]});
  return text.module();
}

}  // namespace zefuse::test
