#include <string>

#include "runtime/package/manifest.h"
#include "runtime/package/model.h"
#include "runtime/reports/json_text.h"
#include "runtime/reports/reports.h"

namespace zefuse::reports {
namespace {

using json::List;
using json::Object;

List texts(const std::vector<package::TensorInfo>& infos) {
  List list;
  for (const package::TensorInfo& info : infos)
    list.add(info.name + ": " + package::text(info));
  return list;
}

Object& addCounts(Object& entry, const package::PlanDescription& described) {
  return entry.add("kernels", described.kernels)
      .add("library_calls", described.library_calls)
      .add("aten", json::listOf(described.aten));
}

}  // namespace

Result<std::string> ofPackage(const std::string& path) {
  auto opened = package::Reader::open(path, package::WeightsCheck::at_open);
  ZEFUSE_RETURN_IF_ERROR(opened.status());
  const package::Reader& reader = **opened;
  auto manifest = package::Manifest::read(reader);
  ZEFUSE_RETURN_IF_ERROR(manifest.status());
  List sections, plans, captured, weights;
  for (const package::Reader::Section& section : reader.sections()) {
    List row;
    row.add(section.name);
    row.add(section.bytes.size());
    row.add(hex(section.digest));
    sections.add(row);
  }
  for (const package::PlanEntry& entry : manifest->plans) {
    auto bytes = reader.section(entry.section);
    ZEFUSE_RETURN_IF_ERROR(bytes.status());
    auto described = package::describePlan(*bytes, *manifest, entry);
    ZEFUSE_RETURN_IF_ERROR(described.status());
    Object plan;
    plan.add("target", entry.target)
        .add("section", entry.section)
        .add("inputs", texts(described->inputs))
        .add("outputs", texts(described->outputs))
        .add("conditions", json::listOf(entry.guards.texts()));
    plans.add(addCounts(plan, *described));
  }
  for (const package::CapturedGraph& entry : manifest->captured) {
    auto bytes = reader.section(entry.section);
    ZEFUSE_RETURN_IF_ERROR(bytes.status());
    auto described = package::describeSteps(*bytes);
    ZEFUSE_RETURN_IF_ERROR(described.status());
    Object graph;
    graph.add("target", entry.target)
        .add("section", entry.section)
        .add("inputs", json::listOf(entry.graph.inputs))
        .add("outputs", json::listOf(entry.graph.outputs));
    captured.add(addCounts(graph, *described));
  }
  auto found = package::readWeights(reader);
  ZEFUSE_RETURN_IF_ERROR(found.status());
  for (const package::Weight& weight : *found) {
    List row;
    row.add(weight.name);
    row.add(plan::EnumNameDType(weight.dtype));
    row.add(json::listOf(weight.sizes));
    weights.add(row);
  }
  Object result;
  result.add("format", reader.format())
      .add("read_by", reader.readBy())
      .add("producer", manifest->producer)
      .add("digest", hex(reader.digest()))
      .add("sections", sections)
      .add("plans", plans)
      .add("captured", captured)
      .add("weights", weights);
  return result.text().json;
}

Result<std::string> ofPlanIn(const std::string& path, const std::string& section) {
  auto opened = package::Reader::open(path);
  ZEFUSE_RETURN_IF_ERROR(opened.status());
  auto bytes = (*opened)->section(section);
  ZEFUSE_RETURN_IF_ERROR(bytes.status());
  ZEFUSE_RETURN_IF_ERROR(package::describeSteps(*bytes).status());  // verifies
  return ofPlan(*plan::GetPlan(bytes->data()));
}

}  // namespace zefuse::reports
