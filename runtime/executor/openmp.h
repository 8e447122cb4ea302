// The one question the executor asks OpenMP. libgomp is linked, not clang's libomp: torch, oneDNN
// and our driver share one pool per calling thread.
#pragma once

extern "C" int omp_get_max_threads(void);
