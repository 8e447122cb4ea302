#include "python/csrc/code_hash.h"

#include <algorithm>
#include <vector>

#include "runtime/cache/sha256.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

// Every part begins with its length, so that no two sequences of parts read the same.
class Writer {
public:
  void add(std::string_view text) {
    number(text.size());
    bytes_.append(text);
  }
  void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void texts(const py::tuple& names) {
    number(names.size());
    for (const py::handle name : names)
      add(utf8(name));
  }
  void addBytes(PyObject* bytes) { add({PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes))}); }

  static std::string_view utf8(const py::handle& text) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!data)
      throw py::error_already_set();
    return {data, size_t(size)};
  }

  const std::string& bytes() const { return bytes_; }

private:
  std::string bytes_;
};

template <typename Type> Type owned(PyObject* object) {
  if (!object)
    throw py::error_already_set();
  return py::reinterpret_steal<Type>(object);
}

void write(Writer& writer, PyCodeObject* code);

void writeConstant(Writer& writer, PyObject* constant) {
  if (PyCode_Check(constant))
    return write(writer, reinterpret_cast<PyCodeObject*>(constant));
  writer.add(Py_TYPE(constant)->tp_name);
  if (!PyFrozenSet_Check(constant)) {
    writer.add(Writer::utf8(owned<py::str>(PyObject_Repr(constant))));
    return;
  }
  std::vector<std::string> items;  // a set has no order of its own
  for (const py::handle item : py::reinterpret_borrow<py::frozenset>(constant))
    items.emplace_back(Writer::utf8(owned<py::str>(PyObject_Repr(item.ptr()))));
  std::ranges::sort(items);
  writer.number(items.size());
  for (const std::string& item : items)
    writer.add(item);
}

void write(Writer& writer, PyCodeObject* code) {
  writer.addBytes(owned<py::bytes>(PyCode_GetCode(code)).ptr());
  writer.texts(py::reinterpret_borrow<py::tuple>(code->co_names));
  writer.texts(owned<py::tuple>(PyCode_GetVarnames(code)));
  writer.texts(owned<py::tuple>(PyCode_GetFreevars(code)));
  writer.texts(owned<py::tuple>(PyCode_GetCellvars(code)));
  writer.add(Writer::utf8(code->co_name));
  for (const int number : {code->co_argcount, code->co_posonlyargcount, code->co_kwonlyargcount, code->co_flags})
    writer.number(uint64_t(number));
  writer.addBytes(code->co_exceptiontable);
  const auto constants = py::reinterpret_borrow<py::tuple>(code->co_consts);
  writer.number(constants.size());
  for (const py::handle constant : constants)
    writeConstant(writer, constant.ptr());
}

}  // namespace

std::string codeHash(const py::handle& code) {
  if (!PyCode_Check(code.ptr()))
    throw py::type_error("a code object is needed");
  Writer writer;
  write(writer, reinterpret_cast<PyCodeObject*>(code.ptr()));
  return hex(Sha256().update(writer.bytes()).finish()).substr(0, 32);
}

}  // namespace zefuse::python
