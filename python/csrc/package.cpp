#include "python/csrc/package.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdlib>
#include <cstring>

#include "common/plan/plan_generated.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/interrupts.h"
#include "python/csrc/tensors.h"
#include "runtime/package/ahead.h"
#include "runtime/package/manifest.h"
#include "runtime/package/model.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

std::span<const std::byte> bytesOf(const py::buffer_info& info) {
  return {static_cast<const std::byte*>(info.ptr), static_cast<size_t>(info.size * info.itemsize)};
}

py::object wrap(const at::Tensor& tensor) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)); }

/// The weights, where they lie: the mapping is private, so a write changes only this process' pages.
py::dict mapWeights(const std::shared_ptr<package::Reader>& reader, const package::Manifest& manifest) {
  py::dict result;
  for (const package::Weight& weight : unwrap(package::readWeights(*reader))) {
    at::Tensor tensor = at::from_blob(
        const_cast<std::byte*>(weight.bytes.data()), weight.sizes, [reader](void*) {},
        at::TensorOptions(torchDtype(weight.dtype)));
    if (auto wanted = manifest.strides.find(weight.name); wanted != manifest.strides.end()) {
      if (wanted->second.size() != weight.sizes.size())
        raise("damaged", reader->name() + ": weight '" + weight.name + "' has strides of another rank; make it again");
      if (Status status = withoutGil([&] { return reader->checkWeights(); }); !status.ok())  // before the copy
        raise(status);
      tensor = at::empty_strided(weight.sizes, wanted->second, tensor.options()).copy_(tensor);
    }
    result[py::str(weight.name)] = wrap(tensor);
  }
  return result;
}

py::tuple slotsOf(const package::PlanEntry& entry) {
  py::list inputs, outputs;
  for (const package::InputSlot& slot : entry.inputs)
    inputs.append(slot.is_weight  ? py::object(py::str(slot.weight))
                  : slot.constant ? py::object(py::none())
                                  : py::object(py::int_(slot.user)));
  for (const package::OutputSlot& slot : entry.outputs)
    switch (slot.kind) {
    case package::OutputSlot::Kind::user: outputs.append(py::make_tuple("user", slot.user)); break;
    case package::OutputSlot::Kind::weight: outputs.append(py::make_tuple("weight", slot.weight)); break;
    case package::OutputSlot::Kind::mutates: outputs.append(py::make_tuple("mutates", slot.user)); break;
    }
  return py::make_tuple(inputs, outputs);
}

package::Argument argumentOf(py::handle object) {
  if (THPVariable_Check(object.ptr())) {
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    return package::Sizes{{tensor.sizes().data(), tensor.sizes().size()},
                          {tensor.strides().data(), tensor.strides().size()},
                          tensor.storage_offset()};
  }
  if (object.is_none())
    return package::None{};
  if (PyBool_Check(object.ptr()))
    return object.ptr() == Py_True;
  if (PyLong_Check(object.ptr())) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    return overflow ? package::Argument() : package::Argument(number);
  }
  if (PyFloat_Check(object.ptr()))
    return PyFloat_AS_DOUBLE(object.ptr());
  if (PyUnicode_Check(object.ptr()))
    return py::cast<std::string>(object);
  return {};
}

/// A function that raises where the arguments are not what torch.export guarded; None where it guarded nothing.
py::object guardsOf(const package::PlanEntry& entry) {
  if (entry.guards.empty())
    return py::none();
  return py::cpp_function([guards = entry.guards](const py::list& given) {
    std::vector<package::Argument> arguments;
    for (py::handle each : given)
      arguments.push_back(argumentOf(each));
    if (Status status = guards.check(arguments); !status.ok())
      raise(status);
  });
}

}  // namespace

void writePackage(const std::string& path, const py::dict& sections) {
  package::Writer writer;
  std::vector<py::buffer_info> held;  // until written
  for (auto [name, value] : sections) {
    held.push_back(py::cast<py::buffer>(value).request());
    writer.add(py::cast<std::string>(name), bytesOf(held.back()));
  }
  if (Status status = withoutGil([&] { return writer.write(path); }); !status.ok())
    raise(status);
}

py::dict nativeSections(const py::bytes& plan, const std::vector<std::string>& targets,
                        const ExecutableOptions& options, const py::object& progress) {
  package::AheadOptions ahead;
  ahead.cache_dir = options.cache_dir;
  ahead.cache_limit = options.cache_limit;
  ahead.threads = options.build_threads;
  Interrupts interrupts;
  ahead.cancelled = interrupts.asked();
  std::exception_ptr raised;
  ahead.progress = [&](const std::string& kernel, const std::string& target, double seconds, size_t done, size_t all) {
    py::gil_scoped_acquire acquired;
    try {
      return progress.is_none() || !py::object(progress(kernel, target, seconds, done, all)).equal(py::bool_(false));
    } catch (...) {
      raised = std::current_exception();
      return false;
    }
  };
  const std::string bytes = plan;
  auto codes = withoutGil([&] {
    return interrupts.run([&] { return package::compileAhead(*plan::GetPlan(bytes.data()), targets, ahead); });
  });
  if (raised)
    std::rethrow_exception(raised);
  py::dict sections;
  for (const package::NativeCode& code : unwrap(std::move(codes)))
    sections[py::str(package::nativeSection(code.module, code.target))] =
        py::bytes(reinterpret_cast<const char*>(code.bytes.data()), code.bytes.size());
  return sections;
}

std::shared_ptr<package::Reader> openPackage(const std::string& path) {
  return unwrap(withoutGil([&] { return package::Reader::open(path); }));
}

std::shared_ptr<package::Reader> copyPackage(const py::buffer& bytes) {
  constexpr size_t alignment = 64;
  const py::buffer_info info = bytes.request();
  const auto given = bytesOf(info);
  std::shared_ptr<void> copy(std::aligned_alloc(alignment, (given.size() / alignment + 1) * alignment), std::free);
  if (!copy)
    throw std::bad_alloc();
  std::memcpy(copy.get(), given.data(), given.size());
  auto reader = unwrap(package::Reader::fromBuffer({static_cast<const std::byte*>(copy.get()), given.size()}));
  return {reader.release(), [copy](package::Reader* owned) { delete owned; }};
}

py::dict loadPackage(const std::shared_ptr<package::Reader>& reader, const ExecutableOptions& given,
                     const TorchPlace& place) {
  package::Manifest manifest = unwrap(package::Manifest::read(*reader));
  ExecutableOptions options = given;
  Interrupts interrupts;
  options.cancelled = interrupts.asked();
  options.native_binary = [&](std::string_view id, std::string_view target) -> std::span<const std::byte> {
    for (const std::string& name : package::nativeTargets(target))
      if (auto bytes = reader->native(id, name); !bytes.empty())
        return bytes;
    return {};
  };
  py::list plans;
  for (const package::PlanEntry* entry : unwrap(package::plansFor(*reader, manifest, options.device))) {
    auto plan = unwrap(reader->section(entry->section));
    auto executable = withoutGil([&] {  // its kernels may be compiled, by threads that report progress in Python
      auto create = [&] { return Executable::create(plan, options); };
      return options.device == "cpu" ? create() : interrupts.run(create);
    });
    Origin origin;
    origin.place = place;
    auto graph = std::make_unique<CompiledGraph>(unwrap(std::move(executable)), std::vector<at::Tensor>(), origin);
    py::tuple slots = slotsOf(*entry);
    plans.append(py::make_tuple(py::cast(std::move(graph)), slots[0], slots[1], guardsOf(*entry)));
  }
  py::dict result;
  result["plans"] = plans;
  result["weights"] = mapWeights(reader, manifest);
  result["in_spec"] = manifest.in_spec;
  result["out_spec"] = manifest.out_spec;
  result["check"] = py::cpp_function([reader] {
    if (Status status = withoutGil([&] { return reader->checkWeights(); }); !status.ok())
      raise(status);
  });
  return result;
}

}  // namespace zefuse::python
