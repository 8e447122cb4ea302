// Packed copies of parameters, kept only while provably fresh (docs/design.md, decision 7).
//
// Fresh: same address, same version counter and same fingerprint, and nobody called invalidate()
// since. The fingerprint samples the whole weight, so a change of few elements by a write that
// leaves the version counter alone (.data, NumPy) can go unseen; a change of all of them cannot.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/binding.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/host_memory.h"
#include "runtime/executor/kept_copies.h"

namespace zefuse::executor {

// Hashes 64 samples spread over [data, data + bytes), both ends among them; everything when it is
// small.
uint64_t fingerprint(const void* data, size_t bytes);

// Bytes from a parameter's first element to its last, and by what it is known to be fresh. `generation`: of what keeps
// copies of it.
size_t bytesOf(const TensorRef& tensor, const BoundInput& shape);
WeightStamp stampOf(const TensorRef& tensor, const BoundInput& shape, uint64_t generation);

struct PackedWeight {
  WeightStamp stamp;
  HostMemory memory;
};

// Thread-safe: calls for different weights pack at the same time, those for the same one wait for its copy. Copies are
// kept per input, view of it and packed layout: different batch sizes share them where their primitives agree on the
// layout. How many, where calls bring different weights, kept_copies.h says.
class DerivedWeights {
public:
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // The packed copy for `stamp`, packed now if there is none; null when this view is asked for in this layout for the
  // first time with this stamp. Then the caller packs it for itself, into memory that serves one weight after the
  // other: a model that is called once, once with some shape, or once between an optimizer's steps touches no memory
  // for copies. `b` is the view's first element.
  Result<std::shared_ptr<const PackedWeight>> get(uint32_t input, const BoundValue& view, const void* b,
                                                  const WeightStamp& stamp,
                                                  const std::shared_ptr<const primitives::Primitive>& primitive,
                                                  Counters::OfCall& counters);

  void invalidate();

private:
  struct Entry {
    uint32_t input = 0;
    plan::DType dtype{};
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
    std::shared_ptr<const primitives::Primitive> packer;
    ForkMutex mutex;  // guards what follows, and is held while packing
    KeptCopies<PackedWeight> packed;
  };
  std::shared_ptr<Entry> entryFor(uint32_t input, const BoundValue& view,
                                  const std::shared_ptr<const primitives::Primitive>& primitive);
  static constexpr size_t layouts_per_view = 4;

  std::atomic<uint64_t> generation_{0};
  ForkMutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace zefuse::executor
