// PTX to a cubin by NVIDIA's nvJitLink, which torch's CUDA wheels bring. The driver's own linker (cuLink) does the same
// in the context; this is a library of the host's that threads use side by side without waiting for each other: a
// training step of ViT-S is 68 modules, 3.4 s of one core's time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zefuse::cuda {

// `ptx` ends with a zero byte. Nothing where there is no such library, or none that knows the architecture: `log` says
// which, and the driver's linker remains.
std::optional<std::vector<std::byte>> jitLink(std::span<const std::byte> ptx, unsigned architecture, std::string& log);

}  // namespace zefuse::cuda
