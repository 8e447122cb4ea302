// arc4random for LLVM's archives, which were built where the C library has one: glibc has it since 2.36, and with this
// the library loads on older ones. LLVM names temporary files with it.
#include <sys/random.h>

#include <cstdint>
#include <random>

extern "C" uint32_t arc4random() {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = std::random_device()();  // a kernel without the call
  return number;
}
