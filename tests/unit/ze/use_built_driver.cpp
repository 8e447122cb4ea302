// Linked into tests that need the CPU driver: points the shim at the one of this build, unless the caller already
// chose.
#include <cstdlib>

namespace {
[[maybe_unused]] const int chosen = setenv("ZEFUSE_CPU_DRIVER", BUILT_DRIVER, /*overwrite=*/0);
}
