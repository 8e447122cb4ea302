/* The one door to reports.h for callers by name (ctypes in python/zefuse/reports.py). No part of the C interface
 * (zefuse.h): it changes with the Python package that it comes with. */
#pragma once

#include <stddef.h>

#include "common/base/api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `words`: which report, then its arguments. Returns JSON: {"ok": ...}, or {"error": a status' name, "message": ...};
 * to be freed by zefuse_report_free. NULL: no memory. Thread-safe. */
ZEFUSE_API char* zefuse_report(const char* const* words, size_t count);
ZEFUSE_API void zefuse_report_free(char* json);

#ifdef __cplusplus
}
#endif
