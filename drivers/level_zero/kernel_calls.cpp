#include "drivers/level_zero/kernel_calls.h"

namespace zefuse::level_zero {
namespace {

uint32_t largestDivisor(uint32_t size, uint32_t limit) {
  for (uint32_t divisor = std::min(size, limit); divisor > 1; --divisor)
    if (size % divisor == 0)
      return divisor;
  return 1;
}

}  // namespace

std::string giveLog(std::string log, ze_module_build_log_handle_t* handle) {
  std::string first_line = log.substr(0, log.find('\n'));
  if (handle)
    *handle = toHandle<ze_module_build_log_handle_t>(new BuildLog(std::move(log)));
  return first_line;
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

ze_result_t moduleBuildLogDestroy(ze_module_build_log_handle_t hModuleBuildLog) {
  ZEFUSE_OBJECT(BuildLog, log, hModuleBuildLog);
  log->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t moduleBuildLogGetString(ze_module_build_log_handle_t hModuleBuildLog, size_t* pSize, char* pBuildLog) {
  ZEFUSE_OBJECT(BuildLog, log, hModuleBuildLog);
  ZEFUSE_NOT_NULL(pSize);
  settleText(pSize, log->text, pBuildLog);
  return ZE_RESULT_SUCCESS;
}

void suggestGroupSize(const uint32_t (&global)[3], uint32_t items, uint32_t items_in_z, uint32_t* (&sizes)[3]) {
  *sizes[0] = largestDivisor(global[0], items);
  *sizes[1] = largestDivisor(global[1], items / *sizes[0]);
  *sizes[2] = largestDivisor(global[2], std::min(items_in_z, items / *sizes[0] / *sizes[1]));
}

}  // namespace zefuse::level_zero
