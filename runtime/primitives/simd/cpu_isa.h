// What the processor has, as far as ONEDNN_MAX_CPU_ISA allows it: our own loops and choices ask here what oneDNN does.
#pragma once

#include <dnnl.h>

namespace zefuse::primitives {

// Instruction sets are bits, each with those that it implies.
inline bool hasIsa(dnnl_cpu_isa_t wanted) {
  return (unsigned(dnnl_get_effective_cpu_isa()) & unsigned(wanted)) == unsigned(wanted);
}

}  // namespace zefuse::primitives
