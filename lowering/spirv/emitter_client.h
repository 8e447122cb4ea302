// LLVM's SPIR-V back end, run outside this process.
//
// The back end keeps tables of earlier modules in static objects, keyed by addresses that are used again (in a
// long-lived process that gave modules with foreign label ids), and it ends its process on what it cannot legalise. So
// a program of our own (emitter_program.cpp), started once, forks a child per module: small and with one thread, it can
// be forked in a millisecond, where a fork of a host with torch took 7 and could inherit a lock that nobody releases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace zefuse {

// Begins to start the program and returns; a request that comes later finds it warm. Errors are the request's to
// report.
void startSpirvBackEnd();

// SPIR-V words for a module in LLVM bitcode (spir_kernel functions, OpenCL flavour, version 1.2). Errors:
//   not_found  the program is not beside this library
//   deadline   no answer within 30 s; the program was killed, the next request starts another
//   device     the back end refused the module or crashed; the message has its words
// Thread-safe; one module at a time. A forked child of this process starts a program of its own.
Result<std::vector<uint32_t>> runSpirvBackEnd(std::span<const char> bitcode);

}  // namespace zefuse
