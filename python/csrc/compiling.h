// FX graphs to compiled graphs: at once, or beside the caller's own work.
#pragma once

#include <pybind11/pybind11.h>

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/toolchain/installed_compilers.h"
#include "compiler/compilation.h"
#include "core/imported_graph.h"
#include "python/csrc/compiled_graph.h"
#include "python/csrc/settings.h"

namespace zefuse::python {

/// With the GIL released: `work`. Outside compilers may run in it where it is for a GPU, and Ctrl-C ends them.
template <typename Work> auto compilingWith(Settings& settings, const Work& work) {
  return settings.compile.target == "cpu" ? work() : settings.interrupts.run(work);
}

struct Imported {
  core::ImportedGraph graph;
  std::vector<pybind11::object> constants;  // the graph's inputs of kind "constant", after the placeholders
};

/// `measured`: options that say what was measured of operators, and whether to list what there is to measure; null: the
/// graph as it is, as packages know it.
Imported import(const pybind11::object& graph_module, const std::vector<unsigned>& parameters, bool host_calls = true,
                const Options* measured = nullptr);

/// The compiler that makes a device's native code, which is part of the plan's key since the plan depends on what it
/// spills; none: whoever compiles the kernels says what is missing.
std::optional<InstalledCompiler> deviceCompiler(Settings& settings);

/// One graph on its way. Every method needs the GIL, which is released while it is compiled.
class Compiling {
public:
  /// Reads the graph. Raises what is wrong with it.
  Compiling(const pybind11::object& graph_module, const std::vector<unsigned>& parameters,
            const pybind11::dict& options);
  ~Compiling();  // ends early what begin() began

  /// Compiles it on a thread of its own.
  void begin();
  /// Once: what became of it, or null in a fork of the process that began it. Raises what stopped it, a signal's
  /// handler too (Interrupts). Without begin() it is compiled here.
  std::unique_ptr<CompiledGraph> take();

  /// Ends all that was begun in this process and not taken.
  static void endAll();

private:
  double sinceImport() const;
  void work();
  std::unique_ptr<CompiledGraph> finish();

  Settings settings_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<InstalledCompiler> compiler_;
  std::optional<Imported> imported_;
  std::vector<at::Tensor> constants_;
  Origin origin_;
  Compilation compilation_;
  Result<std::unique_ptr<Executable>> executable_ = Status(Code::internal, "not built");
  const pid_t process_;
  bool taken_ = false;
  std::unique_ptr<primitives::TeamThread<void>> thread_;  // declared last: ends before what it uses
};

}  // namespace zefuse::python
