#include "tests/unit/cuda/simulated_groups.h"

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/unit/cuda/simulated_warpgroups.h"

using zefuse::cuda::testing::local_bytes;
using zefuse::cuda::testing::Place;

namespace {

// Lanes of a warp, or items of a group, that meet.
struct Meeting {
  size_t arrived = 0, generation = 0;
  uint32_t in[32] = {}, out[32] = {};
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  uint32_t bytes, whole;  // the rest becomes zeros
};

struct Item {
  ucontext_t context;
  std::vector<std::vector<Copy>> batches{1};  // of asynchronous copies; the last one is open
  std::vector<std::byte> stack;
  uint32_t id[3], linear;
  bool done = false;
};

struct Group {
  Place id, count, size;
  uint32_t items;
  std::vector<Item> all;
  Item* current = nullptr;
  ucontext_t scheduler;
  Meeting barrier;
  std::map<std::pair<uint32_t, uint32_t>, Meeting> warps;  // warp, mask
  std::map<uint32_t, Meeting> warpgroups;
  std::map<uint32_t, Meeting> barriers;                                   // but the group's
  std::map<uint32_t, std::array<std::array<uint64_t, 10>, 32>> operands;  // per warp and lane: of a matrix instruction
  size_t alive = 0, progress = 0;
  void (*entry)(void**) = nullptr;
  void** arguments = nullptr;
  std::string error;
};
Group* group;  // the one that runs
// An address's low bits are its place there, as those of shared memory are.
std::byte* const local_memory = static_cast<std::byte*>(std::aligned_alloc(local_bytes, local_bytes));

void yield() { swapcontext(&group->current->context, &group->scheduler); }

// Waits until `wanted` have come.
void meet(Meeting& meeting, size_t wanted) {
  const size_t mine = meeting.generation;
  ++group->progress;
  if (++meeting.arrived == wanted) {
    std::copy(std::begin(meeting.in), std::end(meeting.in), meeting.out);
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  while (meeting.generation == mine)
    yield();
}

uint32_t lane() { return group->current->linear % 32; }

Meeting& meetLanes(uint32_t mask, uint32_t value) {
  Meeting& meeting = group->warps[{group->current->linear / 32, mask}];
  if (!(mask >> lane() & 1))
    group->error = "a lane that is not in its mask";
  meeting.in[lane()] = value;
  meet(meeting, size_t(__builtin_popcount(mask)));
  return meeting;
}

// PTX, shfl.sync: `clamp` has the segment's mask and its last lane.
uint32_t shuffle(uint32_t mask, uint32_t value, uint32_t other, uint32_t clamp, bool exclusive_or) {
  const uint32_t segment = clamp >> 8 & 31, last = (lane() & segment) | (clamp & 31 & ~segment);
  const uint32_t from = exclusive_or ? lane() ^ (other & 31) : (lane() & segment) | (other & 31 & ~segment);
  Meeting& meeting = meetLanes(mask, value);
  const uint32_t source = from <= last ? from : lane();
  return mask >> source & 1 ? meeting.out[source] : 0xdeadbeef;  // a lane that is not there: undefined
}

// What all lanes of the warp gave.
using Operands = std::array<std::array<uint64_t, 10>, 32>;
Operands exchangeOperands(const uint64_t* mine, size_t count) {
  Operands& shared = group->operands[group->current->linear / 32];
  std::copy(mine, mine + count, shared[lane()].begin());
  meetLanes(~0u, 0);
  const Operands all = shared;
  meetLanes(~0u, 0);  // before the next instruction's overwrite them
  return all;
}

float numberOf(uint16_t bits, bool half) {
  return half ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}

// PTX, "Matrix fragments for mma.m16n8k16": operands are a's 4 registers, b's 2 and c's 4.
void multiplyFragments(const uint64_t* mine, float* sums, bool half) {
  const Operands all = exchangeOperands(mine, 10);
  float a[16][16], b[16][8];
  for (uint32_t from = 0; from < 32; ++from)
    for (uint32_t reg = 0; reg < 6; ++reg)
      for (uint32_t pair = 0; pair < 2; ++pair) {
        const float value = numberOf(uint16_t(all[from][reg] >> 16 * pair), half);
        const uint32_t along = from % 4 * 2 + pair;
        if (reg < 4)
          a[from / 4 + reg % 2 * 8][along + reg / 2 * 8] = value;
        else
          b[along + (reg - 4) * 8][from / 4] = value;
      }
  for (uint32_t i = 0; i < 4; ++i) {
    sums[i] = std::bit_cast<float>(uint32_t(mine[6 + i]));
    for (uint32_t k = 0; k < 16; ++k)
      sums[i] += a[lane() / 4 + i / 2 * 8][k] * b[k][lane() % 4 * 2 + i % 2];
  }
}

// The same of mma.m16n8k8 of tf32, whose operands' last 13 bits do not count, and whose sums are cut off, as a GPU's
// are.
void multiplyWideFragments(const uint64_t* mine, float* sums) {
  const Operands all = exchangeOperands(mine, 10);
  float a[16][8], b[8][8];
  for (uint32_t from = 0; from < 32; ++from)
    for (uint32_t reg = 0; reg < 6; ++reg) {
      const float value = std::bit_cast<float>(uint32_t(all[from][reg]) & 0xffffe000);
      if (reg < 4)
        a[from / 4 + reg % 2 * 8][from % 4 + reg / 2 * 4] = value;
      else
        b[from % 4 + (reg - 4) * 4][from / 4] = value;
    }
  for (uint32_t i = 0; i < 4; ++i) {
    double sum = std::bit_cast<float>(uint32_t(mine[6 + i]));
    for (uint32_t k = 0; k < 8; ++k)
      sum += double(a[lane() / 4 + i / 2 * 8][k]) * double(b[k][lane() % 4 * 2 + i % 2]);
    sums[i] = float(sum);
    if (std::abs(sums[i]) > std::abs(sum))
      sums[i] = std::nextafter(sums[i], 0.0F);
  }
}

// PTX, ldmatrix: the lines of block i are where lanes 8i to 8i + 7 point to.
void loadFragments(const uint64_t* mine, uint32_t* blocks, bool transposed) {
  const Operands all = exchangeOperands(mine, 1);
  for (uint32_t block = 0; block < 4; ++block) {
    uint16_t pair[2];
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t across = lane() / 4, along = lane() % 4 * 2 + i;
      const auto* line = reinterpret_cast<const uint16_t*>(all[block * 8 + (transposed ? along : across)][0]);
      if (reinterpret_cast<uintptr_t>(line) % 16 != 0)
        group->error = "a block's line that does not begin at a multiple of 16 bytes";
      pair[i] = line[transposed ? across : along];
    }
    blocks[block] = pair[0] | uint32_t(pair[1]) << 16;
  }
}

void runItem() {
  group->entry(group->arguments);
  group->current->done = true;
  --group->alive;
  ++group->progress;
  // Who ended is waited for no more.
  if (group->barrier.arrived != 0 && group->barrier.arrived == group->alive)
    group->error = "an item ended while others wait at a barrier";
  yield();
}

}  // namespace

namespace zefuse::cuda::testing {
uint32_t currentItem() { return group->current->linear; }
std::byte* localMemory() { return local_memory; }
void meetWarpgroup() { meet(group->warpgroups[group->current->linear / 128], 128); }
void meetAtBarrier(uint32_t number, uint32_t items, bool wait) {
  Meeting& meeting = group->barriers[number];
  if (wait) {
    meet(meeting, items);
  } else if (++group->progress; ++meeting.arrived == items) {
    meeting.arrived = 0;
    ++meeting.generation;
  }
}
void failGroup(const std::string& why) { group->error = why; }

std::string runGroup(const Place& id, const Place& count, const Place& size, void (*entry)(void**), void** arguments) {
  Group g;
  g.id = id;
  g.count = count;
  g.size = size;
  g.entry = entry;
  g.arguments = arguments;
  g.items = size[0] * size[1] * size[2];
  group = &g;
  std::memset(local_memory, 0xcd, local_bytes);
  resetWarpgroups();
  g.alive = g.items;
  g.all = std::vector<Item>(g.items);
  for (uint32_t i = 0; i < g.items; ++i) {
    Item& item = g.all[i];
    item.linear = i;
    item.id[0] = i % g.size[0];
    item.id[1] = i / g.size[0] % g.size[1];
    item.id[2] = i / g.size[0] / g.size[1];
    item.stack.resize(128 << 10);
    getcontext(&item.context);
    item.context.uc_stack = {item.stack.data(), 0, item.stack.size()};
    item.context.uc_link = nullptr;
    makecontext(&item.context, runItem, 0);
  }
  while (g.alive != 0 && g.error.empty()) {
    const size_t before = g.progress;
    for (Item& item : g.all)
      if (!item.done) {
        g.current = &item;
        swapcontext(&g.scheduler, &item.context);
      }
    if (g.progress == before)
      g.error = "items wait for others that never come";
  }
  group = nullptr;
  return g.error;
}
}  // namespace zefuse::cuda::testing

#define SIMULATED extern "C" __attribute__((visibility("default"), used))
SIMULATED uint32_t sim_tid_x() { return group->current->id[0]; }
SIMULATED uint32_t sim_tid_y() { return group->current->id[1]; }
SIMULATED uint32_t sim_tid_z() { return group->current->id[2]; }
SIMULATED uint32_t sim_ntid_x() { return group->size[0]; }
SIMULATED uint32_t sim_ntid_y() { return group->size[1]; }
SIMULATED uint32_t sim_ntid_z() { return group->size[2]; }
SIMULATED uint32_t sim_ctaid_x() { return group->id[0]; }
SIMULATED uint32_t sim_ctaid_y() { return group->id[1]; }
SIMULATED uint32_t sim_ctaid_z() { return group->id[2]; }
SIMULATED uint32_t sim_nctaid_x() { return group->count[0]; }
SIMULATED uint32_t sim_nctaid_y() { return group->count[1]; }
SIMULATED uint32_t sim_nctaid_z() { return group->count[2]; }
SIMULATED void sim_barrier(uint32_t) { meet(group->barrier, group->items); }
SIMULATED void sim_warp_barrier(uint32_t mask) { meetLanes(mask, 0); }
SIMULATED uint32_t sim_shuffle_index(uint32_t mask, uint32_t v, uint32_t from, uint32_t clamp) {
  return shuffle(mask, v, from, clamp, false);
}
SIMULATED uint32_t sim_shuffle_xor(uint32_t mask, uint32_t v, uint32_t from, uint32_t clamp) {
  return shuffle(mask, v, from, clamp, true);
}
SIMULATED uint32_t sim_ballot(uint32_t mask, bool predicate) {
  Meeting& meeting = meetLanes(mask, predicate);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i)
    bits |= (mask >> i & 1) && meeting.out[i] ? 1u << i : 0;
  return bits;
}
SIMULATED void sim_mma_f16(const uint64_t* operands, float* sums) { multiplyFragments(operands, sums, true); }
SIMULATED void sim_mma_bf16(const uint64_t* operands, float* sums) { multiplyFragments(operands, sums, false); }
SIMULATED void sim_mma_tf32(const uint64_t* operands, float* sums) { multiplyWideFragments(operands, sums); }
SIMULATED void sim_load_fragments(const uint64_t* line, uint32_t* blocks) { loadFragments(line, blocks, false); }
SIMULATED void sim_load_fragments_transposed(const uint64_t* line, uint32_t* blocks) {
  loadFragments(line, blocks, true);
}
// Asynchronous copies are as late as they may be: what nobody waits for never comes.
SIMULATED void sim_copy(std::byte* to, const std::byte* from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    group->error = "a copy of 16 bytes that does not begin at a multiple of them";
  group->current->batches.back().push_back({to, from, bytes, 16});
}
SIMULATED void sim_copy_word(std::byte* to, const std::byte* from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 4 != 0 || reinterpret_cast<uintptr_t>(from) % 4 != 0)
    group->error = "a copy of 4 bytes that does not begin at a multiple of them";
  group->current->batches.back().push_back({to, from, bytes, 4});
}
SIMULATED void sim_commit() { group->current->batches.emplace_back(); }
SIMULATED void sim_wait(uint32_t but_last) {
  auto& batches = group->current->batches;
  while (batches.size() > but_last + 1) {
    for (const Copy& copy : batches.front()) {
      std::memset(copy.to, 0, copy.whole);
      std::memcpy(copy.to, copy.from, copy.bytes);
      zefuse::cuda::testing::noteCopied(copy.to);
    }
    batches.erase(batches.begin());
  }
}
// CUDA's: arguments as a C struct lays them out.
SIMULATED int sim_vprintf(const char* format, const std::byte* arguments) {
  std::string text;
  size_t at = 0;
  auto take = [&](auto& value) {
    at = (at + sizeof value - 1) / sizeof value * sizeof value;
    std::memcpy(&value, arguments + at, sizeof value);
    at += sizeof value;
  };
  for (; *format; ++format) {
    if (*format != '%' || format[1] == '%') {
      text += *format;
      format += *format == '%';
      continue;
    }
    const size_t length = std::strcspn(format, "diouxXfFeEgGaAcsp") + 1;
    const std::string one(format, length);
    char piece[200];
    double real;
    long whole;
    int word;
    const char* string;
    if (std::strchr("fFeEgGaA", one.back())) {
      take(real);
      std::snprintf(piece, sizeof piece, one.c_str(), real);
    } else if (one.back() == 's' || one.back() == 'p') {
      take(string);
      std::snprintf(piece, sizeof piece, one.c_str(), string);
    } else if (one.find('l') != std::string::npos) {
      take(whole);
      std::snprintf(piece, sizeof piece, one.c_str(), whole);
    } else {
      take(word);
      std::snprintf(piece, sizeof piece, one.c_str(), word);
    }
    text += piece;
    format += length - 1;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}
SIMULATED float sim_exp2(float x) { return exp2f(x); }
// Subnormal results are zeros.
SIMULATED float sim_exp2_flushed(float x) { return x < -126 ? 0 : exp2f(x); }
SIMULATED float sim_reciprocal(float x) { return 1 / x; }
// What the host's code calls for a conversion that NVIDIA's GPUs have: to the nearest, of two the even one.
SIMULATED __bf16 __truncsfbf2(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto rounded = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  return std::bit_cast<__bf16>(std::isnan(x) ? uint16_t(bits >> 16 | 0x40) : rounded);
}
SIMULATED std::byte* sim_local() { return local_memory; }
