#include "python/csrc/kept_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/CPUAllocator.h>

#include "common/base/fork.h"

namespace zefuse::python::kept_memory {
namespace {

struct Block {
  c10::DataPtr memory;  // of torch's allocator
  size_t bytes;
  uint64_t idle_since = 0;             // number of a call
  std::list<Block*>::iterator by_age;  // these two while it is kept
  std::multimap<size_t, Block*>::iterator by_size;
};
using Blocks = std::vector<std::unique_ptr<Block>>;

// ZEFUSE_KEPT_MEMORY_MB, else an eighth of the machine's memory.
size_t limitOfProcess() {
  if (const char* text = std::getenv("ZEFUSE_KEPT_MEMORY_MB"); text && *text) {
    char* end = nullptr;
    const unsigned long long megabytes = std::strtoull(text, &end, 10);
    if (*end == '\0')
      return size_t(std::min<unsigned long long>(megabytes, SIZE_MAX >> 20) << 20);
  }
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? size_t(pages) / 8 * size_t(page) : size_t(1) << 30;
}

class Kept {
public:
  // A block of nearly as many bytes; null: there is none, and one may now be made. `victims`: what to give back first.
  Block* take(size_t bytes, Blocks& victims) {
    const std::lock_guard lock(mutex_);
    // The one that was let go of last is likeliest to be in a cache.
    auto found = by_size_.lower_bound(bytes);
    if (found != by_size_.end() && found->first - bytes <= bytes / 8) {
      Block* block = std::prev(by_size_.upper_bound(found->first))->second;
      unlink(block);
      use(block->bytes);
      ++taken_again_;
      return block;
    }
    use(bytes);
    shrink(victims);
    return nullptr;
  }

  void giveBack(Block* block, Blocks& victims) {
    const std::lock_guard lock(mutex_);
    in_use_ -= block->bytes;
    block->idle_since = calls_;
    block->by_age = by_age_.insert(by_age_.end(), block);
    block->by_size = by_size_.emplace(block->bytes, block);
    kept_ += block->bytes;
    shrink(victims);
  }

  // What use() counted was not allocated.
  void forget(size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
  }

  void beginCall(Blocks& victims) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    while (!by_age_.empty() && by_age_.front()->idle_since + longest_idle < calls_)
      drop(victims);
  }

  void release(Blocks& victims) {
    const std::lock_guard lock(mutex_);
    while (!by_age_.empty())
      drop(victims);
    most_in_use_ = in_use_;
  }

  Figures figures() {
    const std::lock_guard lock(mutex_);
    return {in_use_, kept_, taken_again_};
  }

private:
  void use(size_t bytes) {
    in_use_ += bytes;
    most_in_use_ = std::max(most_in_use_, in_use_);
  }
  void unlink(Block* block) {
    by_age_.erase(block->by_age);
    by_size_.erase(block->by_size);
    kept_ -= block->bytes;
  }
  void drop(Blocks& victims) {
    victims.emplace_back(by_age_.front());
    unlink(victims.back().get());
  }
  void shrink(Blocks& victims) {
    while (!by_age_.empty() && (kept_ > limit_ || in_use_ + kept_ > most_in_use_))
      drop(victims);
  }

  ForkMutex mutex_;  // guards what follows
  std::list<Block*> by_age_;
  std::multimap<size_t, Block*> by_size_;
  size_t in_use_ = 0, kept_ = 0, most_in_use_ = 0;
  uint64_t calls_ = 0, taken_again_ = 0;
  const size_t limit_ = limitOfProcess();
};

// Never destroyed: tensors may live until the process ends.
Kept& kept() {
  static auto& all = *new Kept;
  return all;
}

void giveBack(void* block) {
  Blocks victims;  // torch's allocator is not called while the lock is held
  kept().giveBack(static_cast<Block*>(block), victims);
}

c10::DataPtr pointerTo(Block* block) { return {block->memory.get(), block, giveBack, c10::Device(c10::kCPU)}; }

}  // namespace

c10::DataPtr allocate(size_t bytes) {
  Blocks victims;
  if (Block* block = kept().take(bytes, victims))
    return pointerTo(block);
  victims.clear();
  try {
    auto block = std::make_unique<Block>();
    block->bytes = bytes;
    try {
      block->memory = c10::GetCPUAllocator()->allocate(bytes);
    } catch (...) {
      release();
      block->memory = c10::GetCPUAllocator()->allocate(bytes);
    }
    return pointerTo(block.release());
  } catch (...) {
    kept().forget(bytes);
    throw;
  }
}

void beginCall() {
  Blocks victims;
  kept().beginCall(victims);
}

void release() {
  Blocks victims;
  kept().release(victims);
}

Figures figures() { return kept().figures(); }

}  // namespace zefuse::python::kept_memory
