#include "python/csrc/errors.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace zefuse::python {

void raise(const char* code, const std::string& message) {
  // An operator written in Python has raised (or torch's own code around ATen, as it does in a first call): that is
  // what eager raises. Left set, it would make a SystemError of the next thing that Python is asked for.
  if (PyErr_Occurred())
    throw py::error_already_set();
  py::object type = py::module_::import("zefuse.errors").attr("by_code")(code);
  PyErr_SetString(type.ptr(), message.c_str());
  throw py::error_already_set();
}

void raise(const Status& status, bool of_torchs_device) {
  const char* name = "internal";
  switch (status.code()) {
  case Code::invalid_argument: name = "invalid_argument"; break;
  case Code::index_error: name = "index_error"; break;
  case Code::not_found: name = "not_found"; break;
  case Code::damaged: name = "damaged"; break;
  case Code::unsupported: name = "unsupported"; break;
  case Code::out_of_memory: name = of_torchs_device ? "out_of_device_memory" : "out_of_memory"; break;
  case Code::deadline: name = "deadline"; break;
  case Code::device: name = "device"; break;
  case Code::cancelled: name = "cancelled"; break;
  case Code::linear_algebra: name = "linear_algebra"; break;
  case Code::ok:
  case Code::internal: break;
  }
  raise(name, status.message());
}

}  // namespace zefuse::python
