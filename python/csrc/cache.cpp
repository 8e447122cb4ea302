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
      "cache_path",
      [](const std::string& directory, const std::string& kind,
         const std::vector<std::pair<std::string, std::string>>& fields) {
        return FileCache(directory).entryPath(keyOf(kind, fields));
      },
      py::arg("directory"), py::arg("kind"), py::arg("fields"));
  // The entry becomes what merge(its bytes or None) returns, while no other process changes it. What merge raises is
  // raised; "" or why the entry could not be kept.
  module.def(
      "cache_update",
      [](const std::string& directory, uint64_t limit, const std::string& kind,
         const std::vector<std::pair<std::string, std::string>>& fields, const std::string& note,
         const py::function& merge) {
        constexpr std::chrono::seconds for_others(10);
        const CacheKey key = keyOf(kind, fields);
        const FileCache cache(directory, limit);
        std::optional<std::vector<std::byte>> found;
        const FileCache::Lock lock = withoutGil([&] {
          FileCache::Lock held = cache.lock(key, for_others);
          found = cache.load(key);
          return held;
        });
        const py::object before =
            found ? py::object(py::bytes(reinterpret_cast<const char*>(found->data()), found->size())) : py::none();
        const auto body = py::cast<std::string>(merge(before));
        const Status status = withoutGil([&] { return cache.store(key, std::as_bytes(std::span(body)), note); });
        return status.ok() ? std::string() : status.message();
      },
      py::arg("directory"), py::arg("limit"), py::arg("kind"), py::arg("fields"), py::arg("note"), py::arg("merge"));
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
