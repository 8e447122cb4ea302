// What torch.compile calls: an executable with torch tensors at both ends.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include "python/csrc/saved_block.h"
#include "python/csrc/tensors.h"
#include "runtime/executor/executable.h"

namespace zefuse::python {

// What a plan says of itself, for explain: without counters, times and folders of dumps.
pybind11::dict reportOf(const plan::Plan& plan);

// How a compiled graph came to be.
struct Origin {
  std::string dump_folder;
  std::vector<std::pair<std::string, double>> stages;  // seconds of each; empty: it was not made here
  size_t kernels_lowered = 0;                          // 0: the plan was found
  // Of a package's plan: for each of its inputs, the caller's (arguments, then constants), -1 where nobody reads it.
  // Empty: as they come.
  std::vector<int64_t> sources;
  TorchPlace place;          // where its tensors lie, and its calls' stream
  std::string package_miss;  // why the attached package was of no use; empty: it was, or there is none
};

// What one call is given. `computed`: in place of lazy tensors, by input number.
struct Arguments {
  explicit Arguments(size_t count) : tensors(count), inputs(count) {}

  std::vector<at::Tensor> tensors;
  std::vector<CallInput> inputs;
  std::map<size_t, at::Tensor> computed;
};

// Thread-safe as Executable is. Methods need the GIL; it is released while steps run. With a place, a call puts its
// work into torch's current stream there and returns; its results come from torch's allocator of that device.
class CompiledGraph {
public:
  // `constants`: tensors that follow the user's inputs in every call.
  CompiledGraph(std::unique_ptr<Executable> executable, std::vector<at::Tensor> constants, Origin origin = {});
  ~CompiledGraph();

  // `arguments`: a list of tensors and ints. Returns a tuple: tensors, ints, None. `boxed` as in AOTAutograd: the list
  // is emptied, so that the caller keeps no input alive.
  pybind11::tuple call(const pybind11::list& arguments);

  // `call` in two: one argument of the user's, number `source`, as input `number` of the plan; and the steps.
  void read(PyObject* object, size_t number, int64_t source, Arguments& into) const;
  void readTensor(size_t number, int64_t source, Arguments& into) const;  // one that stands in into.tensors
  pybind11::tuple run(Arguments& arguments);
  // Whether the plan's inputs are the user's arguments and then constants(), one by one.
  bool asTheyCome() const { return origin_.sources.empty(); }
  const TorchPlace& place() const { return origin_.place; }

  // From now on a call returns what it can of these outputs as one tensor of bytes, where the first of them was. Of
  // graphs with a place. Null: it cannot.
  std::shared_ptr<SavedBlock> saveInBlock(const std::vector<size_t>& outputs);
  // From now on a call gets one such tensor for the arguments with these numbers, where the first of them was.
  void takeFromBlock(std::shared_ptr<SavedBlock> block, const std::vector<size_t>& arguments);

  pybind11::dict report() const;    // report.cpp
  pybind11::dict counters() const;  // report.cpp
  // One (calls, seconds, processor seconds of the calling thread) for each step since time_steps(True); report.cpp.
  pybind11::list stepTimes() const;
  void timeSteps(bool on) { executable_->timeSteps(on); }
  std::string planJson() const;
  pybind11::bytes planBytes() const;
  pybind11::list constantTensors() const;  // in the order of constants()
  pybind11::list outputStrides() const;    // tuples of ints; None: no tensor, or of symbolic strides
  void invalidateWeights() { executable_->invalidateWeights(); }
  size_t freeIdleMemory() { return executable_->freeIdleMemory(); }
  // Waits for what calls have queued on a device. Raises what the first check that failed there says, once.
  void synchronize();

  const Executable& executable() const { return *executable_; }
  const std::vector<at::Tensor>& constants() const { return constants_; }
  const std::string& dumpFolder() const { return origin_.dump_folder; }
  const std::string& packageMiss() const { return origin_.package_miss; }

private:
  // Until native code that is made beside is there. Looks for signals; what a handler raises ends the wait alone.
  void awaitNativeCode();

  std::unique_ptr<Executable> executable_;
  bool built_ = false;  // nothing is made beside any more
  std::vector<at::Tensor> constants_;
  Origin origin_;
  void readArgument(const pybind11::list& arguments, size_t number, size_t input, Arguments& into) const;

  // Gives each kept parameter's storage in a call its number (TensorRef::storage): an address comes again.
  void numberStorages(Arguments& arguments);
  struct KnownStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // no other object is where this one was while we hold it
    uint64_t number = 0;
  };
  std::vector<std::pair<size_t, std::optional<KnownStorage>>> storages_;  // by input that is a parameter
  uint64_t last_storage_ = 0;

  std::vector<size_t> written_;  // inputs whose memory a call writes
  std::shared_ptr<SavedBlock> saves_;
  std::vector<uint8_t> in_block_;  // by output: whether it is in that
  std::optional<TakenBlock> takes_;
  std::vector<uint8_t> as_tensor_;  // by input: what comes in a block has to be a tensor all the same
};

}  // namespace zefuse::python
