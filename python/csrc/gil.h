// The interpreter's lock, while there is work that takes milliseconds and touches no Python object.
#pragma once

#include <pybind11/pybind11.h>

namespace zefuse::python {

// `work` with the GIL released, so that other threads run Python meanwhile. What it returns or throws comes out with
// the GIL held again.
template <typename Work> auto withoutGil(const Work& work) -> decltype(work()) {
  pybind11::gil_scoped_release released;
  return work();
}

}  // namespace zefuse::python
