// What a package says of itself: which plans it holds, how a caller's tensors and the weights are bound to their
// inputs, and where the weights lie. No torch: names, dtypes and numbers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/api.h"
#include "common/plan/plan_generated.h"
#include "runtime/package/guards.h"
#include "runtime/package/package.h"

namespace zefuse::package {

// One input of a plan. Inputs of the user are numbered as the flat list of tensors (and integers) of a call.
struct InputSlot {
  bool is_weight = false;
  bool constant = false;  // the user's, but what the program was traced with: the plan does not read it
  bool written = false;   // the user's, whose memory steps write: no output has the new value
  size_t user = 0;
  std::string weight;
};

// One output of a plan.
struct OutputSlot {
  enum class Kind { user, weight, mutates } kind = Kind::user;
  size_t user = 0;     // user: number among the user's outputs; mutates: the user's input whose new value it is
  std::string weight;  // weight: the buffer whose new value it is
};

// What graph a plan was made of, so that torch.compile finds it again (compiler/import/graph_identity.h). Opaque here.
struct GraphKey {
  std::vector<std::pair<std::string, std::string>> fields;  // "fuse": "yes", "digest": ...
  std::vector<std::string> inputs, outputs;                 // "f32[s0, 8]"
  std::vector<int64_t> arguments, symbols;                  // GraphIdentity's, as numbers of the plan's inputs
  std::vector<std::pair<std::string, int64_t>> unread;      // as above
};

// A plan with its calling convention. A package has one per target, and of each target one per set of shapes.
struct PlanEntry {
  std::string target;   // "cpu", or a GPU product such as "dg2-g11"
  std::string section;  // of the plan
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  std::optional<GraphKey> graph;  // none in packages of versions before it
  Guards guards;                  // likewise
};

// A graph as torch.compile hands it over, for options={"package": ...} alone: it has no calling convention of its own,
// and no weights are the package's.
struct CapturedGraph {
  std::string target, section;  // as PlanEntry's
  size_t num_inputs = 0;        // of the plan
  GraphKey graph;
};

struct ZEFUSE_API Manifest {
  std::string producer;                                 // "zefuse 0.1.0"
  std::vector<std::string> input_names, output_names;   // of the user's
  std::string in_spec, out_spec;                        // torch's pytree of them, for Python; opaque here
  std::map<std::string, std::vector<int64_t>> strides;  // of the weights whose plan wants another order than row-major
  std::vector<PlanEntry> plans;                         // may be empty where there are captured graphs
  std::vector<CapturedGraph> captured;                  // unknown to versions before it, which ignore them

  // damaged: what is missing or wrong. Names of formats before this one are translated.
  static Result<Manifest> read(const Reader& reader);
};

// A tensor of the weights' section: row-major, as safetensors has it.
struct Weight {
  std::string name;
  plan::DType dtype{};
  std::vector<int64_t> sizes;
  std::span<const std::byte> bytes;  // in the package
};

// The directory of the weights' section, in the order of their names. damaged: what is wrong. The hash of the section
// is not compared here (Reader::checkWeights); bounds are checked all the same.
ZEFUSE_API Result<std::vector<Weight>> readWeights(const Reader& reader);

}  // namespace zefuse::package
