// What launches of a plan for the CPU make of parameters alone (Program::derived), kept from call to call while those
// are fresh: a weight under weight norm, tables, masks. DeviceSide does it on a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/plan/program.h"
#include "runtime/executor/binding.h"
#include "runtime/executor/executable.h"
#include "runtime/executor/host_memory.h"
#include "runtime/executor/kept_copies.h"

namespace zefuse::executor {

// Of one frame: one call at a time.
class KeptWeights {
public:
  explicit KeptWeights(const plan::Program& program);

  enum class Use {
    none,   // parameters that the call before did not have: what is made of them may never serve again
    make,   // the launches run, and what they make is kept
    reuse,  // they are left out
  };
  // What this call does; nothing is kept where there is no memory for it. `generation`: of DerivedWeights.
  Use begin(std::span<const CallInput> inputs, const Binding& binding, uint64_t generation);
  void made();  // the launches of a call with Use::make have run
  void forget();

  std::byte* data() { return memory_.data(); }
  size_t bytes() const { return memory_.bytes(); }
  // Of what was made, or is being made: no two of a process have the same.
  uint64_t number() const { return number_; }

private:
  std::vector<uint32_t> parameters_;  // inputs that the launches read
  HostMemory memory_;
  std::vector<WeightStamp> now_, last_, made_of_;
  bool is_made_ = false;
  uint64_t number_ = 0;
};

}  // namespace zefuse::executor
