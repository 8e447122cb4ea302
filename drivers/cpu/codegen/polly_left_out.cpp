// Polly, a plug-in that LLVM's static archives name for link-time optimisation, which lld is never asked for here.
#include "llvm/Plugins/PassPlugin.h"

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "", [](llvm::PassBuilder&) {}, nullptr};
}
