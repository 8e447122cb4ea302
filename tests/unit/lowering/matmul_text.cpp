#include "tests/unit/lowering/matmul_text.h"

#include <cstdlib>

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
  std::string types = a_ + ", " + b_, parameters = "%a: " + a_ + ", %b: " + b_, call = "zefuse.matmul %a, %b";
  std::string maps = "affine_map<" + layouts[0] + ">, affine_map<" + layouts[1] + ">";
  auto add = [&](const std::string& name, const std::string& type) {
    types += ", " + type;
    parameters += ", " + name + ": " + type;
    maps += ", affine_map<" + contiguousLayoutOf(type) + ">";
  };
  if (!bias.empty()) {
    add("%bias", bias);
    call += " bias %bias";
  }
  std::string list;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string name = "%o" + std::to_string(i);
    add(name, operands[i]);
    list += (i ? ", " : "") + name;
  }
  if (!list.empty())
    call += " operands(" + list + ")";
  maps += ", affine_map<" + layouts[2] + ">";
  return "func.func @graph(" + parameters + ") attributes {layouts = [" + maps + "]} {\n  %r = " + call + " {" +
         attributes + "} : (" + types + ") -> " + result_ + "\n  return\n}\n";
}

}  // namespace zefuse::test
