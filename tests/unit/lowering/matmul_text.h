// Writes a kernel that holds one zefuse.matmul.
#pragma once

#include <string>
#include <vector>

namespace zefuse::test {

class MatmulText {
public:
  MatmulText(std::string a, std::string b, std::string result);

  std::string bias;                  // type, contiguous; empty: none
  std::string attributes;            // of the operation
  std::vector<std::string> layouts;  // of a, b and the result; contiguous where the type is static
  std::string module() const;

private:
  std::string a_, b_, result_;
};

// "(d0, d1) -> (d0 * 24 + d1)" for a static tensor type.
std::string contiguousLayoutOf(const std::string& tensor_type);

}  // namespace zefuse::test
