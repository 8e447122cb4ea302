"""zefuse-opt, a folder per part. Run by ctest (lit_compiler, ...), or: lit -Dopt=PATH tests/lit/compiler"""

import os

import lit.formats

config.name = "zefuse"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params.get("exec_root", "/tmp/zefuse-lit")
config.substitutions.append(("zefuse-opt", lit_config.params["opt"]))
config.substitutions.append(
    ("FileCheck", os.path.join(lit_config.params.get("llvm_bin", "/usr/lib/llvm-22/bin"), "FileCheck"))
)
