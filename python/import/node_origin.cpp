#include "python/import/node_origin.h"

#include <charconv>
#include <string>
#include <string_view>

namespace py = pybind11;

namespace zefuse {

void readLocation(const py::dict& metadata, fx::Node& into) {
  if (!metadata.contains("stack_trace"))
    return;
  py::object trace = metadata["stack_trace"];
  if (!PyUnicode_Check(trace.ptr()))
    return;
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(trace.ptr(), &size);
  if (!data)
    throw py::error_already_set();
  constexpr std::string_view opening = "File \"", separator = "\", line ";
  std::string_view rest(data, static_cast<size_t>(size));
  while (true) {
    const size_t begin = rest.rfind(opening);
    if (begin == std::string_view::npos)
      return;
    const std::string_view frame = rest.substr(begin + opening.size());
    rest = rest.substr(0, begin);
    const size_t end = frame.find(separator);
    if (end == std::string_view::npos)
      continue;
    const std::string_view file = frame.substr(0, end), tail = frame.substr(end + separator.size());
    unsigned line = 0;
    if (std::from_chars(tail.data(), tail.data() + tail.size(), line).ec != std::errc())
      continue;
    const bool inside_torch = file.find("/torch/") != std::string_view::npos;
    if (into.file.empty() || !inside_torch) {
      into.file = file;
      into.line = line;
    }
    if (!inside_torch)
      return;
  }
}

void readModule(const py::dict& metadata, fx::Node& into) {
  for (const char* key : {"nn_module_stack", "fwd_nn_module_stack"}) {
    if (!metadata.contains(key) || !py::isinstance<py::dict>(metadata[key]))
      continue;
    py::object innermost = py::none();
    for (auto item : py::reinterpret_borrow<py::dict>(metadata[key]))
      innermost = py::reinterpret_borrow<py::object>(item.second);
    if (!py::isinstance<py::tuple>(innermost) || py::len(innermost) == 0)
      continue;
    py::object first = py::reinterpret_borrow<py::tuple>(innermost)[0];
    if (!py::isinstance<py::str>(first))
      continue;
    std::string path = first.cast<std::string>();
    if (const size_t root = path.starts_with("L[") ? path.find(']') : std::string::npos; root != std::string::npos)
      path.erase(0, root + 1);
    if (path.starts_with('.'))
      path.erase(0, 1);
    if (path.find('|') == std::string::npos)  // which separates what a location says
      into.module = std::move(path);
    return;
  }
}

}  // namespace zefuse
