#include "python/csrc/cache.h"

#include "python/csrc/errors.h"
#include "runtime/cache/maintenance.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

py::list entries(const std::string& directory) {
  py::list list;
  for (const CacheEntryInfo& info : listEntries(directory)) {
    py::dict key;
    for (const auto& [name, value] : info.key)
      key[py::str(name)] = value;
    py::dict entry;
    entry["file"] = info.file;
    entry["key"] = key;
    entry["note"] = info.note;
    entry["bytes"] = info.bytes;
    entry["created"] = double(info.created) * 1e-9;
    entry["last_used"] = info.last_used;
    list.append(entry);
  }
  return list;
}

}  // namespace

void defineCacheFunctions(py::module_& module) {
  module.def("cache_entries", &entries, py::arg("directory"));
  module.def(
      "cache_clear", [](const std::string& directory) { return unwrap(clearCache(directory)); }, py::arg("directory"));
  module.def(
      "cache_export",
      [](const std::string& directory, const std::string& file) { return unwrap(exportCache(directory, file)); },
      py::arg("directory"), py::arg("file"));
  module.def(
      "cache_import",
      [](const std::string& directory, const std::string& file) { return unwrap(importCache(directory, file)); },
      py::arg("directory"), py::arg("file"));
}

}  // namespace zefuse::python
