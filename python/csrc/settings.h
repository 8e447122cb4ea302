// What the dict of zefuse.options asks of the compiler and of the executor.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "compiler/options.h"
#include "python/csrc/interrupts.h"
#include "python/csrc/tensors.h"
#include "runtime/executor/executable.h"

namespace zefuse::python {

struct Settings {
  Interrupts interrupts;  // run.cancelled asks it
  Options compile;
  ExecutableOptions run;
  TorchPlace place;           // where the graph's tensors lie
  std::string package;        // whose plans are taken for graphs that they were made of; empty: none
  bool package_only = false;  // and nothing else may run
};

/// From the dict that zefuse.options made and checked: None means that the environment decides.
Settings settingsOf(const pybind11::dict& given);

}  // namespace zefuse::python
