// What makes two kernels the same one.
#pragma once

#include <string>

namespace zefuse {
class KernelOp;

// The kernel's text without locations, names of values and its own name's origin: equal keys lower to equal SPIR-V.
std::string kernelKey(KernelOp kernel);

// A key in 32 hexadecimal digits, as the cache and reports have it.
std::string hashOfKey(const std::string& key);

// The same of the body alone, whatever its inputs and results are outside.
std::string bodyText(KernelOp kernel);

}  // namespace zefuse
