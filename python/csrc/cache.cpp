#include "python/csrc/cache.h"

#include <pybind11/stl.h>

#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "runtime/cache/file_cache.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

CacheKey keyOf(const std::string& kind, const std::vector<std::pair<std::string, std::string>>& fields) {
  CacheKey key(kind);
  for (const auto& [name, value] : fields)
    key.add(name, value);
  return key;
}

}  // namespace

void defineCacheFunctions(py::module_& module) {
  // Entries of Python's own kinds: data, checked as all entries are (file_cache.h).
  module.def(
      "cache_load",
      [](const std::string& directory, const std::string& kind,
         const std::vector<std::pair<std::string, std::string>>& fields) -> py::object {
        const auto found = withoutGil([&] { return FileCache(directory).load(keyOf(kind, fields)); });
        if (!found)
          return py::none();
        return py::bytes(reinterpret_cast<const char*>(found->data()), found->size());
      },
      py::arg("directory"), py::arg("kind"), py::arg("fields"));
  module.def(
      "cache_store",
      [](const std::string& directory, uint64_t limit, const std::string& kind,
         const std::vector<std::pair<std::string, std::string>>& fields, const std::string& note,
         const std::string& body) {
        const Status status = withoutGil([&] {
          return FileCache(directory, limit).store(keyOf(kind, fields), std::as_bytes(std::span(body)), note);
        });
        return status.ok() ? std::string() : status.message();
      },
      py::arg("directory"), py::arg("limit"), py::arg("kind"), py::arg("fields"), py::arg("note"), py::arg("body"));
}

}  // namespace zefuse::python
