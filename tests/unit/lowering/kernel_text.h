// Writes a module with one zefuse.kernel, and runs it on the host through the CPU driver's code generator.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/cpu/codegen/codegen.h"
#include "lowering/lower.h"
#include "tests/unit/lowering/attention_case.h"

namespace zefuse::test {

struct Operand {
  std::string name;  // "%x"
  std::string type;  // "tensor<4x8xf32>"
  std::string map;   // "(d0, d1) -> (d0, d1)": of a linalg operand, or the layout of a kernel's argument
};

class KernelText {
public:
  std::string name = "kernel";

  void input(const Operand& operand) { inputs_.push_back(operand); }
  void output(const Operand& operand) { outputs_.push_back(operand); }
  void line(const std::string& text) { body_ += "    " + text + "\n"; }

  // iterators: "ppr". body: statements over %0, %1, ... (the inputs' elements) ending in "yield %v : f32"; %o is the
  // output's.
  void generic(const std::string& result, const std::string& iterators, const std::vector<Operand>& ins,
               const Operand& out, const std::string& body);
  // tensor.empty, or linalg.fill of it with `value`.
  void empty(const std::string& result, const std::string& type, const std::string& sizes = "");
  void fill(const std::string& result, const std::string& type, const std::string& value,
            const std::string& sizes = "");
  std::string module() const;

private:
  std::vector<Operand> inputs_, outputs_;
  std::string body_;
};

std::string elementOf(const std::string& tensor_type);

// A lowered and loaded kernel.
class Program {
public:
  // Fails the current test and leaves `ok()` false when it does not lower, compile or load.
  // aligned: what it runs with begins where the executor's buffers do (common/base/buffer_alignment.h), else anywhere.
  explicit Program(const std::string& module, const TargetDescription& target = TargetDescription::cpu(),
                   bool aligned = false, const Tuning& tuning = {});
  Program(const AttentionCase& derivative, const TargetDescription& target);
  bool ok() const { return entry_ != nullptr; }
  const LoweredKernel& lowered() const { return lowered_; }
  const std::string& stage(const std::string& name) const;

  // Runs all groups in order. Returns the status word. extent: of units, which the test computes when it is symbolic.
  int32_t run(const std::vector<void*>& arguments, const std::vector<int64_t>& symbols = {}, unsigned groups = 3);

private:
  void load(const TargetDescription& target);

  LoweredKernel lowered_;
  std::vector<std::pair<std::string, std::string>> stages_;
  std::unique_ptr<cpu::LoadedModule> module_;
  cpu::WorkGroupFn entry_ = nullptr;
};

// A module's kernel, lowered in a context that is gone: `extent` and `scratch_bytes` are null. None when it does not
// lower.
std::optional<LoweredKernel> loweredOf(const std::string& module, const TargetDescription& target,
                                       const SpillCheck& spills = nullptr, const Tuning& tuning = {});
// Its SPIR-V; empty when it does not lower.
std::vector<uint32_t> wordsOf(const std::string& module, const TargetDescription& target = TargetDescription::cpu());

// Of a derivative of attention.
std::optional<LoweredKernel> loweredOf(const AttentionCase& derivative, const TargetDescription& target,
                                       const SpillCheck& spills = nullptr);

// The diagnostics of a module that must not lower; empty if it does.
std::string refusalOf(const std::string& module);

}  // namespace zefuse::test
