#include "runtime/executor/derived_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/plan/dtype.h"

namespace zefuse::executor {

uint64_t fingerprint(const void* data, size_t bytes) {
  constexpr size_t samples = 64, word = 8;
  constexpr uint64_t odd = 0x9e3779b97f4a7c15u;
  const char* from = static_cast<const char*>(data);
  auto load = [&](size_t offset) {
    uint64_t value;
    std::memcpy(&value, from + offset, word);
    return value;
  };
  // Four independent lanes: the loads miss the cache, and must not wait for each other.
  uint64_t lanes[4] = {bytes, odd, 2, 3};
  auto mix = [&](size_t lane, uint64_t value) { lanes[lane] = std::rotl((lanes[lane] ^ value) * odd, 29); };
  if (bytes <= samples * word) {
    size_t offset = 0;
    for (; offset + word <= bytes; offset += word)
      mix(offset / word % 4, load(offset));
    uint64_t rest = 0;
    if (bytes > offset)
      std::memcpy(&rest, from + offset, bytes - offset);
    mix(0, rest);
  } else {
    // 16.16 fixed point, rounded down to whole words: reaches word 0 and, at the end, the last
    // eight bytes.
    const size_t last = bytes - word;
    for (size_t i = 0; i + 1 < samples; ++i)
      mix(i % 4, load(last / (samples - 1) * i & ~size_t(7)));
    mix(3, load(last));
  }
  uint64_t hash = 0;
  for (uint64_t lane : lanes)
    hash = (std::rotl(hash, 17) ^ lane) * odd;
  return hash ^ hash >> 32;
}

size_t bytesOf(const TensorRef& tensor, const BoundInput& shape) {
  return size_t(*reach(shape.sizes, shape.strides)) * plan::elementSize(tensor.dtype);
}

WeightStamp stampOf(const TensorRef& tensor, const BoundInput& shape, uint64_t generation) {
  return {tensor.data, tensor.version, fingerprint(tensor.data, bytesOf(tensor, shape)), generation};
}

std::shared_ptr<DerivedWeights::Entry>
DerivedWeights::entryFor(uint32_t input, const BoundValue& view,
                         const std::shared_ptr<const primitives::Primitive>& primitive) {
  std::lock_guard lock(mutex_);
  auto sameView = [&](const std::shared_ptr<Entry>& entry) {
    return entry->input == input && entry->dtype == view.dtype && entry->offset == view.offset &&
           std::ranges::equal(entry->sizes, view.sizes) && std::ranges::equal(entry->strides, view.strides);
  };
  auto found = std::ranges::find_if(entries_, [&](const std::shared_ptr<Entry>& entry) {
    return sameView(entry) && (entry->packer == primitive || entry->packer->packsLike(*primitive));
  });
  if (found != entries_.end())
    return *found;
  if (size_t(std::ranges::count_if(entries_, sameView)) >= layouts_per_view)
    entries_.erase(std::ranges::find_if(entries_, sameView));
  auto entry = std::make_shared<Entry>();
  entry->input = input;
  entry->dtype = view.dtype;
  entry->offset = view.offset;
  entry->sizes.assign(view.sizes.begin(), view.sizes.end());
  entry->strides.assign(view.strides.begin(), view.strides.end());
  entry->packer = primitive;
  entries_.push_back(entry);
  return entry;
}

Result<std::shared_ptr<const PackedWeight>>
DerivedWeights::get(uint32_t input, const BoundValue& view, const void* b, const WeightStamp& stamp,
                    const std::shared_ptr<const primitives::Primitive>& primitive, Counters::OfCall& counters) {
  const std::shared_ptr<Entry> entry = entryFor(input, view, primitive);
  std::lock_guard lock(entry->mutex);
  bool again = false;
  if (auto fresh = entry->packed.use(stamp, &again)) {
    ++counters.weight_packs_reused;
    return fresh;
  }
  if (!again)
    return std::shared_ptr<const PackedWeight>();
  std::shared_ptr<PackedWeight> packed;
  // A copy that nobody uses any more is written over: weights that change now and then stay where they are.
  if (auto old = entry->packed.makeRoom(); old.use_count() == 1) {
    std::atomic_thread_fence(std::memory_order_acquire);  // whoever gave it back has read it before
    packed = std::const_pointer_cast<PackedWeight>(std::move(old));
  } else {
    packed = std::make_shared<PackedWeight>();
    ZEFUSE_RETURN_IF_ERROR(packed->memory.reserve(primitive->packedBytes()));
  }
  packed->stamp = stamp;
  ZEFUSE_RETURN_IF_ERROR(primitive->packB(b, packed->memory.data()));
  ++counters.weights_packed;
  entry->packed.add(packed);
  return std::shared_ptr<const PackedWeight>(std::move(packed));
}

void DerivedWeights::invalidate() {
  generation_.fetch_add(1, std::memory_order_acq_rel);
  std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace zefuse::executor
