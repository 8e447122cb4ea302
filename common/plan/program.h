// A plan that passed every check that does not need sizes: what the executor runs.
//
// After loadProgram each index is in range, each expression refers backwards, every buffer is
// touched only while it lives, external buffers only after the step that makes them, and inputs are
// written only where they say so. What depends on sizes is checked when symbols are bound (binding.h). What a kernel
// does with its pointers is the compiler's word: no check here can see it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/plan/plan_generated.h"

namespace zefuse::plan {

constexpr uint32_t plan_version = 1;
constexpr size_t max_rank = 64;  // as many as torch computes with

struct Program {
  plan::PlanT plan;  // without the SPIR-V words: those stay in the caller's bytes

  struct BufferInfo {
    bool escapes = false;         // a plan output views it
    int32_t producer = -1;        // external: the ATen step that makes it
    uint32_t produced_value = 0;  // and the value that stands for its whole result
  };
  std::vector<BufferInfo> buffers;
  std::vector<std::vector<uint32_t>> released_after;  // per step: external buffers that die there
  std::vector<uint32_t> output_buffers;               // by output number: its buffer
  std::vector<uint32_t> written_inputs;               // buffers of inputs that some step writes

  // What a step reads and writes, each buffer once.
  struct Touch {
    uint32_t buffer;
    bool written;
  };
  std::vector<std::vector<Touch>> touches;  // by step
  std::vector<bool> on_device;              // by step: runs on the plan's GPU; all false in a plan for the CPU
  bool host_steps = true;                   // some step runs on the host
  bool callers_places = false;              // takeCallersPlaces()

  // By step: a launch whose results depend on parameters alone (Plan.kept_weights), on the plan's GPU if it has one, so
  // that a call may leave it out where they are as they were; and by buffer: what such launches write, and nothing
  // else. All of it is of the same size in every binding.
  std::vector<bool> derived, kept;

  // Whether a buffer is as the call before found it: parameters, but those that the plan writes. In a plan for a GPU
  // such stay in its memory.
  bool isUnwrittenParameter(const plan::BufferT& buffer) const {
    return buffer.storage == plan::Storage::input && plan.inputs[buffer.index]->kind == plan::InputKind::parameter &&
           !plan.inputs[buffer.index]->written;
  }
};

// Whether steps run on another device than the host.
inline bool leavesHost(const plan::PlanT& plan) { return plan.device != "cpu"; }
inline bool runsOnHost(std::string_view target) { return target == "cpu"; }

// `bytes` must be aligned to 8. damaged: the message names what is wrong where.
Result<Program> loadProgram(std::span<const std::byte> bytes);

// For calls whose tensors lie on the plan's GPU: copies of what lies alike and without gaps are commands there, and no
// block of the executor's has room for inputs and outputs.
void takeCallersPlaces(Program& program);

// Whether a launch passes a scratch pointer.
inline bool hasScratch(const plan::PlanT& plan, const plan::LaunchT& launch) {
  const plan::ExprNode& bytes = plan.exprs[launch.scratch_bytes];
  return bytes.op() != plan::ExprOp::constant || bytes.value() != 0;
}

// What a launch's status word says: the message of the check that failed. `word` is not 0.
Status checkFailed(const plan::LaunchT& launch, uint32_t word);

// The status of a check with this message.
Status checkStatus(plan::ErrorClass error, std::string message);

// "step 3 (matmul)", for messages.
std::string stepName(const plan::PlanT& plan, size_t step);

// The same with the lines of the user's program that the step comes from and the inputs that it reads:
// "step 3 (Launch 'index_mul') of model.py:12, which reads rows, self.table.weight".
std::string stepOfProgram(const Program& program, size_t step);

}  // namespace zefuse::plan
