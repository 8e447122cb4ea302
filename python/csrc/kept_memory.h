// Memory of results that their readers have let go of, for the results of later calls.
//
// A training step's gradients and kept activations are tens to hundreds of MB, let go of until the next step. The C
// library gives as much back to the system, whose every page then faults anew: half of MiniLM's step, two thirds of
// DLRM's. What is kept here has its pages.
//
// Bounds: results in use and kept memory together are never more than the results that were in use at one time; kept
// memory is at most `limit`; and what no call of the next thousand takes is given back.
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>

namespace zefuse::python::kept_memory {

// Smaller results come from torch's allocator as any tensor does.
constexpr size_t least_bytes = 64 << 10;
// Calls that take large results, after which memory that none of them took is given back.
constexpr uint64_t longest_idle = 1000;

struct Figures {
  size_t in_use;         // bytes of results
  size_t kept;           // bytes that no result uses
  uint64_t taken_again;  // results in kept memory, since the process began
};

// As torch's CPU allocator; throws what it throws. For `bytes` of least_bytes and more. Any thread.
c10::DataPtr allocate(size_t bytes);
// A call that takes large results begins.
void beginCall();
// Gives back what is kept.
void release();
Figures figures();

}  // namespace zefuse::python::kept_memory
