#include "python/csrc/meanwhile.h"

#include <utility>

namespace py = pybind11;

namespace zefuse::python {

// Never destroyed: the interpreter is gone before static objects are.
static py::object& function() {
  static auto* kept = new py::object;
  return *kept;
}

void setMeanwhile(py::object given) { function() = std::move(given); }

void meanwhile() {
  if (const py::object called = function())
    called();
}

}  // namespace zefuse::python
